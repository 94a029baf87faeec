"""What only a server has, played on SQLite: rows that others hold, transactions that stay open.

A server's statements pass over what others hold, and look from marks on that pass what is not to be
seen yet. The rows that a server would not show to a verb are taken out while the verb is performed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from gnomon.contracts.store import (
    ActionDraft,
    ArrivalResult,
    BeginRequest,
    BeginResult,
    ChangeResult,
    HeldShard,
    Lane,
    MoveResult,
    OpenTransactions,
    PollResult,
)
from gnomon.model.errors import GnomonError
from gnomon.model.spec import Mock, Spec
from gnomon.scheduler import Request, Scheduler
from gnomon.stores.sqlite.rows import micros, moment
from tests.simulation.history import History
from tests.simulation.invariants import Rules

LAG = timedelta(seconds=2)  # of the marks, as on PostgreSQL
LAG_US = 2_000_000
SPELL_MAX = timedelta(seconds=1)  # a row that was held is looked at so often at least
BEHIND = "FROM incoming_queue WHERE shard_id = ? AND created_at < ?"
BEFORE = (
    "FROM processing_queue"
    " WHERE shard_id = ? AND queue = ? AND priority = ? AND need = ? AND scheduled_at < ?"
)
HELD = "FROM processing_queue WHERE guid = ? AND running = 0"
Rows = list[tuple[Any, ...]]


class Crowd:
    """Who else is at the database: what they hold, and which of their transactions are open."""

    def __init__(self, execute: Callable[..., Any], now: Callable[[], datetime]) -> None:
        self.execute = execute
        self.now = now
        self.held: set[UUID] = set()
        self.open: set[int] = set()
        self.next_number = 1
        self.tells = True  # which transactions are open

    def begin(self) -> int:
        """A transaction is opened."""
        number, self.next_number = self.next_number, self.next_number + 1
        self.open.add(number)
        return number

    def counted(self, mark: datetime) -> datetime:
        """A mark counts as little more than the present: the clock may have been set back."""
        return min(mark, self.now() - LAG)

    @contextmanager
    def without(self, table: str, found: Rows) -> Iterator[None]:
        """While these rows are not to be seen."""
        try:
            yield
        finally:
            for row in found:
                marks = ", ".join("?" * len(row))
                self.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", row)

    def take(self, tail: str, values: Sequence[object]) -> Rows:
        """Take rows out."""
        found: Rows = self.execute(f"SELECT * {tail}", values).fetchall()
        if found:
            self.execute(f"DELETE {tail}", values)
        return found


class CrowdedWork:
    """The work role, as a server with other users performs it."""

    def __init__(self, inner: Any, crowd: Crowd, history: History) -> None:
        self._inner = inner
        self._crowd = crowd
        self._history = history

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._inner, verb)

    # -- arrivals ---------------------------------------------------------------------------------

    async def poll(self, holdings: Sequence[HeldShard]) -> PollResult:
        crowd = self._crowd
        with crowd.without("incoming_queue", self._behind(holdings)):
            found: PollResult = await self._inner.poll(holdings)
        numbers = OpenTransactions(
            ids=tuple(crowd.open), start=crowd.next_number, stop=crowd.next_number
        )
        return msgspec.structs.replace(found, open=numbers if crowd.tells else None)

    async def move(self, holdings: Sequence[HeldShard], *, limit: int) -> MoveResult:
        with self._crowd.without("incoming_queue", self._behind(holdings)):
            before = self._heads(holdings, limit)
            moved: MoveResult = await self._inner.move(holdings, limit=limit)
            return msgspec.structs.replace(moved, marks=self._marks(moved, before))

    async def move_and_begin(
        self, holdings: Sequence[HeldShard], *, limit: int, **named: Any
    ) -> ArrivalResult:
        if self._arriving_held(holdings):
            return ArrivalResult(moved=await self.move(holdings, limit=limit), begun=[])
        with self._crowd.without("incoming_queue", self._behind(holdings)):
            before = self._heads(holdings, limit)
            with self._crowd.without("processing_queue", self._take_held()[0]):
                arrived: ArrivalResult = await self._inner.move_and_begin(
                    holdings, limit=limit, **named
                )
            moved = msgspec.structs.replace(arrived.moved, marks=self._marks(arrived.moved, before))
            return msgspec.structs.replace(arrived, moved=moved)

    def _behind(self, holdings: Sequence[HeldShard]) -> Rows:
        """What lies behind the marks."""
        found: Rows = []
        for held in holdings:
            if held.incoming_mark is not None:
                mark = self._crowd.counted(held.incoming_mark)
                found += self._crowd.take(BEHIND, (held.shard, micros(mark)))
        self._history.reach("arrival behind a mark", bool(found))
        return found

    def _heads(self, holdings: Sequence[HeldShard], limit: int) -> dict[int, list[int]]:
        query = "SELECT created_at FROM incoming_queue WHERE shard_id = ? ORDER BY 1 LIMIT ?"
        return {
            held.shard: [at for (at,) in self._crowd.execute(query, (held.shard, limit))]
            for held in holdings
        }

    def _marks(self, moved: MoveResult, before: dict[int, list[int]]) -> dict[int, datetime]:
        """Two seconds behind: the present, or the last row of a full move. Also before the world
        began: its clock may be set back."""
        present = micros(moved.now) - LAG_US
        return {
            shard: moment(min(present, before[shard][-1] - LAG_US) if moved.more else present)
            for shard in moved.marks
        }

    def _arriving_held(self, holdings: Sequence[HeldShard]) -> bool:
        query = "SELECT guid FROM incoming_queue WHERE shard_id = ?"
        return any(
            UUID(bytes=guid) in self._crowd.held
            for held in holdings
            for (guid,) in self._crowd.execute(query, (held.shard,))
        )

    # -- beginning --------------------------------------------------------------------------------

    async def begin(self, demands: Sequence[BeginRequest], **named: Any) -> BeginResult:
        hidden = [
            row
            for demand in demands
            if demand.since is not None
            for row in self._crowd.take(BEFORE, (*demand.lane, micros(demand.since)))
        ]
        with self._crowd.without("processing_queue", hidden):
            held, times = self._take_held()
            with self._crowd.without("processing_queue", held):
                result: BeginResult = await self._inner.begin(demands, **named)
        return self._as_a_server_tells(demands, result, times)

    def _take_held(self) -> tuple[Rows, dict[Lane, list[datetime]]]:
        query = "SELECT shard_id, queue, priority, need, scheduled_at " + HELD
        rows: Rows = []
        times: dict[Lane, list[datetime]] = {}
        for guid in sorted(self._crowd.held):
            for *lane, at in self._crowd.execute(query, (guid.bytes,)).fetchall():
                times.setdefault(Lane(*lane), []).append(moment(at))
            rows += self._crowd.take(HELD, (guid.bytes,))
        return rows, times

    def _as_a_server_tells(
        self,
        demands: Sequence[BeginRequest],
        result: BeginResult,
        times: dict[Lane, list[datetime]],
    ) -> BeginResult:
        next_due, refused = dict(result.next_due), dict(result.refused)
        for demand in demands:
            lane = demand.lane
            given = [one.scheduled_at for one in result.begun if one.lane == lane]
            held = [at for at in times.get(lane, []) if demand.since is None or at >= demand.since]
            passed = [at for at in held if at <= result.now]
            self._history.reach("held row passed over", len(passed))
            known = next_due.get(lane)
            if demand.hasty and len(given) >= demand.limit:
                next_due[lane] = max(given)
            elif len(given) >= demand.limit:
                next_due[lane] = min([*held, *([] if known is None else [known])], default=None)
            else:
                later = [*set(held) - set(passed), *([] if known is None else [known])]
                next_due[lane] = min(later, default=None)
                if passed:
                    refused[lane] = min([*passed, *([refused[lane]] if lane in refused else [])])
        return msgspec.structs.replace(result, next_due=next_due, refused=refused)


class LateActions:
    """The actions role of a transaction that has been open for a while."""

    def __init__(self, inner: Any, crowd: Crowd) -> None:
        self._inner = inner
        self._crowd = crowd
        self.writing: tuple[int, datetime] = (0, crowd.now())

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._inner, verb)

    async def create(
        self, drafts: Sequence[ActionDraft], **named: Any
    ) -> list[ChangeResult | None]:
        """Created then, and to be seen from now on."""
        result: list[ChangeResult | None] = await self._inner.create(drafts, **named)
        number, since = self.writing
        for draft in drafts:
            query = "UPDATE incoming_queue SET created_at = ? WHERE guid = ?"
            self._crowd.execute(query, (micros(since), draft.guid.bytes))
        self._crowd.open.discard(number)
        return result


class Others:
    """Users whose transactions take their time."""

    def __init__(
        self,
        scheduler: Scheduler,
        late_scheduler: Scheduler,
        late: LateActions,
        crowd: Crowd,
        *,
        dice: random.Random,
        rules: Rules,
        found_within: timedelta,
    ) -> None:
        self._scheduler = scheduler
        self._late_scheduler = late_scheduler
        self._late = late
        self._crowd = crowd
        self._dice = dice
        self._rules = rules
        self._found_within = found_within
        self._count = 0

    async def commit_late(self) -> None:
        """Write several actions in a transaction that is committed seconds later."""
        while True:
            await asyncio.sleep(self._dice.expovariate(1 / 8))
            self._late.writing = (self._crowd.begin(), self._crowd.now())
            await asyncio.sleep(self._dice.uniform(2.5, 9))
            count = self._dice.randint(1, 5)
            for name in await self._create(self._late_scheduler, count, priority=5):
                self._rules.current[name].ready_at += self._found_within
                self._rules.history.reach("late commit")
            self._crowd.open.discard(self._late.writing[0])

    async def hold(self) -> None:
        """Lock an urgent action of one's own, or anybody's, for a while."""
        while True:
            await asyncio.sleep(self._dice.expovariate(1 / 6))
            names = await self._create(self._scheduler, 1, priority=0)
            if self._dice.random() < 0.7:
                known = sorted(self._rules.current)
                names += self._dice.sample(known, min(3, len(known)))
            guids = {self._rules.current[name].guid for name in names}
            self._crowd.held |= guids
            self._rules.history.note("others", "hold", *names)
            await asyncio.sleep(self._dice.uniform(1, 6))
            self.release(guids)

    def release(self, guids: Collection[UUID]) -> None:
        self._crowd.held -= set(guids)
        for guid in guids:
            made = self._rules.generations[guid]
            self._rules.history.note("others", "release", made)
            made.ready_at = max(made.ready_at, self._crowd.now()) + SPELL_MAX

    def let_go(self) -> None:
        """All of it: the world is to come to rest."""
        self.release(set(self._crowd.held))
        self._crowd.open.clear()

    async def _create(self, scheduler: Scheduler, count: int, *, priority: int) -> list[str]:
        """Of those asked for, which are there."""
        first, self._count = self._count, self._count + count
        names = [f"{priority}-{number}" for number in range(first, first + count)]
        spec = Spec(action=Mock(), priority=priority, timeout=timedelta(seconds=2))
        try:
            await scheduler.create_many([Request(id=name, spec=spec) for name in names])
        except GnomonError:
            return []
        return [name for name in names if name in self._rules.current]
