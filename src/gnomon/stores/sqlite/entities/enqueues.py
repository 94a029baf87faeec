"""Offers to the queues of stages: `model.stage.merging` on the rows of this engine."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from gnomon.contracts.store.queues import Enqueue, StageLane
from gnomon.model.stage import queue_merge
from gnomon.model.stage.queue_merge import READY, SLEEPING, EnqueueRule, QueuedEntity
from gnomon.stores._texts import read_texts, write_texts
from gnomon.stores.sqlite.entities.rows import (
    Connection,
    StoredRow,
    read_rows,
)
from gnomon.stores.sqlite.queries import SQL
from gnomon.stores.sqlite.rows import duration_us, micros_or_none


def enqueued(
    row: StoredRow | None, enqueue: Enqueue, *, shard: int, entity_key: str, now_us: int, seq: int
) -> StoredRow | None:
    """What an enqueue makes of a row, or of none: then `seq` is the new one's."""
    if row is not None:
        return merged(row, enqueue, now_us)
    new = queue_merge.made(wanted_of(enqueue), now_us, seq)
    return None if new is None else _stored((entity_key, enqueue.stage, shard), new, note=None)


def fresh_row(enqueue: Enqueue, shard: int, entity_key: str, now_us: int, seq: int) -> StoredRow:
    """The same where there is no row and the enqueue is one `is_at_once`: `queue_merge.made` says
    so, and costs more than the row."""
    return StoredRow(
        entity_key, enqueue.stage, shard, int(enqueue.lane), READY, now_us, None, now_us, seq, 0,
        write_texts((enqueue.reason,)), enqueue.root, enqueue.depth, None, None,
    )  # fmt: skip


def merged(row: StoredRow, enqueue: Enqueue, now_us: int) -> StoredRow:
    """What an enqueue makes of a row that is there."""
    was = QueuedEntity(*row[3:10], read_texts(row.reasons), row.root, row.depth, row.error)
    return _stored(row.key(), queue_merge.merged(was, wanted_of(enqueue), now_us), note=row.note)


def wanted_of(enqueue: Enqueue) -> EnqueueRule:
    return EnqueueRule(
        reason=enqueue.reason,
        root=enqueue.root,
        depth=enqueue.depth,
        ready=enqueue.ready,
        lane=enqueue.lane,
        wake=micros_or_none(enqueue.wake),
        delay=duration_us(max(enqueue.delay, enqueue.debounce)),
        debounce=duration_us(enqueue.debounce),
        frees=enqueue.frees,
        looping=enqueue.looping,
    )


def _stored(key: tuple[Any, ...], row: QueuedEntity, *, note: str | None) -> StoredRow:
    reasons = write_texts(row.reasons)
    return StoredRow._make((*key, *row[:7], reasons, row.root, row.depth, row.error, note))


def asleep(row: StoredRow) -> StoredRow:
    """A row of which nothing is left but its timer."""
    return row._replace(status=SLEEPING, ready_at=None, attempts=0, reasons="[]", error=None)


def freeing(stage: str, reason: str, root: UUID, lane: StageLane) -> Enqueue:
    """What frees a parked row without anybody having been asked."""
    return Enqueue(stage=stage, reason=reason, root=root, lane=lane, frees=True)


# -- rows -----------------------------------------------------------------------------------------


def load_row(connection: Connection, shard: int, entity_key: str, stage: str) -> StoredRow | None:
    wanted = {"shard": shard, "entity_key": entity_key, "stage": stage}
    rows = read_rows(connection, "rows_of_stage", wanted)
    return rows[0] if rows else None


def replace_row(connection: Connection, before: StoredRow | None, after: StoredRow | None) -> None:
    """Write what became of a row: it may be new, changed, gone, or as it was."""
    if before is None and after is not None:
        connection.execute(SQL["row_insert"], after.values())
    elif before is not None and after is None:
        connection.execute(SQL["row_remove"], before.key())
    elif after is not None and after != before:
        connection.execute(SQL["row_update"], after.values_and_key())
