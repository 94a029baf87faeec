"""Records to values, by the names of the columns in `queries/`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gnomon.contracts.store.entities import ChangeNote, Entity, StageState
from gnomon.contracts.store.outbox import OutboxRow
from gnomon.contracts.store.queues import QueueRow, RowStatus, StageLane
from gnomon.model.stage.paths import WHOLE
from gnomon.stores._texts import read_texts
from gnomon.stores.postgres.connection import Row

_LANES = tuple(StageLane)
_STATUSES = {str(status): status for status in RowStatus}
# The columns of what is many in one record.
_NOTES = ("note_versions", "note_paths", "note_authors", "note_roots", "note_depths", "note_ats")
_STATES = ("state_stages", "state_versions", "state_revisions", "state_types", "state_bodies")
_ROWS = (
    "row_stages", "row_lanes", "row_statuses", "row_ready_ats", "row_timer_ats", "row_first_ats",
    "row_seqs", "row_attempts", "row_reasons", "row_roots", "row_depths", "row_errors", "row_notes",
)  # fmt: skip


def entity_of(row: Row) -> Entity:
    return Entity(
        key=row["entity_key"], shard=row["shard_id"], epoch=row["epoch"], version=row["version"],
        doc=row["doc"], changed_at=row["changed_at"],
    )  # fmt: skip


def state_of(row: Row) -> StageState | None:
    """None where there is none."""
    if row["state_version"] is None:
        return None
    return StageState(
        version=row["state_version"], revision=row["state_revision"], type=row["state_type"],
        body=bytes(row["state_body"]),
    )  # fmt: skip


def queue_row_of(row: Row) -> QueueRow:
    return QueueRow(
        entity_key=row["entity_key"], stage=row["stage"], lane=_LANES[row["lane"]],
        status=_STATUSES[row["status"]], ready_at=row["ready_at"], timer_at=row["timer_at"],
        first_at=row["first_at"], seq=row["seq"], attempts=row["attempts"],
        reasons=tuple(row["reasons"]), root=row["root"], depth=row["depth"], error=row["error"],
        note=row["note"],
    )  # fmt: skip


def note_of(row: Row) -> ChangeNote:
    version, paths, author, root, depth, at = row
    return ChangeNote(
        version=version,
        paths=read_texts(paths, unreadable=(WHOLE,)),
        author=author,
        root=root,
        depth=depth,
        at=at,
    )


def outgoing_of(row: Row) -> OutboxRow:
    return OutboxRow(
        shard=row["shard_id"], n=row["n"], sink=row["sink"], entity_key=row["entity_key"],
        epoch=row["epoch"], version=row["version"], author=row["author"], root=row["root"],
        paths=read_texts(row["paths"], unreadable=(WHOLE,)), doc=row["doc"], state=state_of(row),
        key=row["key"],
        attempts=row["attempts"], at=row["at"],
    )  # fmt: skip


# -- many in one record: an array for each column, NULL if there is none ---------------------------


def notes_of(row: Row) -> tuple[ChangeNote, ...]:
    return tuple(note_of(note) for note in _unzipped(row, _NOTES))


def states_of(row: Row) -> dict[str, StageState]:
    return {
        stage: StageState(version=version, revision=revision, type=type_, body=bytes(body))
        for stage, version, revision, type_, body in _unzipped(row, _STATES)
    }


def queue_rows_of(row: Row) -> dict[str, QueueRow]:
    return {
        stage: QueueRow(
            entity_key=row["entity_key"], stage=stage, lane=_LANES[lane], status=_STATUSES[status],
            ready_at=ready_at, timer_at=timer_at, first_at=first_at, seq=seq, attempts=attempts,
            reasons=read_texts(reasons), root=root, depth=depth, error=error, note=note,
        )
        for (
            stage, lane, status, ready_at, timer_at, first_at, seq, attempts, reasons, root, depth,
            error, note,
        ) in _unzipped(row, _ROWS)
    }  # fmt: skip


def _unzipped(row: Row, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    if row[columns[0]] is None:
        return iter(())
    return zip(*(row[column] for column in columns), strict=True)
