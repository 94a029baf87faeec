"""The figures of an installation in PostgreSQL: steps from lane to lane, and counts with an end."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from gnomon.contracts.store import InstallationFigures
from gnomon.contracts.store.figures import COUNT_LEAST, COUNTED_MAX, LANES_MAX
from gnomon.stores._figures import FiguresTally, Presence, arrivals_looked_at
from gnomon.stores.postgres.connection import Database, PoolSession, read_now
from gnomon.stores.postgres.in_place import IN_PLACE
from gnomon.stores.postgres.parts import Only


async def read_figures(
    database: Database, *, limit: int, alive_for: timedelta
) -> InstallationFigures:
    """In one transaction; where a statement may touch one shard only, they are asked one by one."""
    async with database.transaction("figures") as session:
        tally = FiguresTally(at=await read_now(session), limit=limit)
        presence = await _presence(session, alive_for)
        for shards, only in database.split(range(presence.shards), lambda shard: shard):
            await _add_queues(tally, session, shards, only, limit)
            await _add_stages(tally, session, shards, only, limit)
    return tally.total(presence)


async def _presence(session: PoolSession, alive_for: timedelta) -> Presence:
    (locks,) = await session.fetch("figures_locks", alive_for)
    (alive,) = await session.fetch("heartbeat_alive", alive_for, None)
    return Presence(alive["workers"], locks["shards"], locks["unowned"])


async def _add_queues(
    tally: FiguresTally,
    session: PoolSession,
    shards: Sequence[int],
    only: Only,
    limit: int,
) -> None:
    looked_at = arrivals_looked_at(limit, len(shards))
    lanes = 0
    bounds = (limit, LANES_MAX, COUNTED_MAX, COUNT_LEAST)
    for row in await session.fetch("figures_lanes", shards, *bounds, *only):
        lanes += row["lanes"]
        tally.lower_limit(row["upto"])
        tally.add_queue(
            row["queue"], waiting=row["waiting"], overdue=row["overdue"], since=row["since"]
        )
    for row in await session.fetch("figures_arrived", shards, looked_at, IN_PLACE, *only):
        tally.partial |= row["most"] >= looked_at
        tally.add_queue(
            row["queue"],
            waiting=row["waiting"],
            overdue=row["overdue"],
            running=row["running"],
            since=row["since"],
        )
    # Not beyond where the tally ends: with 100,000 dead ones that was half of the whole time.
    for row in await session.fetch("figures_running", shards, tally.limit, *only):
        tally.add_queue(row["queue"], running=row["running"])
    for row in await session.fetch("figures_dead", tally.limit, *only):
        tally.add_queue(row["queue"], dead=row["dead"])
    tally.partial |= lanes >= LANES_MAX


async def _add_stages(
    tally: FiguresTally,
    session: PoolSession,
    shards: Sequence[int],
    only: Only,
    limit: int,
) -> None:
    for row in await session.fetch("figures_stages", shards, limit, LANES_MAX, *only):
        tally.add_stage(row["stage"], overdue=row["overdue"], since=row["since"])
    for row in await session.fetch("figures_parked", limit, *only):
        tally.add_stage(row["stage"], parked=row["parked"])
