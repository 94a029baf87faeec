"""A task table in a PostgreSQL database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from uuid import UUID

from gnomon.contracts.env import Env
from gnomon.contracts.task_table import (
    ExpiryResult,
    GroupWindow,
    PollMark,
    RescueResult,
    TaskPoll,
    TaskSession,
)
from gnomon.model.errors import Unavailable
from gnomon.model.secret import Secret
from gnomon.model.task import DueTask, GroupKey
from gnomon.model.task.conf import TaskEntry
from gnomon.tasks.postgres.control import NO_PARAMS, ControlConnection, StatementRefused, rows_of
from gnomon.tasks.postgres.group_forecast import INPUT_BYTES_MAX
from gnomon.tasks.postgres.queries import QUERIES
from gnomon.tasks.postgres.remote import RemoteSession
from gnomon.tasks.postgres.remote_address import reach
from gnomon.tasks.postgres.row_upkeep import RowUpkeep, awaited_of
from gnomon.tasks.postgres.rows import as_bytes, moment_of, moment_or_none, text_of
from gnomon.tasks.postgres.schema import DatabaseMaker, TableMaker
from gnomon.tasks.postgres.session import LocalSession
from gnomon.tasks.postgres.spare_sessions import SpareSessions
from gnomon.tasks.postgres.table_access import TRUE, TableAccess, parsed
from gnomon.tasks.postgres.wire import Result, Statement, Step, Wire

FEW = 2  # times the rows that are asked for
LOOKED_AT = 10  # times the rows that are asked for: so many due rows, expired or not
GROUPS_MAX = 1_000  # in one page of a look at everything
NEWS_MAX = 10_000  # rows that one poll looks at


class PostgresTaskTable:
    """The contract `TaskTable`, on two connections of its own and one for each session.

    One of the two is for what never waits, beats above all: whatever the other one waits for, the
    lease is kept."""

    def __init__(self, dsn: Secret, entry: TaskEntry, *, env: Env, result_bytes_max: int) -> None:
        self._place = TableAccess(dsn, entry, env=env, result_bytes_max=result_bytes_max)
        self._dsn = dsn
        self._entropy = env.entropy
        self._control = ControlConnection(
            self._place.control_options, clock=env.clock, on_connect=self._on_connect
        )
        self._beats = ControlConnection(self._place.control_options)
        self._keeper = RowUpkeep(self._place, self._control)
        self._callback: Callable[[], None] | None = None
        self._spares = SpareSessions(self._place, self._settings)

    @property
    def name(self) -> str:
        entry = self._place.entry
        return f"{entry.data}.{entry.schema}.{entry.table}"

    # -- making it --------------------------------------------------------------------------------

    async def prepare(self) -> Sequence[str]:
        done = list(await DatabaseMaker(self._place, self._login_options()).found())
        return [*done, *await TableMaker(self._place, self._control).make()]

    def _login_options(self) -> dict[str, str]:
        return {**parsed(self._dsn.reveal()), "gssencmode": "disable", "client_encoding": "UTF8"}

    # -- owning it --------------------------------------------------------------------------------

    async def acquire(self, owner: str, *, lease: timedelta) -> UUID | None:
        lease_guid = self._entropy.token()
        seconds = as_bytes(lease.total_seconds())
        rows = await self._rows("acquire", as_bytes(lease_guid), as_bytes(owner), seconds)
        if not rows:
            return None
        with self._in_trouble():
            await self._keeper.rescue(lease_guid, stale=True, remote=True)
        self._spares.fill(1)
        return lease_guid

    async def beat(self, lease_guid: UUID) -> bool:
        with self._in_trouble():
            beat = self._place.statements["beat"]
            return bool(await self._beats.rows(beat, as_bytes(lease_guid)))

    async def release(self, lease_guid: UUID) -> None:
        await self._rows("release", as_bytes(lease_guid))

    # -- finding work -----------------------------------------------------------------------------

    async def poll(self, mark: PollMark | None, *, after: str | None = None) -> TaskPoll:
        known = self._place.statements
        # The mark before the rows: what comes in between is found twice, and never missed.
        steps: list[Step] = [(known["poll_mark"], (self._keeper.floor,))]
        if mark is None:
            page = (None if after is None else as_bytes(after), as_bytes(GROUPS_MAX))
            steps.append((known["poll_all"], page))
        else:
            since = (as_bytes(mark.id), as_bytes(mark.plan.isoformat(" ")), as_bytes(NEWS_MAX))
            steps.append((known["poll_since"], since))
        marks, groups = [rows_of(result) for result in await self._together(steps)]
        now = moment_of(marks[0][0])
        ends = [text_of(row[2]) for row in groups if row[2] is not None]
        return TaskPoll(
            now=now,
            groups=frozenset(_key_of(row) for row in groups if row[0] is not None),
            next_plan=moment_or_none(marks[0][2]),
            next_expiry=moment_or_none(marks[0][3]),
            mark=PollMark(id=int(marks[0][1] or 0), plan=now),
            is_cut=mark is not None and TRUE.decode() in ends,
            rest=ends[-1] if mark is None and ends else None,
        )

    async def window(self, key: GroupKey, *, limit: int, lease_guid: UUID) -> GroupWindow:
        group = as_bytes(key.group)
        remote = None if key.remote is None else as_bytes(key.remote)
        few, length = FEW * limit, as_bytes(INPUT_BYTES_MAX)
        asked = (group, remote, as_bytes(limit), length)
        rows = await self._rows("window_few", *asked, as_bytes(few))
        has_more = int(rows[0][7] or 0) > few
        if has_more:
            rows = await self._rows("window_many", *asked, as_bytes(LOOKED_AT * limit))
        rows = [row for row in rows if row[0] is not None]
        awaited = [found for row in rows if (found := awaited_of(row[0], row[5], row[6]))]
        with self._in_trouble():
            await self._keeper.plan_first(awaited, lease_guid)
        ids = {row.id for row in awaited}
        waiting = [row for row in rows if int(row[0] or 0) not in ids]
        if key.remote is None:
            inputs = {int(row[0] or 0): row[4] for row in waiting if row[4] is not None}
            self._place.foreseen.note(key, inputs)
        return GroupWindow([_waiting(row) for row in waiting], has_more or len(rows) >= limit)

    # -- changing rows ----------------------------------------------------------------------------

    async def mark_taken(self, task_ids: Sequence[int], *, lease_guid: UUID) -> Sequence[int]:
        with self._in_trouble():
            return await self._keeper.mark_taken(task_ids, lease_guid)

    async def untake(self, task_ids: Sequence[int], *, lease_guid: UUID) -> Sequence[int]:
        with self._in_trouble():
            return await self._keeper.untake(task_ids, lease_guid)

    async def refuse(self, task_id: int, error: str, *, lease_guid: UUID) -> bool:
        with self._in_trouble():
            return await self._keeper.refuse(task_id, error, lease_guid)

    async def expire(self, *, lease_guid: UUID) -> ExpiryResult:
        with self._in_trouble():
            return await self._keeper.expire(lease_guid)

    async def rescue(self, *, lease_guid: UUID, stale: bool = False) -> RescueResult:
        with self._in_trouble():
            return await self._keeper.rescue(lease_guid, stale=stale)

    # -- hints ------------------------------------------------------------------------------------

    async def listen(self, callback: Callable[[], None]) -> None:
        self._callback = callback
        try:
            if not await self._listen_now():
                return
            await asyncio.get_running_loop().create_future()
        finally:
            self._callback = None

    async def _listen_now(self) -> bool:
        """Begin to listen on the connection as it is; the next ones do so when they begin."""
        while True:
            with suppress(Unavailable):
                wire = await self._control.wire()
                channel = await self._rows("listen_channel")
                if not channel:
                    return False
                await self._control.together([(_listen_to(channel[0][0]), NO_PARAMS)])
                wire.on_notify = self._tell
                self._tell()  # what came before is not told
                return True
            await asyncio.sleep(1)

    def _tell(self) -> None:
        if self._callback is not None:
            self._callback()

    async def _on_connect(self, wire: Wire) -> None:
        if self._callback is None:
            return
        (result,) = await wire.pipeline([(self._place.statements["listen_channel"], NO_PARAMS)])
        for row in rows_of(result):
            await wire.pipeline([(_listen_to(row[0]), NO_PARAMS)])
            wire.on_notify = self._tell
        self._tell()  # what came while nobody listened is not told again

    # -- sessions ---------------------------------------------------------------------------------

    async def open(self, key: GroupKey) -> TaskSession:
        if key.remote is not None:
            return RemoteSession(self._place, await reach(self._place, key), key)
        return LocalSession(self._place, await self._spares.take(key.group), key)

    async def _settings(self) -> frozenset[bytes]:
        with self._in_trouble():
            rows = await self._beats.rows(self._place.statements["settings"])
        return frozenset(row[0] for row in rows if row[0] is not None)

    async def close(self) -> None:
        await self._spares.close()
        self._beats.close()
        self._control.close()
        self._place.results.close()

    # -- statements -------------------------------------------------------------------------------

    async def _rows(self, name: str, *params: bytes | None) -> list[list[bytes | None]]:
        (result,) = await self._together([(self._place.statements[name], params)])
        return rows_of(result)

    async def _together(self, steps: Sequence[Step]) -> list[Result]:
        with self._in_trouble():
            return await self._control.together(steps)

    @contextmanager
    def _in_trouble(self) -> Iterator[None]:
        """What the server refuses us is trouble with the table."""
        try:
            yield
        except StatementRefused as exc:
            problem = f"the task table {self.name} is in trouble: {exc.words}"
            raise Unavailable(problem) from None


def _waiting(row: Sequence[bytes | None]) -> DueTask:
    task_id, most, count, live_s = row[:4]
    return DueTask(int(task_id or 0), int(most or 0), int(count or 0), float(live_s or 0))


def _key_of(row: Sequence[bytes | None]) -> GroupKey:
    return GroupKey(text_of(row[0]), None if row[1] is None else text_of(row[1]))


def _listen_to(channel: bytes | None) -> Statement:
    sql = QUERIES["listen"].sql.replace("/*channel*/gnomon_task", text_of(channel))
    return Statement(b"", sql.encode())
