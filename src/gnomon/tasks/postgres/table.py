"""A task table in a PostgreSQL database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from uuid import UUID

from gnomon.contracts.env import Env
from gnomon.contracts.task_table import Mark, Polled, Rescued, TaskSession
from gnomon.model.errors import Unavailable
from gnomon.model.secret import Secret
from gnomon.model.task import GroupKey, Waiting
from gnomon.model.task.conf import TaskEntry
from gnomon.tasks.postgres.connecting import ConnectRefused, connect
from gnomon.tasks.postgres.control import NO_PARAMS, Control, Refused, rows_of
from gnomon.tasks.postgres.foreseen import INPUT_BYTES_MAX
from gnomon.tasks.postgres.place import FALSE, TRUE, Place, next_cron_of, parsed, warm
from gnomon.tasks.postgres.queries import QUERIES
from gnomon.tasks.postgres.reaching import reach
from gnomon.tasks.postgres.remote import RemoteSession
from gnomon.tasks.postgres.rows import (
    array_of,
    as_bytes,
    moment_of,
    moment_or_none,
    text_of,
)
from gnomon.tasks.postgres.schema import Founder, Maker
from gnomon.tasks.postgres.session import LocalSession
from gnomon.tasks.postgres.wire import Result, Statement, Step, Wire, WireLost

FEW = 2  # times the rows that are asked for


class PostgresTaskTable:
    """The contract `TaskTable`, on one connection of its own and one for each session."""

    def __init__(self, dsn: Secret, entry: TaskEntry, *, env: Env, result_bytes_max: int) -> None:
        self._place = Place(dsn, entry, env=env, result_bytes_max=result_bytes_max)
        self._dsn = dsn
        self._entropy = env.entropy
        self._control = Control(
            self._place.control_options, clock=env.clock, on_connect=self._on_connect
        )
        self._callback: Callable[[], None] | None = None
        self._spare: asyncio.Task[Wire] | None = None

    @property
    def name(self) -> str:
        entry = self._place.entry
        return f"{entry.data}.{entry.schema}.{entry.table}"

    # -- making it --------------------------------------------------------------------------------

    async def prepare(self) -> Sequence[str]:
        done = list(await Founder(self._place, self._login_options()).found())
        return [*done, *await Maker(self._place, self._control).make()]

    def _login_options(self) -> dict[str, str]:
        return {**parsed(self._dsn.reveal()), "gssencmode": "disable", "client_encoding": "UTF8"}

    # -- owning it --------------------------------------------------------------------------------

    async def acquire(self, owner: str, *, lease: timedelta) -> UUID | None:
        lease_guid = self._entropy.token()
        seconds = as_bytes(lease.total_seconds())
        rows = await self._rows("acquire", as_bytes(lease_guid), as_bytes(owner), seconds)
        if not rows:
            return None
        await self._rows("rescue", as_bytes(lease_guid), TRUE, TRUE)
        self._make_spare()
        return lease_guid

    async def beat(self, lease_guid: UUID) -> bool:
        return bool(await self._rows("beat", as_bytes(lease_guid)))

    async def release(self, lease_guid: UUID) -> None:
        await self._rows("release", as_bytes(lease_guid))

    # -- finding work -----------------------------------------------------------------------------

    async def poll(self, mark: Mark | None) -> Polled:
        known = self._place.statements
        # The mark before the rows: what comes in between is found twice, and never missed.
        steps: list[Step] = [(known["poll_mark"], NO_PARAMS)]
        if mark is None:
            steps.append((known["poll_all"], NO_PARAMS))
        else:
            since = (as_bytes(mark.id), as_bytes(mark.plan.isoformat(" ")))
            steps.append((known["poll_since"], since))
        marks, groups = [rows_of(result) for result in await self._together(steps)]
        now = moment_of(marks[0][0])
        expiries = [moment_of(row[2]) for row in groups if row[2] is not None]
        return Polled(
            now=now,
            groups=frozenset(_key_of(row) for row in groups),
            next_plan=moment_or_none(marks[0][2]),
            next_expiry=min(expiries, default=None),
            mark=Mark(id=int(marks[0][1] or 0), plan=now),
        )

    async def window(self, key: GroupKey, *, limit: int) -> Sequence[Waiting]:
        group = as_bytes(key.group)
        remote = None if key.remote is None else as_bytes(key.remote)
        few, length = as_bytes(FEW * limit), as_bytes(INPUT_BYTES_MAX)
        rows = await self._rows("window_few", group, remote, as_bytes(limit), length, few)
        if rows and int(rows[0][5] or 0) > FEW * limit:
            rows = await self._rows("window_many", group, remote, as_bytes(limit), length)
        if key.remote is None:
            inputs = {int(row[0] or 0): row[4] for row in rows if row[4] is not None}
            self._place.foreseen.note(key, inputs)
        return [
            Waiting(int(row[0] or 0), int(row[1] or 0), int(row[2] or 0), float(row[3] or 0))
            for row in rows
        ]

    async def mark_taken(self, task_ids: Sequence[int], *, lease_guid: UUID) -> Sequence[int]:
        rows = await self._rows("mark_taken", array_of(list(task_ids)), as_bytes(lease_guid))
        return [int(row[0] or 0) for row in rows]

    async def untake(self, task_ids: Sequence[int], *, lease_guid: UUID) -> None:
        await self._rows("untake", array_of(list(task_ids)), as_bytes(lease_guid))

    async def refuse(self, task_id: int, error: str, *, lease_guid: UUID) -> None:
        following: bytes | None = None
        for cron, after in await self._rows("cron_of", as_bytes(task_id)):
            following = None if cron is None else next_cron_of(text_of(cron), moment_of(after))
        params = (as_bytes(task_id), as_bytes(error), as_bytes(lease_guid), following)
        await self._rows("refuse", *params)

    async def expire(self, *, lease_guid: UUID) -> int:
        rows = await self._rows("expire", as_bytes(lease_guid))
        for row in rows:
            if row[1] is not None:
                following = next_cron_of(text_of(row[1]), moment_of(row[2]))
                await self._rows("again_by_cron", row[0], following)
        return len(rows)

    async def rescue(self, *, lease_guid: UUID, stale: bool = False) -> Rescued:
        known = self._place.statements
        rescue = (as_bytes(lease_guid), TRUE if stale else FALSE, FALSE)
        rescued, others = await self._together(
            [(known["rescue"], rescue), (known["others"], (array_of(self._place.pids),))]
        )
        groups = {GroupKey(text_of(row[0])): int(row[1] or 0) for row in rows_of(others)}
        return Rescued(rescued.ntuples, groups)

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
        wire = await self._take_spare()
        if wire is None:
            wire = await self._connect(key.group)
        self._make_spare()
        return LocalSession(self._place, wire, key)

    async def _connect(self, group: str | None) -> Wire:
        try:
            return await connect(self._place.session_options(group))
        except ConnectRefused as exc:
            raise Unavailable(f"no session for a task: {exc.detail}") from None

    async def _take_spare(self) -> Wire | None:
        spare, self._spare = self._spare, None
        if spare is None:
            return None
        with suppress(Unavailable):
            wire = await spare
            if wire.is_open:
                return wire
            wire.close()
        return None

    def _make_spare(self) -> None:
        """A connection in reserve: a task that comes alone does not wait for one."""
        if self._spare is None:
            self._spare = asyncio.get_running_loop().create_task(self._connect_spare())
            self._spare.add_done_callback(_retrieve)

    async def _connect_spare(self) -> Wire:
        wire = await self._connect(None)
        try:
            await warm(wire, self._place.statements)
        except WireLost as exc:
            wire.close()
            raise Unavailable(f"no session for a task: {exc}") from None
        return wire

    async def close(self) -> None:
        spare, self._spare = self._spare, None
        if spare is not None:
            spare.cancel()
            with suppress(Unavailable, asyncio.CancelledError):
                (await spare).close()
        self._control.close()
        self._place.results.close()

    # -- statements -------------------------------------------------------------------------------

    async def _rows(self, name: str, *params: bytes | None) -> list[list[bytes | None]]:
        (result,) = await self._together([(self._place.statements[name], params)])
        return rows_of(result)

    async def _together(self, steps: Sequence[Step]) -> list[Result]:
        try:
            return await self._control.together(steps)
        except Refused as exc:
            raise self._trouble(exc) from None

    def _trouble(self, refused: Refused) -> Unavailable:
        return Unavailable(f"the task table {self.name} is in trouble: {refused.words}")


def _key_of(row: Sequence[bytes | None]) -> GroupKey:
    return GroupKey(text_of(row[0]), None if row[1] is None else text_of(row[1]))


def _listen_to(channel: bytes | None) -> Statement:
    sql = QUERIES["listen"].sql.replace("/*channel*/gnomon_task", text_of(channel))
    return Statement(b"", sql.encode())


def _retrieve(spare: asyncio.Task[Wire]) -> None:
    """A spare that could not be had is nobody's trouble: the next session says what is wrong."""
    if not spare.cancelled():
        spare.exception()
