"""Rows on their way from the incoming to the processing queue of one shard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from gnomon.stores.postgres.connection import Row, Session
from gnomon.stores.postgres.lanes import MARK_SLACK


async def take_and_put(
    session: Session,
    shard: int,
    start: datetime,
    limit: int,
    *,
    least_age: timedelta | None = None,
    newest_in: Mapping[str, int] | None = None,
) -> tuple[Sequence[Row], Sequence[Row]]:
    """From the one queue into the other: the rows taken, and those of them that were put."""
    newest = None if newest_in is None else sum(newest_in.values())
    look = (start, limit, MARK_SLACK, least_age, newest, list(newest_in or ()))
    taken = await session.fetch("move_take", shard, *look)
    current = [row for row in taken if row["attempts"] is not None]
    if not current:
        return taken, []
    names = ("guid", "queue", "priority", "scheduled_at", "attempts")
    columns = [[row[name] for row in current] for name in names]
    put = {row["guid"] for row in await session.fetch("move_put", shard, *columns)}
    return taken, [row for row in current if row["guid"] in put]
