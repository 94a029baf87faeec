"""Offers to the queues of stages: the rule by which they are merged into what waits."""

from __future__ import annotations

from uuid import UUID

from gnomon.contracts.store.entities import (
    BACKOFF_FLOOR,
    REASONS_MAX,
    SETTLES_MAX,
    Offer,
    RowStatus,
    StageLane,
)
from gnomon.stores.sqlite.entities.rows import (
    Connection,
    StoredRow,
    decode_texts,
    encode_texts,
    read_rows,
)
from gnomon.stores.sqlite.queries import SQL
from gnomon.stores.sqlite.rows import duration_us, micros_or_none

BACKOFF_FLOOR_US = duration_us(BACKOFF_FLOOR)
READY, SLEEPING, LOOPING = str(RowStatus.READY), str(RowStatus.SLEEPING), str(RowStatus.LOOPING)


def offered(
    row: StoredRow | None, offer: Offer, *, shard: int, entity_id: str, now_us: int, seq: int
) -> StoredRow | None:
    """What an offer makes of a row, or of none: then `seq` is the new one's."""
    if row is not None:
        return merged(row, offer, now_us)
    if not offer.ready and offer.looping is None and offer.wake is None:
        return None
    status = LOOPING if offer.looping is not None else READY if offer.ready else SLEEPING
    return StoredRow(
        entity_id=entity_id,
        stage=offer.stage,
        shard_id=shard,
        lane=offer.lane,
        status=status,
        ready_at=_offered_at(offer, now_us) if status == READY else None,
        timer_at=micros_or_none(offer.wake),
        first_at=now_us,
        seq=seq,
        attempts=0,
        reasons="[]" if status == SLEEPING else encode_texts((offer.reason,)),
        root=offer.root,
        depth=offer.depth,
        error=offer.looping,
        note=None,
    )


def merged(row: StoredRow, offer: Offer, now_us: int) -> StoredRow:
    """What an offer makes of a row that is there."""
    row = row._replace(timer_at=earlier(row.timer_at, micros_or_none(offer.wake)))
    if offer.looping is not None:
        return row if row.status == READY else _looping(row, offer)
    if not offer.ready:
        return row
    match row.status:
        case RowStatus.READY:
            return _joined(row, offer, now_us)
        case RowStatus.SLEEPING:
            return _readied(row, offer, now_us)
        case _:
            return _readied(row, offer, now_us) if _is_freed(row, offer) else row


def _is_freed(row: StoredRow, offer: Offer) -> bool:
    """What stages cause does not free what loops: it may be the loop itself."""
    return offer.frees and (row.status != LOOPING or offer.depth == 0)


def _joined(row: StoredRow, offer: Offer, now_us: int) -> StoredRow:
    """It waits already, and waits on for one reason more."""
    assert row.ready_at is not None
    offered_at = _offered_at(offer, now_us)
    if row.attempts:
        offered_at = max(offered_at, now_us + BACKOFF_FLOOR_US)
    ready_at = min(row.ready_at, offered_at)
    if row.ready_at > now_us:
        ready_at = max(ready_at, _settled_at(row, offer, now_us))
    if offer.lane < row.lane:
        ready_at = max(ready_at, now_us)
    return row._replace(
        lane=min(row.lane, offer.lane),
        ready_at=ready_at,
        seq=row.seq + 1,
        reasons=_join_reason(row.reasons, offer.reason),
        root=offer.root,
        depth=offer.depth,
    )


def _offered_at(offer: Offer, now_us: int) -> int:
    return now_us + duration_us(max(offer.delay, offer.settle))


def _settled_at(row: StoredRow, offer: Offer, now_us: int) -> int:
    """When it has been quiet long enough, or has waited for that long enough."""
    settle_us = duration_us(offer.settle)
    return min(now_us + settle_us, row.first_at + SETTLES_MAX * settle_us)


def _readied(row: StoredRow, offer: Offer, now_us: int) -> StoredRow:
    """It slept or was parked, and is ready as if new."""
    return row._replace(
        status=READY,
        lane=offer.lane,
        ready_at=_offered_at(offer, now_us),
        first_at=now_us,
        seq=row.seq + 1,
        attempts=0,
        reasons=_join_reason(row.reasons, offer.reason),
        root=offer.root,
        depth=offer.depth,
    )


def _looping(row: StoredRow, offer: Offer) -> StoredRow:
    return row._replace(
        status=LOOPING,
        ready_at=None,
        seq=row.seq + 1,
        reasons=_join_reason(row.reasons, offer.reason),
        root=offer.root,
        depth=offer.depth,
        error=offer.looping,
    )


def _join_reason(reasons: str, reason: str) -> str:
    others = [known for known in decode_texts(reasons) if known != reason]
    return encode_texts([*others, reason][-REASONS_MAX:])


def asleep(row: StoredRow) -> StoredRow:
    """A row of which nothing is left but its timer."""
    return row._replace(status=SLEEPING, ready_at=None, attempts=0, reasons="[]", error=None)


def freeing(stage: str, reason: str, root: UUID, lane: StageLane) -> Offer:
    """What frees a parked row without anybody having been asked."""
    return Offer(stage=stage, reason=reason, root=root, lane=lane, frees=True)


def earlier(first: int | None, second: int | None) -> int | None:
    """The earlier of two timers, where there are two."""
    if first is None or second is None:
        return second if first is None else first
    return min(first, second)


# -- rows -----------------------------------------------------------------------------------------


def load_row(connection: Connection, shard: int, entity_id: str, stage: str) -> StoredRow | None:
    wanted = {"shard": shard, "id": entity_id, "stage": stage}
    found = read_rows(connection, "get_row", wanted)
    return found[0] if found else None


def replace_row(connection: Connection, before: StoredRow | None, after: StoredRow | None) -> None:
    """Write what became of a row: it may be new, changed, gone, or as it was."""
    if before is None and after is not None:
        connection.execute(SQL["new_row"], after.values())
    elif before is not None and after is None:
        connection.execute(SQL["drop_row"], before.key())
    elif after is not None and after != before:
        connection.execute(SQL["put_row"], after.values_and_key())
