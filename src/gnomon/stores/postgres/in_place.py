"""Attempts that run where they arrived: in their incoming rows (ADR 0020).

A plain success is recorded there. Whoever has more to do with such an attempt moves its row to the
processing queue first, attempt and all, and goes on as with any other.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from gnomon.stores.postgres.connection import Row, Session
from gnomon.stores.postgres.parts import Only

FOREVER = datetime(9999, 1, 1, tzinfo=UTC)
ALL_ROWS = 2**31 - 1
# How long an attempt may run in place, and be there until it is swept: the window and grace of a
# worker's configuration, and some. Views look for none that has been there for longer.
IN_PLACE = timedelta(seconds=120)


async def move_begun(session: Session, guids: Sequence[UUID], only: Only) -> None:
    """Those of certain generations, in a transaction."""
    if guids:
        await _move(session, await session.fetch("lock_begun", guids, *only), only)


async def move_begun_in(
    session: Session,
    shards: Sequence[int],
    only: Only,
    *,
    owners: Collection[str] | None = None,
    until: datetime | None = None,
    look: int = ALL_ROWS,
) -> None:
    """Those whose reservation ends by a moment (None: has ended), of these owners (None: all)."""
    if shards:
        names = None if owners is None else list(owners)
        locked = await session.fetch("lock_begun_in", shards, names, until, look, *only)
        await _move(session, locked, only)


async def _move(session: Session, locked: Sequence[Row], only: Only) -> None:
    if locked and only:
        columns = [[row[name] for row in locked] for name in ("shard_id", "created_at", "guid")]
        await session.fetch("move_begun_put", *columns, *only)
        await session.fetch("move_begun_drop", *columns, *only)
    elif locked:
        await session.fetch("move_begun", [row["row_id"] for row in locked])
