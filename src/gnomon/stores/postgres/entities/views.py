"""What the owner of shards looks at: what there is to do, and what is due.

A look over many shards takes a share of each, for all of them may have more than is wanted; only if
that is too little, and a shard had more, it takes all it can. So the order is by time within a
shard, and between shards as far as that share reaches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from gnomon.contracts.store import HeldShard
from gnomon.contracts.store.batches import BATCH_BYTES_MAX, bytes_of, first_within
from gnomon.contracts.store.entities import Entity, EntityBatch
from gnomon.contracts.store.queues import (
    ClaimedEntity,
    LaneHead,
    NextDue,
    NextWork,
    QueueRow,
    RowStatus,
    StageLane,
)
from gnomon.model.stage.queue_merge import BACKOFF_FLOOR, REASONS_MAX
from gnomon.stores.postgres.connection import Database, Row
from gnomon.stores.postgres.entities.rows import entity_of, states_of
from gnomon.stores.postgres.entities.versions import EntityKey, columns

SHARE_MIN = 8

Look = Callable[[Sequence[HeldShard], int, int, tuple[int, ...]], Awaitable[Sequence[Row]]]


async def first_rows(
    database: Database, holdings: Sequence[HeldShard], limit: int, look: Look
) -> list[Row]:
    """The first rows of all shards: each begins with its shard and ends with its time."""
    found: list[Row] = []
    for group in database.groups(holding.shard for holding in holdings):
        chosen = [holdings[place] for place in group.places]
        found += await _first_rows(chosen, limit, look, group.shards)
    if not database.many_shards:
        found.sort(key=lambda row: row[-1])
    return found[:limit]


async def _first_rows(
    holdings: Sequence[HeldShard], limit: int, look: Look, only: tuple[int, ...]
) -> Sequence[Row]:
    share = min(limit, limit // len(holdings) + SHARE_MIN)
    rows = await look(holdings, limit, share, only)
    if share < limit and _has_more(rows, limit, share):
        rows = await look(holdings, limit, limit, only)
    return rows


def _has_more(rows: Sequence[Row], limit: int, share: int) -> bool:
    """Fewer than wanted, though a shard gave its whole share."""
    counts = Counter(row[0] for row in rows)
    return len(rows) < limit and max(counts.values(), default=0) >= share


# -- claims ---------------------------------------------------------------------------------------


async def peek(
    database: Database,
    holdings: Sequence[HeldShard],
    stage: str,
    lane: StageLane,
    *,
    limit: int,
    skip: Collection[str],
) -> LaneHead:
    skipped = list(skip)

    async def look(
        chosen: Sequence[HeldShard], most: int, share: int, only: tuple[int, ...]
    ) -> Sequence[Row]:
        shards = [holding.shard for holding in chosen]
        return await database.fetch("lane_head", shards, stage, lane, most, share, skipped, *only)

    rows = await first_rows(database, holdings, limit, look)
    due = [row for row in rows if row[2]]
    count = first_within(row[3] for row in due)
    later = [row[4] for row in (*(row for row in rows if not row[2]), *due[count:])]
    if not later and len(rows) >= limit:
        later = [rows[-1][4]]
    keys = [EntityKey(row[0], row[1]) for row in due[:count]]
    return LaneHead(await _claims(database, holdings, keys, stage), min(later, default=None))


async def get_many(database: Database, entity_ids: Mapping[str, int]) -> EntityBatch:
    """Places are those of a group's list, from 1."""
    keys = [EntityKey(shard, name) for name, shard in entity_ids.items()]
    entities: dict[str, Entity] = {}
    left: dict[str, int] = {}
    room = BATCH_BYTES_MAX
    for group in database.groups(key.shard for key in keys):
        wanted = [keys[place] for place in group.places]
        count = 0
        if room > 0:
            rows = await database.fetch("get_many_entities", *columns(wanted), room, *group.shards)
            entities.update((row[0], entity_of(row)) for row in rows)
            room -= sum(bytes_of(row[4]) for row in rows)
            count = len(wanted) if room > 0 else rows[-1][6]
        left.update((key.id, key.shard) for key in wanted[count:])
    return EntityBatch(entities, left)


