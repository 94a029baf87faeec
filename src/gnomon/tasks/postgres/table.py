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
    TableLock,
    TaskPoll,
    TaskSession,
)
from gnomon.model.errors import Unavailable
from gnomon.model.secret import Secret
from gnomon.model.task import DueTask, GroupKey
from gnomon.model.task.conf import TaskEntry
from gnomon.tasks.postgres.conninfo import read_dsn
from gnomon.tasks.postgres.control import (
    NO_PARAMS,
    ControlConnection,
    Row,
    StatementRefused,
    rows_of,
)
from gnomon.tasks.postgres.group_forecast import INPUT_BYTES_MAX, ForeseenTask
from gnomon.tasks.postgres.queries import QUERIES
from gnomon.tasks.postgres.remote import RemoteSession
from gnomon.tasks.postgres.remote_address import reach
from gnomon.tasks.postgres.row_upkeep import AwaitedRow, RowUpkeep, awaited_of
from gnomon.tasks.postgres.rows import (
    as_bytes,
    is_true,
    moment_of,
    moment_or_none,
    number_of,
    text_of,
    text_or_none,
)
from gnomon.tasks.postgres.schema import DatabaseMaker, TableMaker
from gnomon.tasks.postgres.session import LocalSession
from gnomon.tasks.postgres.spare_sessions import SpareSessions
from gnomon.tasks.postgres.table_access import TableAccess
from gnomon.tasks.postgres.wire import Result, Statement, Step, Wire

FEW = 2  # times the rows that are asked for
LOOKED_AT = 10  # times the rows that are asked for: so many due rows, expired or not
GROUPS_MAX = 1_000  # in one page of a look at everything
NEWS_MAX = 10_000  # rows that one poll looks at
# Columns of a window's rows: version, look and expiry, and what awaits its first time.
SEEN, CRON, PLAN, DUE_COUNT = range(5, 8), 8, 9, 10


