"""How far running attempts are, in PostgreSQL."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import attrgetter
from uuid import UUID

from gnomon.contracts.store import Progress
from gnomon.stores.postgres.connection import Database

_SHARD = attrgetter("shard")


class PostgresProgress:
    """The `ProgressStore` of this engine."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def report(self, reports: Sequence[Progress]) -> Collection[UUID]:
        running: set[UUID] = set()
        for chosen, only in self._database.split(reports, _SHARD):
            rows = await self._database.fetch(
                "report",
                *_columns(chosen, "shard", "id", "guid", "attempt_id", "fraction", "text"),
                *only,
            )
            running.update(row["attempt_id"] for row in rows)
        return running

    async def forget_reports(self, reports: Sequence[Progress]) -> None:
        for chosen, only in self._database.split(reports, _SHARD):
            columns = _columns(chosen, "shard", "id", "attempt_id")
            await self._database.fetch("forget_reports", *columns, *only)


def _columns(reports: Sequence[Progress], *names: str) -> list[list[object]]:
    return [[getattr(one, name) for one in reports] for name in names]
