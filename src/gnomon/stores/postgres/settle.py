"""Lapsed rows: found, and settled by what was decided about them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

from gnomon.contracts.store import HeldShard, LapsedRow, SettleRequest
from gnomon.model.action import Attempt
from gnomon.stores.postgres.connection import Database, Row, Session
from gnomon.stores.postgres.results import (
    ResultRow,
    continue_actions,
    end_actions,
    hold,
    log_attempts,
)
from gnomon.stores.postgres.rows import Decoder

LOOKED_AT = 2_000  # rows of a shard, to find those that nobody holds
STALE_LOOKED_AT = 200  # rows at the head of a lane; a backlog behind them is looked at later
INTERRUPTED = "interrupted"
NOBODY = UUID(int=0)  # stands for the attempt of a row that is not running


async def lapsed(
    database: Database, decoder: Decoder, holdings: Sequence[HeldShard], limit: int
) -> list[LapsedRow]:
    found: list[LapsedRow] = []
    for group in database.groups(holding.shard for holding in holdings):
        shards = [holdings[place].shard for place in group.places]
        if len(found) < limit:
            left = limit - len(found)
            async with database.transaction("lapsed") as session:
                found += await _lapsed(session, decoder, shards, left, group.shards)
    return found[:limit]


async def _lapsed(
    session: Session, decoder: Decoder, shards: list[int], limit: int, only: tuple[int, ...]
) -> list[LapsedRow]:
    running = await session.fetch("list_lapsed_running", shards, limit, LOOKED_AT, *only)
    left = limit - len(running)
    expired = (
        await session.fetch("list_lapsed_expired", shards, left, LOOKED_AT, *only) if left else []
    )
    return [decoder.lapsed_of(row) for row in (*running, *expired)]


async def drop_stale(database: Database, holdings: Sequence[HeldShard], limit: int) -> int:
    count = 0
    for group in database.groups(holding.shard for holding in holdings):
        shards = [holdings[place].shard for place in group.places]
        rows = await database.fetch("delete_stale", shards, limit, STALE_LOOKED_AT, *group.shards)
        count += len(rows)
    return count


async def orphans(
    database: Database,
    decoder: Decoder,
    owners: Collection[str],
    *,
    shards: Sequence[int],
    after: UUID | None,
    limit: int,
) -> list[LapsedRow]:
    found: list[LapsedRow] = []
    for group in database.groups(shards):
        wanted = [shards[place] for place in group.places]
        rows = await database.fetch(
            "list_orphans", wanted, list(owners), after, limit, *group.shards
        )
        found += [decoder.lapsed_of(row) for row in rows]
    return sorted(found, key=lambda orphan: orphan.guid)[:limit]


async def settle(database: Database, settlements: Sequence[SettleRequest]) -> int:
    count = 0
    for group in database.groups(one.lapsed.shard for one in settlements):
        unique = {settlements[place].lapsed.guid: settlements[place] for place in group.places}
        async with database.transaction("settle") as session:
            count += await _settle(session, [unique[guid] for guid in sorted(unique)], group.shards)
    return count


async def _settle(
    session: Session, settlements: Sequence[SettleRequest], shards: tuple[int, ...]
) -> int:
    free = await hold(session, [one.lapsed.guid for one in settlements], shards)
    settlements = [one for one in settlements if one.lapsed.guid in free]
    now: datetime = (await session.fetch("now"))[0][0]
    ending = [one for one in settlements if one.verdict.state.is_terminal]
    going_on = [one for one in settlements if not one.verdict.state.is_terminal]
    done: list[ResultRow] = []
    if ending:
        rows = await session.fetch("settle_take", *_fence(ending), *shards)
        results = _accepted(ending, rows, now)
        await end_actions(session, results, now, shards)
        done += results
    if going_on:
        times = [one.verdict.scheduled_at for one in going_on]
        rows = await session.fetch("settle_keep", *_fence(going_on), times, *shards)
        results = _accepted(going_on, rows, now)
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
    fenced = {row[0] for row in rows}
    return [
        ResultRow(
            one.lapsed.shard,
            one.lapsed.id,
            one.lapsed.guid,
            one.verdict,
            _interrupted(one, now),
            is_final=False,
        )
        for one in settlements
        if one.lapsed.guid in fenced
    ]


def _interrupted(one: SettleRequest, now: datetime) -> Attempt | None:
    attempt = one.lapsed.attempt
    if not one.lapsed.running or attempt is None:
        return None
    return Attempt(
        attempt_id=attempt.attempt_id,
        attempt_no=attempt.attempt_no,
        occurrence_no=attempt.occurrence_no,
        began_at=attempt.began_at,
        deadline=attempt.deadline,
        ended_at=now,
        outcome=INTERRUPTED,
        error=one.reason,
        owner=attempt.owner,
    )
