"""The history of attempts in SQLite."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
from gnomon.stores.sqlite.queries import SQL, fetch, fetch_one
from gnomon.stores.sqlite.rows import micros, moment
from gnomon.stores.sqlite.verbs import Connection, SqliteVerbs, read, write


class SqliteHistory(SqliteVerbs):
    """The part of the `ReportStore` that keeps the history."""

    @write
    def record_minute(
        self, connection: Connection, worker: UUID, rows: Sequence[HistoryRow]
    ) -> None:
        counted = (CountedRow(row.queue, row.at, list(row.counts)) for row in rows)
        _put(connection, worker, OF_WORKER, counted)

    @read
    def list_history(
        self, connection: Connection, queue: str, *, since: datetime, until: datetime, limit: int
    ) -> Sequence[HistoryRow]:
        bounds = {"queue": queue, "since": micros(since), "until": micros(until), "limit": limit}
        return [
            HistoryRow(
                at=moment(row["at"]),
                queue=row["queue"],
                counts=read_counts(row["counts"]),
                span=span_shown(row["span"]),
            )
            for row in fetch(connection, "list_history", bounds)
        ]

    @write
    def thin_history(self, connection: Connection, worker: UUID, *, limit: int) -> int:
        now = self._clock.now()
        return sum(_thin(connection, worker, step, now, limit) for step in thinnings())


def _thin(
    connection: Connection, worker: UUID, thinning: Thinning, now: datetime, limit: int
) -> int:
    bounds = {"span": thinning.span, "before": micros(now - thinning.older_than), "limit": limit}
    rows = fetch(connection, "thin_history_take", bounds)
    connection.executemany(SQL["thin_history_remove"], map(dict, rows))
    if not rows or thinning.into is None:
        return len(rows)
    taken = [
        CountedRow(row["queue"], moment(row["at"]), read_counts(row["counts"])) for row in rows
    ]
    sums = put_together(taken, into=thinning.into)
    own = [_own(connection, worker, thinning.into, row) for row in sums]
    sums = put_together([*sums, *own], into=thinning.into)
    _put(connection, worker, thinning.into, sums)
    return len(rows)


def _own(connection: Connection, worker: UUID, span: int, like: CountedRow) -> CountedRow:
    place = {"queue": like.queue, "at": micros(like.at), "span": span, "worker": worker.bytes}
    row = fetch_one(connection, "thin_history_own", place)
    return like._replace(counts=[] if row is None else read_counts(row["counts"]))


def _put(connection: Connection, worker: UUID, span: int, rows: Iterable[CountedRow]) -> None:
    written = [
        {
            "queue": row.queue,
            "at": micros(row.at),
            "span": span,
            "worker": worker.bytes,
            "counts": write_counts(row.counts),
        }
        for row in rows
    ]
    connection.executemany(SQL["record_minute"], written)
