"""What the stages are to be asked about, by changes and by walks, and what they answered."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

from gnomon.contracts.store import HeldShard
from gnomon.contracts.store.batches import first_within
from gnomon.contracts.store.queues import BackfillPage, ChangedEntity, NewRow, Routing
from gnomon.stores.postgres.connection import Database, Row, Session
from gnomon.stores.postgres.entities.enqueues import EnqueueRow, RowsMade, make_offers
from gnomon.stores.postgres.entities.rows import entity_of, notes_of, queue_rows_of, states_of
from gnomon.stores.postgres.entities.versions import EntityKey, apart, columns, lock_entities
from gnomon.stores.postgres.entities.views import first_rows


async def feed(
    database: Database, holdings: Sequence[HeldShard], *, limit: int, skip: Collection[str]
) -> list[ChangedEntity]:
    skipped = list(skip)

    async def look(
        chosen: Sequence[HeldShard], most: int, share: int, only: tuple[int, ...]
    ) -> Sequence[Row]:
        shards = [holding.shard for holding in chosen]
        return await database.fetch("changed_entities", shards, most, share, skipped, *only)

    rows = await first_rows(database, holdings, limit, look)
    rows = rows[: first_within(row[5] for row in rows)]
    leases = {holding.shard: holding.lease_guid for holding in holdings}
    found: dict[int, ChangedEntity] = {}
    for group in database.groups(row[0] for row in rows):
        chosen = [rows[place] for place in group.places]
        fed = await _fed(database, chosen, leases, group.shards)
        found.update((group.places[place], each) for place, each in fed.items())
    return [found[place] for place in sorted(found)]


async def _fed(
    session: Session, rows: Sequence[Row], leases: dict[int, UUID], only: tuple[int, ...]
) -> dict[int, ChangedEntity]:
    """Living entities of held shards by their place, out of (shard, id, seq, epoch, since)."""
    found = await session.fetch(
        "changed_entities_load",
        [row[0] for row in rows],
        [leases[row[0]] for row in rows],
        [row[1] for row in rows],
        [row[3] for row in rows],
        [row[4] for row in rows],
        *only,
    )
    return {row[0] - 1: _fed_of(row, rows[row[0] - 1][2]) for row in found}


def _fed_of(row: Row, seq: int) -> ChangedEntity:
    return ChangedEntity(
        entity=entity_of(row, 1),
        seq=seq,
        states=states_of(row, 7),
        waiting=queue_rows_of(row, 12, row[1]),
        changes=notes_of(row, 25),
    )


async def asked(database: Database, answers: Sequence[Routing]) -> list[tuple[NewRow, ...] | None]:
    stored: dict[int, tuple[NewRow, ...] | None] = {}
    for group in database.groups(answer.shard for answer in answers):
        chosen = [answers[place] for place in group.places]
        async with database.transaction("asked") as session:
            shards = [answer.shard for answer in chosen]
            leases = [answer.lease_guid for answer in chosen]
            rows = await session.fetch("route_held", shards, leases, *group.shards)
            held = {(row[0], row[1]) for row in rows}
            kept = [answer for answer in chosen if (answer.shard, answer.lease_guid) in held]
            made: RowsMade = {}
            for batch in apart(kept, _key):
                made |= await _store_answers(session, batch, group.shards)
        for place in group.places:
            answer = answers[place]
            is_held = (answer.shard, answer.lease_guid) in held
            stored[place] = made.get(answer.entity_id, ()) if is_held else None
    return [stored[place] for place in range(len(answers))]


async def _store_answers(
    session: Session, answers: list[Routing], only: tuple[int, ...]
) -> RowsMade:
    answers.sort(key=_key)
    locked = await lock_entities(session, [_key(answer) for answer in answers], only)
    alive = [
        answer
        for answer, found in zip(answers, locked, strict=True)
        if found is not None and found.lives and found.epoch == answer.epoch
    ]
    offered = [EnqueueRow(_key(answer), offer) for answer in alive for offer in answer.enqueues]
    made = await make_offers(session, offered, only)
    fed = [answer for answer in alive if answer.seq]
    if fed:
        await _answer_feed(session, fed, only)
    return made


async def _answer_feed(session: Session, fed: Sequence[Routing], only: tuple[int, ...]) -> None:
    keys = columns([_key(answer) for answer in fed])
    rows = await session.fetch("route_done", *keys, [answer.seq for answer in fed], *only)
    done = {row[0] for row in rows}
    left = [answer for answer in fed if answer.entity_id not in done]
    if left:
        keys = columns([_key(answer) for answer in left])
        await session.fetch("route_since", *keys, [answer.version for answer in left], *only)


def _key(answer: Routing) -> EntityKey:
    return EntityKey(answer.shard, answer.entity_id)


# -- walks ---------------------------------------------------------------------------------------


async def backfill_page(
    database: Database, holding: HeldShard, stage: str, *, limit: int, backlog_max: int
) -> BackfillPage | None:
    shard, lease = holding.shard, holding.lease_guid
    async with database.transaction("backfill_page") as session:
        walks = await session.fetch("backfill_page", shard, lease, stage, backlog_max)
        if not walks:
            return None
        reason, started_at, after = walks[0]
        sizes = await session.fetch("backfill_page_ids", shard, after, limit)
        ids = [row[0] for row in sizes[: first_within(row[1] for row in sizes)]]
        rows = [(shard, name, 0, 0, 0) for name in ids]
        fed = await _fed(session, rows, {shard: lease}, database.only(shard)) if ids else {}
    return BackfillPage(
        entities=[fed[place] for place in sorted(fed)],
        cursor=None if len(ids) == len(sizes) < limit else ids[-1],
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
        for batch in apart(answers, _key):
            await _store_answers(session, batch, database.only(shard))
    return True
