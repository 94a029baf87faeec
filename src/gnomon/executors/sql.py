"""SQL statements as effects, on databases that the operator has named.

Each attempt has a connection of its own, with the target's login, which is closed afterwards:
nothing that a statement sets, locks or listens to outlives it. Only the extended protocol is used:
it takes one statement, so that none can end our transaction and begin another. What could do that
all the same is found by comparing the transaction and the role before and after.

In the installation's own database the statement is committed together with the note that this
occurrence's effect is done; elsewhere an inbox table in the same transaction does the same. Files
of SQLite are performed by `_sqlite`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gnomon.contracts.clock import Clock
from gnomon.contracts.executor import AttemptRequest
from gnomon.contracts.observer import Observer, SilentObserver
from gnomon.executors._sql_attempt import SqlAttempt
from gnomon.executors._sql_target import SqlTarget, check_own
from gnomon.executors._sqlite import SqliteStatement, SqliteTargets
from gnomon.executors._target import no_target, serves_target
from gnomon.extras import require
from gnomon.model.attempt_boundary import AttemptBoundary
from gnomon.model.outcome import Failed, Outcome
from gnomon.model.spec import Sql

if TYPE_CHECKING:
    from gnomon.executors._sql_postgres import PostgresStatements

__all__ = ["SqlExecutor", "SqlTarget", "check_own"]


class SqlExecutor:
    """Performs statements."""

    def __init__(
        self,
        targets: Mapping[str, SqlTarget],
        *,
        clock: Clock,
        observer: Observer | None = None,
        database_url: str = "",
        schema: str = "gnomon",
        is_bounded: bool = False,
    ) -> None:
        """`is_bounded`: SQLite's memory in this process is, for good, if there are such targets."""
        self._targets = targets
        self._observer = observer or SilentObserver()
        self._turns = {
            name: asyncio.Semaphore(target.in_flight_max) for name, target in targets.items()
        }
        for target in targets.values():
            check_own(target, database_url)
        self._postgres = _postgres_of(targets, schema=schema, observer=self._observer)
        files = [target for target in targets.values() if target.is_sqlite]
        self._files = SqliteTargets(
            files, clock=clock, database_url=database_url, is_bounded=is_bounded
        )

    def __repr__(self) -> str:
        return f"SqlExecutor({', '.join(sorted(self._targets))})"

    def serves(self, need: str) -> bool:
        return serves_target("sql", self._targets, need)

    async def execute(self, order: AttemptRequest) -> Outcome:
        effect = order.effect
        assert isinstance(effect, Sql)
        target = self._targets.get(effect.target)
        if target is None:
            return no_target("sql", effect.target)
        attempt = SqlAttempt(order, effect, target)
        with AttemptBoundary(Exception) as boundary:
            # Ahead of the worker's own limit: only here it is known whether a commit was under way.
            within_s = max(order.timeout_s - 0.5, order.timeout_s * 0.9)
            if target.is_sqlite:
                return await self._perform_on_file(attempt, within_s)
            async with asyncio.timeout(within_s), self._turns[target.name]:
                return await self._perform(attempt)
        error = boundary.failure
        if isinstance(error, TimeoutError):
            return attempt.ended(Failed(error=f"timed out after {order.timeout_s:g} s"))
        attempt.tell(self._observer, "the statement could not be sent", type(error).__name__)
        return attempt.ended(Failed(error="the statement could not be sent", retryable=False))

    async def close(self) -> None:
        self._files.close()
        if self._postgres is not None:
            await self._postgres.close()

    async def _perform_on_file(self, attempt: SqlAttempt, within_s: float) -> Outcome:
        effect, order = attempt.effect, attempt.order
        if effect.autocommit:
            return Failed(error="autocommit is for PostgreSQL", retryable=False)
        statement = SqliteStatement(
            attempt.target, effect.statement, effect.parameters, order.key, within_s
        )
        return await self._files.perform(statement)

    async def _perform(self, attempt: SqlAttempt) -> Outcome:
        assert self._postgres is not None, "a target of PostgreSQL is there"
        return await self._postgres.perform(attempt)


def _postgres_of(
    targets: Mapping[str, SqlTarget], *, schema: str, observer: Observer
) -> PostgresStatements | None:
    """Errors: MissingExtra. None where all targets are files: they need no driver."""
    if all(target.is_sqlite for target in targets.values()):
        return None
    require("postgres")
    from gnomon.executors._sql_postgres import PostgresStatements

    return PostgresStatements(schema=schema, observer=observer)