class PostgresTaskTable:
    """The contract `TaskTable`, on two connections of its own and one for each session.

    One of the two is for what never waits, beats above all: whatever the other one waits for, the
    lease is kept."""

    def __init__(self, dsn: Secret, entry: TaskEntry, *, env: Env, result_bytes_max: int) -> None:
        self._access = TableAccess(dsn, entry, env=env, result_bytes_max=result_bytes_max)
        self._dsn = dsn
        self._control = ControlConnection(
            self._access.control_options, clock=env.clock, on_connect=self._on_connect
        )
        self._beats = ControlConnection(self._access.control_options)
        self._keeper = RowUpkeep(self._access, self._control)
        self._callback: Callable[[], None] | None = None
        self._spares = SpareSessions(self._access, self._settings)

    @property
    def name(self) -> str:
        entry = self._access.entry
        return f"{entry.data}.{entry.schema}.{entry.table}"

    # -- making it --------------------------------------------------------------------------------

    async def prepare(self) -> Sequence[str]:
        done = list(await DatabaseMaker(self._access, self._login_options()).make())
        return [*done, *await TableMaker(self._access, self._control).make()]

    def _login_options(self) -> dict[str, str]:
        return {**read_dsn(self._dsn.reveal()), "gssencmode": "disable", "client_encoding": "UTF8"}

    # -- owning it --------------------------------------------------------------------------------

    async def lock(self) -> TableLock:
        for row in await self._rows("lock"):
            if row["lease_guid"] is not None:
                return TableLock(
                    lease_guid=UUID(text_of(row["lease_guid"])),
                    owner=text_of(row["owner"]),
                    process=text_or_none(row["process"]),
                    beat=number_of(row["beat"]),
                    silent_for=timedelta(seconds=float(row["silent_s"] or 0)),
                )
            return TableLock(beat=number_of(row["beat"]))
        return TableLock()

    async def acquire(
        self,
        lease_guid: UUID,
        *,
        owner: str,
        seen: TableLock,
        lease_for: timedelta,
        process: str | None = None,
    ) -> bool:
        rows = await self._rows(
            "acquire",
            as_bytes(lease_guid),
            as_bytes(owner),
            None if process is None else as_bytes(process),
            None if seen.lease_guid is None else as_bytes(seen.lease_guid),
            as_bytes(seen.beat),
            as_bytes(lease_for.total_seconds()),
        )
        if not rows:
            return False
        with self._in_trouble():
            await self._keeper.rescue(lease_guid, stale=True, remote=True)
        self._spares.fill(1)
        return True

    async def beat(self, lease_guid: UUID) -> bool:
        with self._in_trouble():
            beat = self._access.statements["beat"]
            return bool(await self._beats.rows(beat, as_bytes(lease_guid)))

    async def release(self, lease_guid: UUID) -> None:
        await self._rows("release", as_bytes(lease_guid))

    # -- finding work -----------------------------------------------------------------------------

    async def poll(self, mark: PollMark | None, *, after: str | None = None) -> TaskPoll:
        known = self._access.statements
        # The mark before the rows: what comes in between is found twice, and never missed.
        steps: list[Step] = [(known["poll_mark"], (self._keeper.floor,))]
        if mark is None:
            page = (None if after is None else as_bytes(after), as_bytes(GROUPS_MAX))
            steps.append((known["poll_all"], page))
        else:
            since = (as_bytes(mark.id), as_bytes(mark.plan.isoformat(" ")), as_bytes(NEWS_MAX))
            steps.append((known["poll_since"], since))
        marks, groups = [rows_of(result) for result in await self._together(steps)]
        (present,) = marks
        now = moment_of(present["now_us"])
        rests = [text_of(row["rest"]) for row in groups if row.get("rest") is not None]
        return TaskPoll(
            now=now,
            groups=frozenset(_key_of(row) for row in groups if row["group"] is not None),
            next_plan=moment_or_none(present["next_plan_us"]),
            next_expiry=moment_or_none(present["next_expiry_us"]),
            mark=PollMark(id=number_of(present["id"]), plan=now),
            is_cut=any(is_true(row.get("is_cut")) for row in groups),
            rest=rests[-1] if rests else None,
        )

    async def window(self, key: GroupKey, *, limit: int, lease_guid: UUID) -> GroupWindow:
        group = as_bytes(key.group)
        remote = None if key.remote is None else as_bytes(key.remote)
        few, length = FEW * limit, as_bytes(INPUT_BYTES_MAX)
        asked = (group, remote, as_bytes(limit), length)
        result = await self._one("window_few", *asked, as_bytes(few))
        has_more = number_of(result.get_value(0, DUE_COUNT)) > few
        if has_more:
            result = await self._one("window_many", *asked, as_bytes(LOOKED_AT * limit))
        window = _Window(result)
        with self._in_trouble():
            await self._keeper.plan_first(window.awaited, lease_guid)
        if key.remote is None:
            self._access.foreseen.note(key, window.foreseen)
        return GroupWindow(window.ready, has_more or window.count >= limit)

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
                channels = await self._rows("listen_channel")
                if not channels:
                    return False
                await self._control.together([(_listen_to(channels[0]), NO_PARAMS)])
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
        (result,) = await wire.pipeline([(self._access.statements["listen_channel"], NO_PARAMS)])
        for row in rows_of(result):
            await wire.pipeline([(_listen_to(row), NO_PARAMS)])
            wire.on_notify = self._tell
        self._tell()  # what came while nobody listened is not told again

    # -- sessions ---------------------------------------------------------------------------------

    async def open(self, key: GroupKey) -> TaskSession:
        if key.remote is not None:
            return RemoteSession(self._access, await reach(self._access, key), key)
        return LocalSession(self._access, await self._spares.take(key.group), key)

    async def _settings(self) -> frozenset[bytes]:
        with self._in_trouble():
            rows = await self._beats.rows(self._access.statements["settings"])
        return frozenset(entry for row in rows if (entry := row["entry"]) is not None)

    async def close(self) -> None:
        await self._spares.close()
        self._beats.close()
        self._control.close()
        self._access.results.close()

    # -- statements -------------------------------------------------------------------------------

    async def _rows(self, name: str, *params: bytes | None) -> list[Row]:
        return rows_of(await self._one(name, *params))

    async def _one(self, name: str, *params: bytes | None) -> Result:
        (result,) = await self._together([(self._access.statements[name], params)])
        return result

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


class _Window:
    """The rows of `window_few` or `window_many`, by their columns' numbers: many at a time, and
    read again and again while a group is worked on."""

    def __init__(self, result: Result) -> None:
        self.ready: list[DueTask] = []
        self.foreseen: dict[int, ForeseenTask] = {}
        self.awaited: list[AwaitedRow] = []
        self.count = 0
        value = result.get_value
        for row in range(result.ntuples):
            task_id, most, count, live_s, text = [value(row, column) for column in range(5)]
            if task_id is None:
                continue
            self.count += 1
            cron = value(row, CRON)
            if cron is not None and (
                waiting := awaited_of({"id": task_id, "cron": cron, "plan_us": value(row, PLAN)})
            ):
                self.awaited.append(waiting)
                continue
            known = int(task_id)
            self.ready.append(DueTask(known, number_of(most), number_of(count), float(live_s or 0)))
            if text:
                rest = [value(row, column) or b"" for column in SEEN]
                self.foreseen[known] = ForeseenTask(text, *rest)


def _key_of(row: Row) -> GroupKey:
    return GroupKey(text_of(row["group"]), text_or_none(row["remote"]))


def _listen_to(row: Row) -> Statement:
    sql = QUERIES["listen"].sql.replace("/*channel*/gnomon_task", text_of(row["channel"]))
    return Statement(b"", sql.encode())
