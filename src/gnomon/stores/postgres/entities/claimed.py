"""The rows that runs were claimed by: locked, and settled by what became of the runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVar

from gnomon.contracts.store.queues import (
    Commit,
    ReturnedClaim,
    ReturnedKind,
    RowStatus,
    Unchanged,
)
from gnomon.stores.postgres.connection import Database, Session
from gnomon.stores.postgres.entities.parts import key_of
from gnomon.stores.postgres.entities.versions import RowId, apart
from gnomon.stores.postgres.parts import Only

A = TypeVar("A", Commit, ReturnedClaim)


class ClaimFacts(NamedTuple):
    """What decides about a claim, in the order of `claim_lock`. All that may be NULL is so where
    the row is gone."""

    entity_row: RowId | None
    epoch: int
    version: int
    lives: bool | None
    moved: bool | None
    is_locked: bool  # by somebody else: then nothing but the lease is known
    held: bool
    state_version: int | None
    queue_row: RowId | None
    seq: int | None
    status: str
    timer_at: datetime | None
    attempts: int
    now: datetime
    has_relay: bool  # whether the register knows one


class RemainingRow(NamedTuple):
    """What becomes of a queue row that stays."""

    row_id: RowId
    status: str
    delay: timedelta | None  # None: ready when it was
    timer_at: datetime | None
    attempts: int
    error: str | None = None
    note: str | None = None


async def lock_claims(session: Session, claims: Sequence[A], only: Only) -> list[ClaimFacts]:
    """Lock the entities that nobody else has, and the claimed rows, and learn what is so while they
    are locked."""
    arguments = (
        [claim.shard for claim in claims],
        [claim.lease_guid for claim in claims],
        [claim.entity_key for claim in claims],
        [claim.stage for claim in claims],
        *only,
    )
    rows = await session.fetch("claim_lock", *arguments)
    if any(row["moved"] for row in rows):
        rows = await session.fetch("claim_lock", *arguments)
    return [ClaimFacts(*row) for row in rows]


async def settle_commits(
    session: Session, commits: Sequence[tuple[Commit, ClaimFacts]], only: Only
) -> None:
    """The claimed rows of commits that are saved: they go, sleep, or stay ready."""
    removed: list[RowId] = []
    settled: list[RemainingRow] = []
    for commit, facts in commits:
        row_id = facts.queue_row
        if row_id is None:
            continue
        timer_at = facts.timer_at if isinstance(commit.wake, Unchanged) else commit.wake
        status = facts.status if facts.seq != commit.seq else RowStatus.SLEEPING
        if status == RowStatus.SLEEPING and timer_at is None:
            removed.append(row_id)
        else:
            note = commit.note or None
            settled.append(RemainingRow(row_id, status, None, timer_at, 0, note=note))
    await _settle(session, removed, settled, only)


async def _settle(
    session: Session,
    removed: Sequence[RowId],
    settled: Sequence[RemainingRow],
    only: Only,
) -> None:
    if removed:
        await session.fetch("row_remove", removed, *only)
    if settled:
        await session.fetch("row_update", *map(list, zip(*settled, strict=True)), *only)


# -- rows that are set back -----------------------------------------------------------------------


async def give_back(database: Database, claims: Sequence[ReturnedClaim]) -> list[ReturnedKind]:
    answers: dict[int, ReturnedKind] = {}
    for group in database.groups(claim.shard for claim in claims):
        async with database.transaction("set_back") as session:
            for places in apart(group.places, lambda place: key_of(claims[place])):
                places.sort(key=lambda place: key_of(claims[place]))
                chosen = [claims[place] for place in places]
                told = await _give_back(session, chosen, group.shards)
                answers.update(zip(places, told, strict=True))
    return [answers[place] for place in range(len(claims))]


async def _give_back(
    session: Session, rows: Sequence[ReturnedClaim], only: Only
) -> list[ReturnedKind]:
    locked = await lock_claims(session, rows, only)
    removed: list[RowId] = []
    settled: list[RemainingRow] = []
    for row, facts in zip(rows, locked, strict=True):
        if not facts.held or facts.queue_row is None:
            continue
        outcome = _outcome(row, facts, facts.queue_row)
        if outcome is None:
            removed.append(facts.queue_row)
        else:
            settled.append(outcome)
    await _settle(session, removed, settled, only)
    return [_returned_kind(row, facts) for row, facts in zip(rows, locked, strict=True)]


def _returned_kind(row: ReturnedClaim, facts: ClaimFacts) -> ReturnedKind:
    if facts.held and facts.is_locked:
        return ReturnedKind.HELD
    return ReturnedKind.WRITTEN if facts.held and facts.seq == row.seq else ReturnedKind.STALE


def _outcome(row: ReturnedClaim, facts: ClaimFacts, row_id: RowId) -> RemainingRow | None:
    """What becomes of a row that was claimed in vain; None if it goes."""
    attempts = facts.attempts + row.counts
    if facts.seq != row.seq:
        return RemainingRow(row_id, facts.status, None, facts.timer_at, attempts, row.error)
    timers = [at for at in (facts.timer_at, row.wake) if at is not None]
    timer_at = min(timers, default=None)
    if row.status is None or row.status is RowStatus.SLEEPING:
        if timer_at is None:
            return None
        return RemainingRow(row_id, RowStatus.SLEEPING, None, timer_at, 0)
    return RemainingRow(row_id, row.status, row.delay, timer_at, attempts, row.error)
