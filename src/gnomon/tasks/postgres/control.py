"""The connection that an owner looks after its table with. It comes back by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from gnomon.contracts.clock import Clock
from gnomon.model.errors import Unavailable
from gnomon.tasks.postgres.connector import ConnectRefused, connect
from gnomon.tasks.postgres.queries import plain
from gnomon.tasks.postgres.rows import text_of
from gnomon.tasks.postgres.wire import (
    Params,
    Result,
    Statement,
    TransactionStatus,
    Wire,
    WireLost,
    error_fields,
    is_error,
)

# Between BEGIN and COMMIT nothing may be left half done: the statements are one round trip.
BEGIN = plain("begin", prepared=False)
COMMIT = plain("commit", prepared=False)
ROLLBACK = plain("rollback", prepared=False)
DISCARD_PLANS = plain("discard_plans", prepared=False)
PLANS_FOR_S = 5.0
NO_PARAMS: Params = None

Row = Mapping[str, bytes | None]  # by the names of the columns


class StatementRefused(Exception):  # noqa: N818 - an outcome with a name, not a fault
    """The server refused a statement of ours."""

    def __init__(self, sqlstate: str, words: str) -> None:
        super().__init__(words)
        self.sqlstate = sqlstate
        self.words = words


class ControlConnection:
    """One connection, one statement at a time, a new connection after a broken one."""

    def __init__(
        self,
        options: Callable[[], Mapping[str, str]],
        *,
        clock: Clock | None = None,
        on_connect: Callable[[Wire], Awaitable[None]] | None = None,
        wire: Wire | None = None,
    ) -> None:
        self._options = options
        self._on_connect = on_connect
        self._wire = wire
        self._clock = clock
        self._planned_at = 0.0
        self._lock = asyncio.Lock()
        self._is_closed = False

    async def rows(self, statement: Statement, *params: bytes | None) -> list[Row]:
        """The rows of one statement. Errors: Unavailable, StatementRefused."""
        return rows_of((await self.together([(statement, params)]))[0])

    async def together(self, steps: Sequence[tuple[Statement, Params]]) -> list[Result]:
        """Statements of one transaction. Errors: Unavailable, StatementRefused: then nothing
        was done."""
        async with self._lock:
            wire = await self._connected()
            try:
                if self._is_time_to_plan():
                    await wire.pipeline([(DISCARD_PLANS, NO_PARAMS)])
                results = await wire.pipeline(steps)
                if wire.transaction != TransactionStatus.IDLE:
                    await wire.pipeline([(ROLLBACK, NO_PARAMS)])
                wire.take_notifies()
            except WireLost as exc:
                raise Unavailable(f"the connection to the task table broke: {exc}") from None
            except BaseException:
                # Cancelled within a round trip: what comes back would be taken for another's.
                self._drop()
                raise
        for result in results:
            if is_error(result):
                fields = error_fields(result)
                raise StatementRefused(fields.sqlstate, fields.message)
        return results

    def _is_time_to_plan(self) -> bool:
        """A plan that was made for a small table is a bad one when it has grown."""
        if self._clock is None or self._clock.monotonic() - self._planned_at < PLANS_FOR_S:
            return False
        self._planned_at = self._clock.monotonic()
        return True

    async def simple(self, text: str) -> None:
        """Statements without parameters, each for itself. Errors: Unavailable,
        StatementRefused."""
        await self.together([(Statement(b"", text.encode()), NO_PARAMS)])

    async def wire(self) -> Wire:
        """The connection as it is now. Errors: Unavailable."""
        async with self._lock:
            return await self._connected()

    async def _connected(self) -> Wire:
        if self._wire is not None and self._wire.is_open:
            return self._wire
        if self._is_closed:
            raise Unavailable("the task table was closed")
        self._drop()
        try:
            self._wire = await connect(self._options())
        except ConnectRefused as exc:
            raise Unavailable(f"no connection to the task table: {exc.detail}") from None
        if self._on_connect is not None:
            try:
                await self._on_connect(self._wire)
            except WireLost as exc:
                raise Unavailable(f"the connection to the task table broke: {exc}") from None
        return self._wire

    def _drop(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def close(self) -> None:
        """End it for good."""
        self._is_closed = True
        self._drop()


def rows_of(result: Result) -> list[Row]:
    """All rows of a small result."""
    columns = range(result.nfields)
    names = [text_of(result.fname(column)) for column in columns]
    return [
        dict(zip(names, [result.get_value(row, column) for column in columns], strict=True))
        for row in range(result.ntuples)
    ]
