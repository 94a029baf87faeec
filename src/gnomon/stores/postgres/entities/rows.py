"""Records to values, by position: the select lists in `queries/` keep these orders."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gnomon.contracts.store.entities import ChangeNote, Entity, StageState
from gnomon.contracts.store.outbox import OutboxRow
from gnomon.contracts.store.queues import QueueRow, RowStatus, StageLane
from gnomon.stores.postgres.connection import Row

_TEXTS = msgspec.json.Decoder(tuple[str, ...])
_ENCODER = msgspec.json.Encoder()
_LANES = tuple(StageLane)
_STATUSES = {str(status): status for status in RowStatus}


def texts_of(text: str) -> tuple[str, ...]:
    """Out of a JSON array."""
    return _TEXTS.decode(text)


def text_of(texts: Sequence[str]) -> str:
    return _ENCODER.encode(texts).decode()


def entity_of(row: Row, at: int = 0) -> Entity:
    return Entity(
        id=row[at], shard=row[at + 1], epoch=row[at + 2], version=row[at + 3], doc=row[at + 4],
        changed_at=row[at + 5],
    )  # fmt: skip


def state_of(row: Row, at: int = 0) -> StageState | None:
    """None where the outer join found nothing."""
    if row[at] is None:
        return None
    return StageState(
        version=row[at], revision=row[at + 1], type=row[at + 2], body=bytes(row[at + 3])
    )


def queue_row_of(row: Row, at: int = 0) -> QueueRow:
    return QueueRow(
        entity_id=row[at], stage=row[at + 1], lane=_LANES[row[at + 2]],
        status=_STATUSES[row[at + 3]], ready_at=row[at + 4], timer_at=row[at + 5],
        first_at=row[at + 6], seq=row[at + 7], attempts=row[at + 8], reasons=tuple(row[at + 9]),
        root=row[at + 10], depth=row[at + 11], error=row[at + 12], note=row[at + 13],
    )  # fmt: skip


def note_of(row: Row) -> ChangeNote:
    version, paths, author, root, depth, at = row
    return ChangeNote(
        version=version, paths=texts_of(paths), author=author, root=root, depth=depth, at=at
    )


# -- many in one record: an array for each column, NULL if there is none ---------------------------


def notes_of(row: Row, at: int) -> tuple[ChangeNote, ...]:
    if row[at] is None:
        return ()
    columns = (row[place] for place in range(at, at + 6))
    return tuple(note_of(note) for note in zip(*columns, strict=True))


def states_of(row: Row, at: int) -> dict[str, StageState]:
    if row[at] is None:
        return {}
    columns = (row[place] for place in range(at, at + 5))
    return {
        stage: StageState(version=version, revision=revision, type=kind, body=bytes(body))
        for stage, version, revision, kind, body in zip(*columns, strict=True)
    }


def queue_rows_of(row: Row, at: int, entity_id: str) -> dict[str, QueueRow]:
    if row[at] is None:
        return {}
    columns = (row[place] for place in range(at, at + 13))
    found = {}
    for stage, *rest in zip(*columns, strict=True):
        rest[7] = texts_of(rest[7])
        found[stage] = queue_row_of((entity_id, stage, *rest))
    return found


def outgoing_of(row: Row) -> OutboxRow:
    return OutboxRow(
        shard=row[0], n=row[1], sink=row[2], entity_id=row[3], epoch=row[4], version=row[5],
        author=row[6], paths=texts_of(row[7]), doc=row[8], state=state_of(row, 9), key=row[13],
        attempts=row[14], at=row[15], root=row[16],
    )  # fmt: skip
