"""The history of attempts in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from gnomon.contracts.store import HistoryRow
from gnomon.stores._history import (
    OF_WORKER,
    CountedRow,
    Thinning,
    put_together,
    read_counts,
    span_shown,
    thinnings,
    write_counts,
)
from gnomon.stores.postgres.connection import Database, PoolSession, Row


class PostgresHistory:
    """The part of the `ReportStore` that keeps the history."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def record_minute(self, worker: UUID, rows: Sequence[HistoryRow]) -> None:
        await self._database.fetch(
            "record_minute",
            worker,
            [row.at for row in rows],
            [OF_WORKER] * len(rows),
            [row.queue for row in rows],
            [write_counts(row.counts) for row in rows],
        )

    async def list_history(
        self, queue: str, *, since: datetime, until: datetime, limit: int
    ) -> Sequence[HistoryRow]:
        return [
            HistoryRow(
                at=row["at"],
                queue=row["queue"],
                counts=read_counts(row["counts"]),
                span=span_shown(row["span"]),
            )
            for row in await self._database.fetch("list_history", queue, since, until, limit)
        ]

    async def thin_history(self, worker: UUID, *, limit: int) -> int:
        gone = 0
        for thinning in thinnings():
            async with self._database.transaction("thin_history") as session:
                gone += await _thin(session, worker, thinning, limit)
        return gone


async def _thin(session: PoolSession, worker: UUID, thinning: Thinning, limit: int) -> int:
    """What was taken is added to the rows of who took it: nobody else changes those."""
    taken = await session.fetch("thin_history_take", thinning.span, thinning.older_than, limit)
    if not taken or thinning.into is None:
        return len(taken)
    sums = put_together(map(_counted, taken), into=thinning.into)
    places = [row.queue for row in sums], [row.at for row in sums]
    own = await session.fetch("thin_history_own", worker, thinning.into, *places)
    sums = put_together([*sums, *map(_counted, own)], into=thinning.into)
    await session.fetch(
        "record_minute",
        worker,
        [row.at for row in sums],
        [thinning.into] * len(sums),
        [row.queue for row in sums],
        [write_counts(row.counts) for row in sums],
    )
    return len(taken)


def _counted(row: Row) -> CountedRow:
    return CountedRow(row["queue"], row["at"], read_counts(row["counts"]))
