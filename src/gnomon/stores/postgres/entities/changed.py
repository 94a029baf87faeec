"""What the stages are to be asked about, by changes and by walks, and what they answered."""

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
from gnomon.stores.postgres.entities.versions import apart, columns, lock_entities
from gnomon.stores.postgres.entities.views import first_rows


async def changed_entities(
    database: Database, holdings: Sequence[HeldShard], *, limit: int, skip: Collection[str]
) -> list[ChangedEntity]:
    skipped = list(skip)

    async def look(
        chosen: Sequence[HeldShard], most: int, share: int, only: tuple[int, ...]
    ) -> Sequence[Row]:
        shards = [holding.shard for holding in chosen]
        return await database.fetch("changed_entities", shards, most, share, skipped, *only)

    rows = await first_rows(database, holdings, limit, look, by="first_at")
    rows = rows[: first_within(row["bytes"] for row in rows)]
    leases = {holding.shard: holding.lease_guid for holding in holdings}
    fed: dict[int, ChangedEntity] = {}
    for group in database.groups(row["shard_id"] for row in rows):
        chosen = [ChangedRow.of(rows[place]) for place in group.places]
        loaded = await _changed_entities(database, chosen, leases, group.shards)
        fed.update((group.places[place], changed) for place, changed in loaded.items())
    return [fed[place] for place in sorted(fed)]


class ChangedRow(NamedTuple):
    """An entity to ask about; a walk comes to it without changes."""

    shard: int
    entity_key: str
    seq: int = 0
    epoch: int = 0
    since: int = 0

    @classmethod
    def of(cls, row: Row) -> ChangedRow:
        return cls(row["shard_id"], row["entity_key"], row["seq"], row["epoch"], row["since"])


async def _changed_entities(
    session: Session, changed: Sequence[ChangedRow], leases: dict[int, UUID], only: tuple[int, ...]
) -> dict[int, ChangedEntity]:
    """Living entities of held shards by their place."""
    rows = await session.fetch(
        "changed_entities_load",
        [row.shard for row in changed],
        [leases[row.shard] for row in changed],
        [row.entity_key for row in changed],
        [row.epoch for row in changed],
        [row.since for row in changed],
        *only,
    )
    return {row["place"] - 1: _fed_of(row, changed[row["place"] - 1].seq) for row in rows}


def _fed_of(row: Row, seq: int) -> ChangedEntity:
    return ChangedEntity(
        entity=entity_of(row),
        seq=seq,
        states=states_of(row),
        waiting=queue_rows_of(row),
        changes=notes_of(row),
    )


async def route(database: Database, answers: Sequence[Routing]) -> list[tuple[NewRow, ...] | None]:
    stored: dict[int, tuple[NewRow, ...] | None] = {}
    for group in database.groups(answer.shard for answer in answers):
        chosen = [answers[place] for place in group.places]
        async with database.transaction("asked") as session:
            shards = [answer.shard for answer in chosen]
            leases = [answer.lease_guid for answer in chosen]
            rows = await session.fetch("route_held", shards, leases, *group.shards)
            held = {(row["shard_id"], row["lease_guid"]) for row in rows}
            kept = [answer for answer in chosen if (answer.shard, answer.lease_guid) in held]
            made: RowsMade = {}
            for batch in apart(kept, key_of):
                made |= await _store_answers(session, batch, group.shards)
        for place in group.places:
            answer = answers[place]
            is_held = (answer.shard, answer.lease_guid) in held
            stored[place] = made.get(answer.entity_key, ()) if is_held else None
    return [stored[place] for place in range(len(answers))]


async def _store_answers(
    session: Session, answers: list[Routing], only: tuple[int, ...]
) -> RowsMade:
    answers.sort(key=key_of)
    locked = await lock_entities(session, [key_of(answer) for answer in answers], only)
    alive = [
        answer
        for answer, entity in zip(answers, locked, strict=True)
        if entity is not None and entity.lives and entity.epoch == answer.epoch
    ]
    rows = [EnqueueRow(key_of(answer), enqueue) for answer in alive for enqueue in answer.enqueues]
    made = await write_enqueues(session, rows, only)
    fed = [answer for answer in alive if answer.seq]
    if fed:
        await _answer_feed(session, fed, only)
    return made


async def _answer_feed(session: Session, fed: Sequence[Routing], only: tuple[int, ...]) -> None:
    keys = columns([key_of(answer) for answer in fed])
    rows = await session.fetch("route_done", *keys, [answer.seq for answer in fed], *only)
    done = {row["entity_key"] for row in rows}
    left = [answer for answer in fed if answer.entity_key not in done]
    if left:
        keys = columns([key_of(answer) for answer in left])
        await session.fetch("route_since", *keys, [answer.version for answer in left], *only)


# -- walks ---------------------------------------------------------------------------------------


async def backfill_page(
    database: Database, holding: HeldShard, stage: str, *, limit: int, backlog_max: int
) -> BackfillPage | None:
    shard, lease = holding.shard, holding.lease_guid
    async with database.transaction("backfill_page") as session:
        walks = await session.fetch("backfill_page", shard, lease, stage, backlog_max)
        if not walks:
            return None
        reason, started_at, after, below = walks[0]
        rows = await session.fetch("backfill_page_keys", shard, after, below, limit)
        keys = [row["entity_key"] for row in rows[: first_within(row["bytes"] for row in rows)]]
        walked = [ChangedRow(shard, key) for key in keys]
        fed = (
            await _changed_entities(session, walked, {shard: lease}, database.only(shard))
            if keys
            else {}
        )
    return BackfillPage(
        entities=[fed[place] for place in sorted(fed)],
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
    answers: Sequence[Routing],
) -> bool:
    shard, lease = holding.shard, holding.lease_guid
    async with database.transaction("advance_backfill") as session:
        rows = await session.fetch("advance_backfill", shard, lease, stage, started_at, cursor)
        if not rows:
            return False
        for batch in apart(answers, key_of):
            await _store_answers(session, batch, database.only(shard))
    return True
