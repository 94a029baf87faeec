"""What the owner of shards looks at: what there is to do, and what is due.

A look over many shards takes a share of each, for all of them may have more than is wanted; only if
that is too little, and a shard had more, it takes all it can. So the order is by time within a
shard, and between shards as far as that share reaches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from uuid import UUID

from gnomon.contracts.store import HeldShard
from gnomon.contracts.store.batches import BATCH_BYTES_MAX, bytes_of, first_within
from gnomon.contracts.store.entities import Entity, EntityBatch
from gnomon.contracts.store.queues import (
    ClaimedEntity,
    LaneHead,
    NextDue,
    NextWork,
    StageLane,
)
from gnomon.model.stage.queue_merge import BACKOFF_FLOOR, REASONS_MAX
from gnomon.stores.postgres.connection import Database, Row, read_now
from gnomon.stores.postgres.entities.rows import entity_of, queue_row_of, states_of
from gnomon.stores.postgres.entities.versions import ShardedKey, columns
from gnomon.stores.postgres.parts import Only

SHARE_MIN = 8

Look = Callable[[Sequence[HeldShard], int, int, Only], Awaitable[Sequence[Row]]]


async def first_rows(
    database: Database, holdings: Sequence[HeldShard], limit: int, look: Look, *, by: str
) -> list[Row]:
    """The first rows of all shards by a column that is their time."""
    rows: list[Row] = []
    for group in database.groups(holding.shard for holding in holdings):
        chosen = [holdings[place] for place in group.places]
        rows += await _first_rows(chosen, limit, look, group.shards)
    if not database.many_shards:
        rows.sort(key=itemgetter(by))
    return rows[:limit]


async def _first_rows(
    holdings: Sequence[HeldShard], limit: int, look: Look, only: Only
) -> Sequence[Row]:
    share = min(limit, limit // len(holdings) + SHARE_MIN)
    rows = await look(holdings, limit, share, only)
    if share < limit and _has_more(rows, limit, share):
        rows = await look(holdings, limit, limit, only)
    return rows


def _has_more(rows: Sequence[Row], limit: int, share: int) -> bool:
    """Fewer than wanted, though a shard gave its whole share."""
    counts = Counter(row["shard_id"] for row in rows)
    return len(rows) < limit and max(counts.values(), default=0) >= share


# -- claims ---------------------------------------------------------------------------------------


async def lane_head(
    database: Database,
    holdings: Sequence[HeldShard],
    stage: str,
    lane: StageLane,
    *,
    limit: int,
    skip: Collection[str],
) -> LaneHead:
    skipped = list(skip)

    async def look(chosen: Sequence[HeldShard], most: int, share: int, only: Only) -> Sequence[Row]:
        shards = [holding.shard for holding in chosen]
        return await database.fetch("lane_head", shards, stage, lane, most, share, skipped, *only)

    rows = await first_rows(database, holdings, limit, look, by="ready_at")
    due = [row for row in rows if row["is_due"]]
    count = first_within(row["bytes"] for row in due)
    later = [row["ready_at"] for row in (*(row for row in rows if not row["is_due"]), *due[count:])]
    if not later and len(rows) >= limit:
        later = [rows[-1]["ready_at"]]
    keys = [ShardedKey(row["shard_id"], row["entity_key"]) for row in due[:count]]
    return LaneHead(await _claims(database, holdings, keys, stage), min(later, default=None))


async def get_many(database: Database, entity_keys: Mapping[str, int]) -> EntityBatch:
    """Places are those of a group's list, from 1."""
    keys = [ShardedKey(shard, key) for key, shard in entity_keys.items()]
    entities: dict[str, Entity] = {}
    left: dict[str, int] = {}
    room = BATCH_BYTES_MAX
    for group in database.groups(key.shard for key in keys):
        wanted = [keys[place] for place in group.places]
        count = 0
        if room > 0:
            rows = await database.fetch("get_many_entities", *columns(wanted), room, *group.shards)
            entities.update((row["entity_key"], entity_of(row)) for row in rows)
            room -= sum(bytes_of(row["doc"]) for row in rows)
            count = len(wanted) if room > 0 else rows[-1]["place"]
        left.update((key.entity_key, key.shard) for key in wanted[count:])
    return EntityBatch(entities, left)


async def claim(
    database: Database, holding: HeldShard, entity_key: str, stage: str
) -> ClaimedEntity | None:
    claims = await _claims(database, [holding], [ShardedKey(holding.shard, entity_key)], stage)
    return claims[0] if claims else None


async def _claims(
    database: Database, holdings: Sequence[HeldShard], keys: Sequence[ShardedKey], stage: str
) -> list[ClaimedEntity]:
    leases = {holding.shard: holding.lease_guid for holding in holdings}
    claims: dict[int, ClaimedEntity] = {}
    for group in database.groups(key.shard for key in keys):
        shards, entity_keys = columns([keys[place] for place in group.places])
        held = list({leases[shard] for shard in shards})
        for row in await database.fetch("claim", shards, held, entity_keys, stage, *group.shards):
            claims[group.places[row["place"] - 1]] = _claim_of(row)
    return [claims[place] for place in sorted(claims)]


def _claim_of(row: Row) -> ClaimedEntity:
    return ClaimedEntity(
        entity=entity_of(row),
        row=queue_row_of(row),
        states=states_of(row),
        waiting=frozenset(row["due"] or ()),
        held_back=frozenset(row["held_back"] or ()),
        ahead=frozenset(row["ahead"] or ()),
        now=row["now"],
    )


# -- when there is what to do ---------------------------------------------------------------------


async def next_work(database: Database, holdings: Sequence[HeldShard]) -> NextWork:
    rows: list[Row] = []
    for group in database.groups(holding.shard for holding in holdings):
        chosen = [holdings[place] for place in group.places]
        rows += await database.fetch("next_work", *fence(chosen), *group.shards)
    now: datetime = rows[0]["now"] if rows else await read_now(database)
    ready: dict[tuple[str, int], datetime] = {}
    for row in rows:
        if row["what"] == "ready":
            lane = (row["stage"], row["lane"])
            ready[lane] = min(row["at"], ready.get(lane, row["at"]))
    return NextWork(
        now=now,
        ready=[NextDue(stage, StageLane(lane), at) for (stage, lane), at in ready.items()],
        timer_at=_earliest(rows, "timer"),
        has_changes=_earliest(rows, "changed") is not None,
        backfills=[(row["stage"], row["shard_id"]) for row in rows if row["what"] == "backfill"],
    )


def _earliest(rows: Sequence[Row], what: str) -> datetime | None:
    times = (row["at"] for row in rows if row["what"] == what and row["at"] is not None)
    return min(times, default=None)


async def fire_timers(
    database: Database, holdings: Sequence[HeldShard], *, limit: int, seed: UUID
) -> int:
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
