"""Settling lapsed rows and orphans: what was decided about them is written."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from gnomon.contracts.store import SettleRequest
from gnomon.stores._attempts import interrupted_attempt
from gnomon.stores.postgres.connection import Row, Session, read_now
from gnomon.stores.postgres.parts import Only
from gnomon.stores.postgres.results import (
    ResultRow,
    continue_actions,
    end_actions,
    hold,
    log_attempts,
)

NOBODY = UUID(int=0)  # stands for the attempt of a row that is not running


async def settle_rows(session: Session, settlements: Sequence[SettleRequest], shards: Only) -> int:
    """In one transaction, sorted by guid; how many passed the fence."""
    free = await hold(session, [one.lapsed.guid for one in settlements], shards)
    settlements = [one for one in settlements if one.lapsed.guid in free]
    now = await read_now(session)
    ending = [one for one in settlements if one.verdict.state.is_terminal]
    continuing = [one for one in settlements if not one.verdict.state.is_terminal]
    done: list[ResultRow] = []
    if ending:
        rows = await session.fetch("settle_take", *_fence(ending), *shards)
        results = _accepted(ending, rows, now)
        await end_actions(session, results, now, shards)
        done += results
    if continuing:
        times = [one.verdict.scheduled_at for one in continuing]
        rows = await session.fetch("settle_keep", *_fence(continuing), times, *shards)
        results = _accepted(continuing, rows, now)
        await continue_actions(session, results, shards)
        done += results
    await log_attempts(session, done, now, shards)
    return len(done)


def _fence(settlements: Sequence[SettleRequest]) -> tuple[list[object], ...]:
    read = [one.lapsed for one in settlements]
    return (
        [row.guid for row in read],
        [row.attempt.attempt_id if row.running and row.attempt else NOBODY for row in read],
        [row.scheduled_at for row in read],
    )


def _accepted(
    settlements: Sequence[SettleRequest], rows: Sequence[Row], now: datetime
) -> list[ResultRow]:
    fenced = {row["guid"] for row in rows}
    return [
        ResultRow(
            one.lapsed.shard,
            one.lapsed.id,
            one.lapsed.guid,
            one.verdict,
            interrupted_attempt(one, now),
            is_final=False,
        )
        for one in settlements
        if one.lapsed.guid in fenced
    ]
