"""A task table in memory that keeps the contract, under virtual time, with faults on demand."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from gnomon.contracts.env import Env
from gnomon.contracts.task_table import (
    ExpiryResult,
    GroupWindow,
    PollMark,
    RescueResult,
    TableLock,
    TaskFinishResult,
    TaskPoll,
    TaskSession,
)
from gnomon.model.errors import Unavailable
from gnomon.model.task import (
    DueTask,
    GroupKey,
    Outcome,
    RemoteRefused,
    RowRefused,
    SessionLost,
    Task,
)
from gnomon.model.task.conf import TaskEntry
from gnomon.tasks.config import TasksConfig
from gnomon.tasks.table_owner import TableOwner
from gnomon.testing.virtual import SeededEntropy, VirtualClock, VirtualLoop

STEP_S = 0.001  # a round trip
CONNECT_S = 0.005
FAR = timedelta(hours=1)


@dataclass
class Row:
    """A row of the table, with what its input does."""

    id: int
    group: str
    takes_s: float
    plan: datetime
    max: int = 0
    count: int = 0
    live_s: float = 0.0
    drift: bool = False
    active: timedelta = FAR
    remote: str | None = None
    kills: int = 0  # so many times it breaks its session
    error: str | None = None
    state: str = "PLAN"
    pid: int | None = None
    start: datetime | None = None
    stop: datetime | None = None

    @property
    def key(self) -> GroupKey:
        return GroupKey(self.group, self.remote)

    @property
    def order(self) -> tuple[int, int]:
        return -max(self.max, 0), self.id


class FakeTable:
    """The table; `hints` off makes it one without a trigger."""

    name = "fake.public.task"

    def __init__(self, loop: VirtualLoop, *, hints: bool = True) -> None:
        self._loop = loop
        self.clock = VirtualClock(loop)
        self.rows: dict[int, Row] = {}
        self.lease: UUID | None = None
        self.beat_at = 0.0
        self.beats = 0
        self.process: str | None = None  # of the owner
        self.hints = hints
        self.is_away = False
        self.connections_max = 1_000
        self.alive: set[int] = set()  # pids of backends
        self.sessions: dict[int, FakeSession] = {}
        self.refused_remotes: set[str] = set()
        self.calls: Counter[str] = Counter()
        self._callback: Callable[[], None] | None = None
        self._pid = 100
        self.wall_s = 0.0  # what a window costs
        self.locked: set[int] = set()  # rows that a user has locked
        self.poisoned: set[int] = set()  # rows that the server does not let be changed
        self.groups_max = 1_000
        self.news_max = 10_000
        self.expired_max = 1_000

    # -- the user ---------------------------------------------------------------------------------

    def insert(self, group: str = "group", *, takes_s: float = 0.0, plan_s: float = 0.0,
               **columns: Any) -> Row:  # fmt: skip
        """`plan_s`: so many seconds from now."""
        plan = self.clock.now() + timedelta(seconds=plan_s)
        row = Row(len(self.rows) + 1, group, takes_s, plan, **columns)
        self.rows[row.id] = row
        self.hint()
        return row

    def hint(self) -> None:
        if self.hints and self._callback is not None:
            self._loop.call_soon(self._callback)

    # -- the contract -----------------------------------------------------------------------------

    async def step(self, name: str, seconds: float = STEP_S) -> None:
        self.calls[name] += 1
        await asyncio.sleep(seconds)
        if self.is_away:
            raise Unavailable("the server is away")

    async def prepare(self) -> Sequence[str]:
        return []

    async def lock(self) -> TableLock:
        await self.step("lock")
        if self.lease is None:
            return TableLock(beat=self.beats)
        silent_s = self._loop.time() - self.beat_at
        return TableLock(
            lease_guid=self.lease,
            process=self.process,
            beat=self.beats,
            silent_for=timedelta(seconds=silent_s),
        )

    async def acquire(
        self,
        lease_guid: UUID,
        *,
        owner: str,
        seen: TableLock,
        lease_for: timedelta,
        process: str | None = None,
    ) -> bool:
        await self.step("acquire")
        is_as_seen = (self.lease, self.beats) == (seen.lease_guid, seen.beat)
        is_silent = self._loop.time() - self.beat_at >= lease_for.total_seconds()
        if self.lease not in (None, lease_guid) and not (is_as_seen and is_silent):
            return False
        self.lease, self.beat_at, self.beats = lease_guid, self._loop.time(), 0
        self.process = process
        for row in self.rows.values():
            is_alive = row.pid in self.alive and row.remote is None
            if row.state == "TAKE" or (row.state == "WORK" and not is_alive):
                self._reset(row)
        return True

    async def beat(self, lease_guid: UUID) -> bool:
        await self.step("beat")
        if self.lease != lease_guid:
            return False
        self.beat_at = self._loop.time()
        self.beats += 1
        return True

    async def release(self, lease_guid: UUID) -> None:
        await self.step("release")
        if self.lease == lease_guid:
            self.lease = None

    def _due(self) -> list[Row]:
        now = self.clock.now()
        return [row for row in self.rows.values() if row.state == "PLAN" and row.plan <= now]

    async def poll(self, mark: PollMark | None, *, after: str | None = None) -> TaskPoll:
        await self.step("poll full" if mark is None else "poll")
        now = self.clock.now()
        due = self._due()
        seen = [row for row in due if mark is None or row.id > mark.id or row.plan > mark.plan]
        plans = [row for row in self.rows.values() if row.state == "PLAN" and row.max >= 0]
        names = sorted({row.key for row in seen}, key=str)
        page = [key for key in names if after is None or str(key) > after]
        if mark is None:
            page = page[: self.groups_max]
        is_cut = mark is not None and len(seen) > self.news_max
        if is_cut:
            page = page[:1]
        later = [row.plan for row in self.rows.values() if row.state == "PLAN" and row.plan > now]
        return TaskPoll(
            now=now,
            groups=frozenset(page),
            next_plan=min(later, default=None),
            next_expiry=min((row.plan + row.active for row in plans), default=None),
            mark=PollMark(id=max(self.rows, default=0), plan=now),
            is_cut=is_cut,
            rest=str(page[-1]) if mark is None and page and page[-1] != names[-1] else None,
        )

    def _expired(self, row: Row) -> bool:
        return row.max >= 0 and row.plan + row.active <= self.clock.now()

    async def window(self, key: GroupKey, *, limit: int, lease_guid: UUID) -> GroupWindow:
        due = (row for row in self._due() if row.key == key and not self._expired(row))
        rows = sorted(due, key=lambda row: row.order)
        await self.step("window", STEP_S + self.wall_s)  # what it says may be old by now
        waiting = [
            DueTask(id=row.id, max=row.max, count=row.count, live_s=row.live_s)
            for row in rows[:limit]
        ]
        return GroupWindow(waiting, has_more=len(rows) >= limit)

    async def mark_taken(self, task_ids: Sequence[int], *, lease_guid: UUID) -> Sequence[int]:
        await self.step("mark_taken")
        found = [
            row
            for row in self._due()
            if row.id in task_ids and lease_guid == self.lease and not self._expired(row)
        ]
        self._check(found)
        found = [row for row in found if row.id not in self.locked]
        for row in found:
            row.state = "TAKE"
        return [row.id for row in found]

    def _check(self, rows: Sequence[Row]) -> None:
        for row in rows:
            if row.id in self.poisoned:
                raise RowRefused("ERROR:  no change of this row")

    async def untake(self, task_ids: Sequence[int], *, lease_guid: UUID) -> Sequence[int]:
        await self.step("untake")
        for task_id in set(task_ids) - self.locked:
            if self.rows[task_id].state in ("TAKE", "WORK") and lease_guid == self.lease:
                self._reset(self.rows[task_id])
        return [task_id for task_id in task_ids if self.rows[task_id].state in ("TAKE", "WORK")]

    async def refuse(self, task_id: int, error: str, *, lease_guid: UUID) -> bool:
        await self.step("refuse")
        row = self.rows[task_id]
        self._check([row])
        if task_id in self.locked:
            return False
        if row.state in ("TAKE", "PLAN") and lease_guid == self.lease:
            row.state, row.error, row.stop = "FAIL", error, self.clock.now()
        return True

    async def expire(self, *, lease_guid: UUID) -> ExpiryResult:
        await self.step("expire")
        now = self.clock.now()
        gone = [row for row in self._due() if self._expired(row) and row.id not in self.locked]
        for row in gone[: self.expired_max]:
            row.state, row.start, row.stop = "GONE", now, now
        return ExpiryResult(len(gone[: self.expired_max]), has_more=len(gone) > self.expired_max)

    async def rescue(self, *, lease_guid: UUID, stale: bool = False) -> RescueResult:
        await self.step("rescue")
        others: Counter[GroupKey] = Counter()
        count = 0
        held: set[int] = set()
        for row in self.rows.values():
            is_lost = row.state == "WORK" and row.remote is None and row.pid not in self.alive
            if is_lost or (stale and row.state == "TAKE"):
                if row.id in self.locked:
                    held.add(row.id)
                    continue
                self._reset(row)
                count += 1
            elif row.state == "WORK" and row.remote is None and row.pid not in self.sessions:
                others[row.key] += 1
        return RescueResult(count=count, others=dict(others), held=frozenset(held))

    def _reset(self, row: Row) -> None:
        row.state, row.pid, row.start = "PLAN", None, None
        self.hint()

    async def listen(self, callback: Callable[[], None]) -> None:
        if self.hints:
            self._callback = callback
            await asyncio.Event().wait()

    async def open(self, key: GroupKey) -> TaskSession:
        await self.step("open", CONNECT_S)
        if key.remote in self.refused_remotes:
            raise RemoteRefused("ERROR:  no way")
        if len(self.sessions) >= self.connections_max:
            raise Unavailable("too many connections")
        self._pid += 1
        session = self.sessions[self._pid] = FakeSession(self, self._pid)
        self.alive.add(self._pid)
        return session

    async def close(self) -> None: ...

    # -- the world --------------------------------------------------------------------------------

    def crash(self) -> None:
        """The server is away and has forgotten its backends."""
        self.is_away = True
        for session in list(self.sessions.values()):
            session.break_off()


class FakeSession:
    """One backend."""

    def __init__(self, table: FakeTable, pid: int) -> None:
        self._table = table
        self.pid = pid
        self._broken = asyncio.Event()
        self._cancelled = asyncio.Event()

    def break_off(self) -> None:
        self._table.alive.discard(self.pid)
        self._table.sessions.pop(self.pid, None)
        self._broken.set()

    async def _step(self) -> None:
        await asyncio.sleep(STEP_S)
        if self._broken.is_set():
            raise SessionLost("FATAL:  terminating connection")

    async def take(self, task_id: int, *, lease_guid: UUID) -> Task | None:
        await self._step()
        return self._taken(task_id, lease_guid)

    def _taken(self, task_id: int, lease_guid: UUID) -> Task | None:
        row, now = self._table.rows[task_id], self._table.clock.now()
        is_due = row.state == "TAKE" or (row.state == "PLAN" and row.plan <= now)
        is_late = row.max >= 0 and row.plan + row.active <= now
        if lease_guid != self._table.lease or not is_due or is_late:
            return None
        row.state, row.start, row.pid = "WORK", now, self.pid
        return Task(
            id=row.id, key=row.key, input="", plan=row.plan, start=now, max=row.max,
            count=row.count, live_s=row.live_s, timeout=timedelta(0), save=False, header=True,
            string=True, delimiter="\t", quote="", escape="", null="\\N",
        )  # fmt: skip

    async def perform(self, task: Task) -> Outcome:
        row = self._table.rows[task.id]
        waits = [self._broken.wait(), self._cancelled.wait()]
        events = [asyncio.ensure_future(wait) for wait in waits]
        try:
            await asyncio.wait(events, timeout=row.takes_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for event in events:
                event.cancel()
        if row.kills:
            row.kills -= 1
            self.break_off()
        await self._step()
        if self._cancelled.is_set():
            return Outcome(output="", error="ERROR:  canceling statement due to user request")
        return Outcome(output="1", error=row.error)

    async def finish(
        self, task: Task, outcome: Outcome, *, then: int | None = None, lease_guid: UUID
    ) -> TaskFinishResult:
        await self._step()
        row, now = self._table.rows[task.id], self._table.clock.now()
        recorded = row.state == "WORK" and row.pid == self.pid and row.start == task.start
        if recorded:
            row.state, row.stop = ("DONE" if outcome.error is None else "FAIL"), now
            if row.max < 0:
                self._pause(row.key, now)
        taken = None if then is None else self._taken(then, lease_guid)
        return TaskFinishResult(recorded=recorded, next=taken)

    def _pause(self, key: GroupKey, now: datetime) -> None:
        for row in self._table._due():
            if row.key == key and row.max < 0:
                pause = timedelta(milliseconds=-row.max)
                missed = (now - row.plan) // pause + 1
                row.plan = now + pause if row.drift else row.plan + missed * pause

    async def cancel(self) -> None:
        self._cancelled.set()

    async def close(self) -> None:
        self._table.alive.discard(self.pid)
        self._table.sessions.pop(self.pid, None)
        self._broken.set()


# -- the stand ------------------------------------------------------------------------------------


@dataclass
class Told:
    """The observer that remembers."""

    events: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def event(self, name: str, /, **fields: object) -> None:
        self.events.append((name, fields))

    def count(self, name: str, value: int = 1, /, **labels: str) -> None:
        self.counts[f"{name} {labels.get('state', '')}".strip()] += value

    def observe(self, name: str, value: float, /, **labels: str) -> None: ...

    def gauge(self, name: str, value: float, /, **labels: str) -> None: ...


@dataclass
class FakeProcesses:
    """Whose ends are known."""

    own: str | None = "here"
    ended: set[str] = field(default_factory=set)

    def has_ended(self, process: str) -> bool:
        return process in self.ended


class World:
    """One table and its owners, in virtual time."""

    def __init__(self, loop: VirtualLoop, *, hints: bool = True, **settings: Any) -> None:
        self._loop = loop
        self.table = FakeTable(loop, hints=hints)
        self.told = Told()
        self.processes = FakeProcesses()
        self.env = Env(
            clock=VirtualClock(loop),
            entropy=SeededEntropy(random.Random(2)),
            observer=self.told,
            processes=self.processes,
        )
        self.entry = TaskEntry(data="fake", user="fake", **settings)
        self.stop = asyncio.Event()
        self.config = TasksConfig()
        self.owners: list[TableOwner] = []

    def start(self, name: str = "one") -> tuple[TableOwner, asyncio.Task[None]]:
        owner = TableOwner(self.table, self.entry, config=self.config, env=self.env, owner=name)
        self.owners.append(owner)
        serving = self._loop.create_task(owner.serve(self.stop, drain=lambda: self.config.drain))
        return owner, serving

    async def until(self, condition: Callable[[], object], within_s: float = 600.0) -> None:
        end = self._loop.time() + within_s
        while not condition():
            assert self._loop.time() < end, f"not within {within_s} s"
            await asyncio.sleep(STEP_S)

    async def all_ended(self, within_s: float = 600.0) -> None:
        rows = self.table.rows
        await self.until(
            lambda: all(row.state not in ("PLAN", "TAKE", "WORK") for row in rows.values()),
            within_s,
        )


def virtually(story: Callable[[World], Coroutine[Any, Any, None]], **settings: Any) -> World:
    """Run a story in a world of its own; its owner is stopped at the end."""
    loop = VirtualLoop()

    async def whole() -> World:
        world = World(loop, **settings)
        _, serving = world.start()
        await story(world)
        world.stop.set()
        await serving
        return world

    with _running(loop):
        return loop.run_until_complete(whole())


@contextmanager
def _running(loop: VirtualLoop) -> Iterator[None]:
    try:
        yield
    finally:
        loop.close()


def at_once(rows: Sequence[Row]) -> int:
    """How many of them were performed at the same time, at most."""
    edges = [(row.start, 1) for row in rows if row.start] + [(row.stop, -1) for row in rows]
    most = now = 0
    for _, change in sorted(edges, key=lambda edge: (str(edge[0]), edge[1])):
        now += change
        most = max(most, now)
    return most
