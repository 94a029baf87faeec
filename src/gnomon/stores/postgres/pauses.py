"""Pauses that end by themselves, in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from gnomon.contracts.store import HeldShard, PauseEnds, PausePlace
from gnomon.model.action import Action
from gnomon.stores._pauses import BY_WORKER, END_PAUSE, PauseEnding
from gnomon.stores.postgres.changes import renewed
from gnomon.stores.postgres.connection import Database, Row, Session
from gnomon.stores.postgres.parts import Only
from gnomon.stores.postgres.rows import Decoder
from gnomon.stores.postgres.several import every


async def end_pauses(
    database: Database, decoder: Decoder, holdings: Sequence[HeldShard], ending: PauseEnding
) -> PauseEnds:
    """A look, which most often finds nothing; then one transaction, or on Citus one a shard."""
    shards = await _shards_with_ends(database, holdings, ending)
    holdings = [held for held in holdings if held.shard in shards]
    actions: list[Action] = []
    reached: dict[int, PausePlace] = {}
    if not holdings:
        return PauseEnds()
    limit = max(1, ending.limit // len(holdings))
    for chosen, only in database.split(holdings, lambda held: held.shard):
        async with database.transaction("end_pauses") as session:
            rows = await session.fetch(
                "end_pauses_take",
                [held.shard for held in chosen],
                [held.lease_guid for held in chosen],
                *_places(chosen, ending),
                limit,
                ending.silent,
                *only,
            )
            actions += await _resume(session, decoder, rows, ending, only)
        reached |= _reached(rows, limit)
    return PauseEnds(actions=actions, reached=reached)


async def _shards_with_ends(
    database: Database, holdings: Sequence[HeldShard], ending: PauseEnding
) -> set[int]:
    answers = await every(
        database.split(holdings, lambda held: held.shard),
        lambda part: database.fetch(
            "end_pauses_find", [held.shard for held in part[0]], *_places(part[0], ending), *part[1]
        ),
    )
    return {row["shard_id"] for rows in answers for row in rows}


def _places(holdings: Sequence[HeldShard], ending: PauseEnding) -> tuple[list[datetime], list[str]]:
    """Behind which to look, as two columns."""
    places = [ending.place(held.shard) for held in holdings]
    return [place.until for place in places], [place.id for place in places]


async def _resume(
    session: Session,
    decoder: Decoder,
    rows: Sequence[Row],
    ending: PauseEnding,
    only: Only,
) -> list[Action]:
    """Let those go on that were locked."""
    locked = [row for row in rows if row["id"] is not None]
    if not locked:
        return []
    actions = [ending.resumed(decoder.action_of(row), row["now"]) for row in locked]
    shards = [action.meta.shard for action in actions]
    ids = [action.meta.id for action in actions]
    guids = [action.meta.guid for action in actions]
    due = [action.status.scheduled_at for action in actions]
    written = await session.fetch(
        "end_pauses", shards, ids, guids, due,
        [action.status.occurrence_at for action in actions],
        [action.status.expires_at for action in actions], *only,
    )  # fmt: skip
    updated_at: datetime = written[0]["updated_at"]
    queues = [row["queue"] for row in locked], [row["priority"] for row in locked]
    await session.fetch("append_incoming", shards, guids, *queues, due, updated_at, *only)
    by = END_PAUSE, str(BY_WORKER), BY_WORKER.face
    await session.fetch("end_pauses_audit", shards, ids, guids, updated_at, *by, *only)
    return [renewed(action, updated_at) for action in actions]


def _reached(rows: Sequence[Row], limit: int) -> dict[int, PausePlace]:
    """Where shards go on that gave as much as they were asked for."""
    places: dict[int, list[PausePlace]] = {}
    for row in rows:
        place = PausePlace(row["place_until"], row["place_id"])
        places.setdefault(row["shard_id"], []).append(place)
    return {shard: of_shard[-1] for shard, of_shard in places.items() if len(of_shard) >= limit}
