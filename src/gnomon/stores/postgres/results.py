"""What a verdict writes, behind any fence: end actions, let them go on, log attempts.

Shared by `finish` and `settle`. Always inside a transaction that holds the actions and their rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from gnomon.model.action import Attempt
from gnomon.model.errors import check
from gnomon.model.transition import Verdict
from gnomon.stores.postgres.connection import Session
from gnomon.stores.postgres.parts import Only
from gnomon.stores.postgres.rows import encode_attempt


class ResultRow(NamedTuple):
    """A verdict about a generation, and the attempt that led to it, if one ran."""

    shard: int
    id: str
    guid: UUID
    verdict: Verdict
    attempt: Attempt | None
    is_final: bool  # the attempt's own result, and not somebody's guess about it
    taken_back: int = 0  # 1 if the attempt had been counted as interrupted


async def hold(session: Session, guids: Sequence[UUID], shards: Only) -> set[UUID]:
    """Lock generations and their rows; those that are there and that nobody else holds."""
    if not guids:
        return set()
    return {row["guid"] for row in await session.fetch("lock_generation", guids, *shards)}


async def end_actions(
    session: Session, results: Sequence[ResultRow], now: datetime, shards: Only
) -> None:
    """Move actions to the finished ones."""
    if results:
        await session.fetch("end_archive", *_end_columns(results), now, *shards)
        await session.fetch("end_remove", [result.guid for result in results], *shards)


def _end_columns(results: Sequence[ResultRow]) -> tuple[list[object], ...]:
    verdicts = [result.verdict for result in results]
    final = [result.attempt if result.is_final else None for result in results]
    return (
        [result.guid for result in results],
        [str(verdict.state) for verdict in verdicts],
        [verdict.reason for verdict in verdicts],
        [verdict.occurrence_no for verdict in verdicts],
        [verdict.occurrence_at for verdict in verdicts],
        [verdict.succeeded for verdict in verdicts],
        [verdict.failed for verdict in verdicts],
        [result.verdict.interrupted - result.taken_back for result in results],
        [verdict.consecutive_failures for verdict in verdicts],
        [verdict.consecutive_interruptions for verdict in verdicts],
        [verdict.occurrence_failures for verdict in verdicts],
        [None if attempt is None else attempt.attempt_id for attempt in final],
        [None if attempt is None else attempt.began_at for attempt in final],
        [_encoded(result.attempt) for result in results],
    )


async def continue_actions(session: Session, results: Sequence[ResultRow], shards: Only) -> None:
    """Count and go on."""
    if not results:
        return
    verdicts = [result.verdict for result in results]
    rows = await session.fetch(
        "continue_action",
        [result.guid for result in results],
        [verdict.occurrence_no for verdict in verdicts],
        [verdict.occurrence_at for verdict in verdicts],
        [verdict.expires_at for verdict in verdicts],
        [verdict.succeeded for verdict in verdicts],
        [verdict.failed for verdict in verdicts],
        [result.verdict.interrupted - result.taken_back for result in results],
        [verdict.consecutive_failures for verdict in verdicts],
        [verdict.consecutive_interruptions for verdict in verdicts],
        [verdict.occurrence_failures for verdict in verdicts],
        [_encoded(result.attempt) for result in results],
        *shards,
    )
    written = {row["guid"] for row in rows}
    left = {result.guid for result in results} - written
    check(not left, "a locked action could not be written", guids=left)


async def log_attempts(
    session: Session, results: Sequence[ResultRow], now: datetime, shards: Only
) -> None:
    """Write the attempts down; the true end of one that was swept replaces the guess."""
    logged = [(result, result.attempt) for result in results if result.attempt is not None]
    if not logged:
        return
    await session.fetch(
        "log_attempt",
        [result.shard for result, _ in logged],
        [result.id for result, _ in logged],
        [result.guid for result, _ in logged],
        [attempt.attempt_id for _, attempt in logged],
        [attempt.attempt_no for _, attempt in logged],
        [attempt.occurrence_no for _, attempt in logged],
        [attempt.began_at for _, attempt in logged],
        [attempt.outcome for _, attempt in logged],
        [attempt.error for _, attempt in logged],
        [attempt.answer for _, attempt in logged],
        [attempt.owner for _, attempt in logged],
        [attempt.ended_at or now for _, attempt in logged],
        *shards,
    )


def _encoded(attempt: Attempt | None) -> str | None:
    return None if attempt is None else encode_attempt(attempt)
