"""What the stages are to be asked about, by changes and by backfills, and what they answered."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from gnomon.contracts.store import HeldShard
from gnomon.contracts.store.batches import first_within
from gnomon.contracts.store.queues import BackfillPage, ChangedEntity, NewRow, Routing
from gnomon.stores.postgres.connection import Database, Row, Session
from gnomon.stores.postgres.entities.enqueues import EnqueueRow, RowsMade, write_enqueues
from gnomon.stores.postgres.entities.parts import key_of
from gnomon.stores.postgres.entities.rows import entity_of, notes_of, queue_rows_of, states_of
from gnomon.stores.postgres.entities.versions import ShardedKey, apart, columns, common, lock_free
from gnomon.stores.postgres.entities.views import first_rows
from gnomon.stores.postgres.parts import Only


async def changed_entities(
    database: Database, holdings: Sequence[HeldShard], *, limit: int, skip: Collection[str]
) -> list[ChangedEntity]:
    skipped = list(skip)

    async def look(chosen: Sequence[HeldShard], most: int, share: int, only: Only) -> Sequence[Row]:
        shards = [holding.shard for holding in chosen]
        return await database.fetch("changed_entities", shards, most, share, skipped, *only)

    rows = await first_rows(database, holdings, limit, look, by="first_at")
    rows = rows[: first_within(row["bytes"] for row in rows)]
    leases = {holding.shard: holding.lease_guid for holding in holdings}
    entities: dict[int, ChangedEntity] = {}
    for group in database.groups(row["shard_id"] for row in rows):
        chosen = [ChangedRow.of(rows[place]) for place in group.places]
        loaded = await _changed_entities(database, chosen, leases, group.shards)
        entities.update((group.places[place], entity) for place, entity in loaded.items())
    return [entities[place] for place in sorted(entities)]


class ChangedRow(NamedTuple):
    """An entity to ask the stages about; a backfill comes to it without changes."""

    shard: int
    entity_key: str
    seq: int = 0
    epoch: int = 0
    since: int = 0

    @classmethod
    def of(cls, row: Row) -> ChangedRow:
        return cls(row["shard_id"], row["entity_key"], row["seq"], row["epoch"], row["since"])


async def _changed_entities(
    session: Session, wanted: Sequence[ChangedRow], leases: dict[int, UUID], only: Only
) -> dict[int, ChangedEntity]:
    """Load entities with all that stages are asked with, by the places of their rows. What was
    deleted is missing, and so is what is in a shard that is not held any more."""
    rows = await session.fetch(
        "changed_entities_load",
        [row.shard for row in wanted],
        list({leases[row.shard] for row in wanted}),
        [row.entity_key for row in wanted],
        common([row.epoch for row in wanted]),
        common([row.since for row in wanted]),
        *only,
    )
    return {row["place"] - 1: _changed_entity_of(row, wanted[row["place"] - 1].seq) for row in rows}


def _changed_entity_of(row: Row, seq: int) -> ChangedEntity:
    return ChangedEntity(
        entity=entity_of(row),
        seq=seq,
        states=states_of(row),
        waiting=queue_rows_of(row),
        changes=notes_of(row),
    )


async def route(database: Database, routings: Sequence[Routing]) -> list[tuple[NewRow, ...] | None]:
    stored: dict[int, tuple[NewRow, ...] | None] = {}
    for group in database.groups(routing.shard for routing in routings):
        chosen = [routings[place] for place in group.places]
        async with database.transaction("asked") as session:
            leases = {(answer.shard, answer.lease_guid) for answer in chosen}
            rows = await session.fetch(
                "route_held", *map(list, zip(*leases, strict=True)), *group.shards
            )
            held = {(row["shard_id"], row["lease_guid"]) for row in rows}
            kept = [answer for answer in chosen if (answer.shard, answer.lease_guid) in held]
            made: RowsMade = {}
            locked: set[ShardedKey] = set()  # by others
            for batch in apart(kept, key_of):
                some = await _store_answers(session, batch, group.shards)
                made |= some.made
                locked |= some.held
        for place in group.places:
            answer = routings[place]
            is_ours = (answer.shard, answer.lease_guid) in held and key_of(answer) not in locked
            stored[place] = made.get(answer.entity_key, ()) if is_ours else None
    return [stored[place] for place in range(len(routings))]


class StoredAnswers(NamedTuple):
    """What came of answers of stages."""

    made: RowsMade  # queue rows that are new
    held: frozenset[ShardedKey]  # entities that somebody else has locked: nothing was written


async def _store_answers(session: Session, answers: list[Routing], only: Only) -> StoredAnswers:
    """Write what stages want with entities that still live, in one batch that has no entity
    twice."""
    answers.sort(key=key_of)
    free = await lock_free(session, [key_of(answer) for answer in answers], only)
    alive = [
        answer
        for answer, entity in zip(answers, free.rows, strict=True)
        if entity is not None and entity.lives and entity.epoch == answer.epoch
    ]
    rows = [EnqueueRow(key_of(answer), enqueue) for answer in alive for enqueue in answer.enqueues]
    made = await write_enqueues(session, rows, only)
    asked = [answer for answer in alive if answer.seq]
    if asked:
        await _note_asked(session, asked, only)
    return StoredAnswers(made, free.held)


async def _note_asked(session: Session, asked: Sequence[Routing], only: Only) -> None:
    """Take entities from the list of changed ones. One that changed meanwhile stays, asked about up
    to the version that the stages saw."""
    keys = columns([key_of(answer) for answer in asked])
    rows = await session.fetch("route_done", *keys, [answer.seq for answer in asked], *only)
    done = {row["entity_key"] for row in rows}
    left = [answer for answer in asked if answer.entity_key not in done]
    if left:
        keys = columns([key_of(answer) for answer in left])
        await session.fetch("route_since", *keys, [answer.version for answer in left], *only)


# -- backfills ------------------------------------------------------------------------------------


async def backfill_page(
    database: Database, holding: HeldShard, stage: str, *, limit: int, backlog_max: int
) -> BackfillPage | None:
    shard, lease = holding.shard, holding.lease_guid
    async with database.transaction("backfill_page") as session:
        backfills = await session.fetch("backfill_page", shard, lease, stage, backlog_max)
        if not backfills:
            return None
        reason, started_at, after, below = backfills[0]
        rows = await session.fetch("backfill_page_keys", shard, after, below, limit)
        keys = [row["entity_key"] for row in rows[: first_within(row["bytes"] for row in rows)]]
        wanted = [ChangedRow(shard, key) for key in keys]
        only = database.only(shard)
        loaded = await _changed_entities(session, wanted, {shard: lease}, only) if keys else {}
    return BackfillPage(
        entities=[loaded[place] for place in sorted(loaded)],
        cursor=None if len(keys) == len(rows) < limit else keys[-1],
        reason=reason,
        started_at=started_at,
    )


async def advance_backfill(
    database: Database,
    holding: HeldShard,
    stage: str,
    *,
    started_at: datetime,
    cursor: str | None,
    routings: Sequence[Routing],
) -> bool:
    shard, lease = holding.shard, holding.lease_guid
    only = database.only(shard)
    async with database.transaction("advance_backfill") as session:
        keys = sorted({key_of(routing) for routing in routings})
        if (await lock_free(session, keys, only)).held:
            return False
        rows = await session.fetch("advance_backfill", shard, lease, stage, started_at, cursor)
        if not rows:
            return False
        for batch in apart(routings, key_of):
            await _store_answers(session, batch, only)
    return True