async def claim_of(
    database: Database, holding: HeldShard, entity_id: str, stage: str
) -> ClaimedEntity | None:
    claims = await _claims(database, [holding], [EntityKey(holding.shard, entity_id)], stage)
    return claims[0] if claims else None


async def _claims(
    database: Database, holdings: Sequence[HeldShard], keys: Sequence[EntityKey], stage: str
) -> list[ClaimedEntity]:
    leases = {holding.shard: holding.lease_guid for holding in holdings}
    found: dict[int, ClaimedEntity] = {}
    for group in database.groups(key.shard for key in keys):
        shards, ids = columns([keys[place] for place in group.places])
        held = [leases[shard] for shard in shards]
        for row in await database.fetch("claim", shards, held, ids, stage, *group.shards):
            place = group.places[row[0] - 1]
            found[place] = _claim_of(row, keys[place], stage)
    return [found[place] for place in sorted(found)]


def _claim_of(row: Row, key: EntityKey, stage: str) -> ClaimedEntity:
    entity = Entity(
        id=key.id, shard=key.shard, epoch=row[1], version=row[2], doc=row[3], changed_at=row[4]
    )
    queued = QueueRow(
        entity_id=key.id, stage=stage, lane=StageLane(row[5]), status=RowStatus.READY,
        ready_at=row[6], timer_at=row[7], first_at=row[8], seq=row[9], attempts=row[10],
        reasons=tuple(row[11]), root=row[12], depth=row[13], error=row[14], note=row[15],
    )  # fmt: skip
    return ClaimedEntity(
        entity=entity,
        row=queued,
        states=states_of(row, 16),
        waiting=frozenset(row[21] or ()),
        held_back=frozenset(row[22] or ()),
        now=row[23],
        ahead=frozenset(row[24] or ()),
    )


# -- when there is what to do ---------------------------------------------------------------------


async def survey(database: Database, holdings: Sequence[HeldShard]) -> NextWork:
    rows: list[Row] = []
    for group in database.groups(holding.shard for holding in holdings):
        chosen = [holdings[place] for place in group.places]
        rows += await database.fetch("next_work", *fence(chosen), *group.shards)
    now: datetime = rows[0][4] if rows else (await database.fetch("now"))[0][0]
    ready: dict[tuple[str, int], datetime] = {}
    for kind, stage, lane, at, _ in rows:
        if kind == "ready":
            ready[stage, lane] = min(at, ready.get((stage, lane), at))
    return NextWork(
        now=now,
        ready=[NextDue(stage, StageLane(lane), at) for (stage, lane), at in ready.items()],
        timer_at=_earliest(rows, "timer"),
        has_changes=_earliest(rows, "feed") is not None,
        backfills=[(row[1], row[2]) for row in rows if row[0] == "backfill"],
    )


def _earliest(rows: Sequence[Row], kind: str) -> datetime | None:
    return min((row[3] for row in rows if row[0] == kind and row[3] is not None), default=None)


async def fire(database: Database, holdings: Sequence[HeldShard], *, limit: int, seed: UUID) -> int:
    count = 0
    for group in database.groups(holding.shard for holding in holdings):
        held = fence([holdings[place] for place in group.places])
        share = min(limit, limit // len(group.places) + SHARE_MIN)
        while count < limit:
            left = limit - count
            rows = await database.fetch(
                "fire_timers", *held, left, share, seed, BACKOFF_FLOOR, REASONS_MAX, *group.shards
            )
            count += len(rows)
            if share >= limit or not _has_more(rows, left, share):
                break
            share = limit
    return count


def fence(holdings: Sequence[HeldShard]) -> tuple[list[int], list[UUID]]:
    """Shards and the leases that they must have."""
    return (
        [holding.shard for holding in holdings],
        [holding.lease_guid for holding in holdings],
    )
