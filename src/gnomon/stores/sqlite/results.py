"""Recording in SQLite: how attempts ended, and what follows for the action.

Two ways lead to the same end. First-time successes of one-shots, the bulk of all results, are
written by three statements for the whole batch; if one of them is fenced off, and for all other
results, it is one result after the other.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from gnomon.contracts.store import FinishRequest, Recorded, SettleRequest
from gnomon.model.action import Attempt, State
from gnomon.model.errors import check
from gnomon.model.transition import Verdict
from gnomon.stores._attempts import (
    OPEN_OUTCOMES,
    UNSERVED,
    finished_attempt,
    interrupted_attempt,
    late_outcome,
)
from gnomon.stores.sqlite.queries import SQL, fetch_one
from gnomon.stores.sqlite.rows import encode_attempt, encode_texts, micros, micros_or_none

Connection = sqlite3.Connection
Parameters = dict[str, Any]


def finish_attempts(
    connection: Connection, finishes: Sequence[FinishRequest], owner: str, now: datetime
) -> list[Recorded]:
    """What became of each, in order."""
    plain = [finish for finish in finishes if is_plain(finish)]
    if plain and _finish_plain(connection, plain, owner, now):
        if len(plain) == len(finishes):
            return [Recorded.APPLIED] * len(plain)
        done = {finish.attempt_id for finish in plain}
    else:
        done = set()
    return [
        Recorded.APPLIED
        if finish.attempt_id in done
        else _finish_one(connection, finish, owner, now)
        for finish in finishes
    ]


def _finish_plain(
    connection: Connection, finishes: Sequence[FinishRequest], owner: str, now: datetime
) -> bool:
    """End them all, or none and say so."""
    batch = {
        "told": encode_texts([_told(finish, owner, now) for finish in finishes]),
        "packed": b"".join(
            part.bytes for finish in finishes for part in (finish.guid, finish.attempt_id)
        ),
        "now": micros(now),
    }
    connection.execute("SAVEPOINT plain")
    connection.execute(SQL["finish_plain_archive"], batch)
    if connection.execute(SQL["finish_plain_fence"], batch).rowcount != len(finishes):
        connection.execute("ROLLBACK TO plain")
        connection.execute("RELEASE plain")
        return False
    connection.execute(SQL["finish_plain_remove"], batch)
    connection.execute("RELEASE plain")
    return True


def _finish_one(
    connection: Connection, finish: FinishRequest, owner: str, now: datetime
) -> Recorded:
    row = finish_row(finish, micros(now))
    if finish.outcome == UNSERVED:
        return _hand_back(connection, row, finish)
    fenced = fetch_one(connection, "finish_fence", row)
    if fenced is None:
        return _finish_late(connection, row, finish, owner, now)
    row["interrupted"] -= fenced["swept"]  # the sweeper had counted it: it is counted anew
    if is_plain(finish) and not fenced["swept"]:
        row["last_attempt"] = _told(finish, owner, now)
    else:
        attempt = finished_attempt(finish, owner, now)
        row["last_attempt"] = encode_attempt(attempt)
        connection.execute(SQL["log_attempt"], row | _log_fields(attempt))
    _apply(connection, finish.verdict, row, "finish_reschedule")
    return Recorded.APPLIED


def _hand_back(connection: Connection, row: Parameters, finish: FinishRequest) -> Recorded:
    """The attempt was not made. If it is too late to say so, nothing is to be told of it."""
    if connection.execute(SQL["finish_hand_back"], row | {"need": finish.need}).rowcount:
        return Recorded.APPLIED
    if fetch_one(connection, "finish_recorded", row) is not None:
        return Recorded.REPEATED
    connection.execute(SQL["finish_delete_stale"], row)
    return Recorded.LATE


def _finish_late(
    connection: Connection, row: Parameters, finish: FinishRequest, owner: str, now: datetime
) -> Recorded:
    """The fence refused it: it was recorded before, or something newer took its place."""
    logged = fetch_one(connection, "finish_logged_outcome", row)
    if logged is None:
        is_recorded = fetch_one(connection, "finish_recorded", row) is not None
    else:
        is_recorded = logged["outcome"] not in {*OPEN_OUTCOMES} - {finish.outcome}
    if is_recorded:
        return Recorded.REPEATED
    known = None if logged is None else logged["outcome"]
    late = finished_attempt(finish, owner, now, outcome=late_outcome(finish.outcome, known))
    connection.execute(SQL["log_attempt"], row | _log_fields(late))
    connection.execute(SQL["finish_delete_stale"], row)
    return Recorded.LATE


def settle_rows(connection: Connection, settlements: Sequence[SettleRequest], now: datetime) -> int:
    """How many of them passed the fence. Also for `adopt`, inside its own transaction."""
    return sum(_settle_one(connection, settlement, now) for settlement in settlements)


def _settle_one(connection: Connection, settlement: SettleRequest, now: datetime) -> bool:
    row = settle_row(settlement, micros(now))
    if fetch_one(connection, "settle_fence", row) is None:
        return False
    attempt = interrupted_attempt(settlement, now)
    if attempt is not None:
        row["last_attempt"] = encode_attempt(attempt)
        connection.execute(SQL["log_attempt"], row | _log_fields(attempt))
    _apply(connection, settlement.verdict, row, "settle_reschedule")
    return True


def _apply(connection: Connection, verdict: Verdict, row: Parameters, reschedule: str) -> None:
    """Write what the verdict says; the fence was passed in this transaction."""
    if verdict.state.is_terminal:
        connection.execute(SQL["end_archive"], row)
        connection.execute(SQL["end_remove"], row)
        connection.execute(SQL["end_remove_row"], row)
        return
    check(verdict.state is State.ACTIVE, "a verdict may not pause", guid=row["guid"].hex())
    connection.execute(SQL["continue_action"], row)
    connection.execute(SQL[reschedule], row)


def is_plain(finish: FinishRequest) -> bool:
    """The first attempt succeeded and ended its action: the finished row tells all, and is its only
    record."""
    return (
        finish.attempt_no == 1
        and finish.outcome == "succeeded"
        and finish.verdict.state is State.DONE
        and finish.verdict.reason is None
    )


def _told(finish: FinishRequest, owner: str, now: datetime) -> str | None:
    """A plain attempt, if it had an answer: the columns of the finished row do not hold it."""
    if finish.answer is None:
        return None
    return encode_attempt(finished_attempt(finish, owner, now))


def finish_row(finish: FinishRequest, now_us: int) -> Parameters:
    row = verdict_row(finish.verdict, now_us)
    row["shard"] = finish.shard
    row["id"] = finish.id
    row["guid"] = finish.guid.bytes
    row["attempt_id"] = finish.attempt_id.bytes
    row["began_at"] = micros(finish.began_at)
    return row


def settle_row(settlement: SettleRequest, now_us: int) -> Parameters:
    lapsed = settlement.lapsed
    attempt = lapsed.attempt
    row = verdict_row(settlement.verdict, now_us)
    row["shard"] = lapsed.shard
    row["id"] = lapsed.id
    row["guid"] = lapsed.guid.bytes
    row["running"] = int(lapsed.running)
    row["attempt_id"] = None if attempt is None else attempt.attempt_id.bytes
    row["began_at"] = None if attempt is None else micros(attempt.began_at)
    row["seen_at"] = micros(lapsed.scheduled_at)
    return row


def verdict_row(verdict: Verdict, now_us: int) -> Parameters:
    return {
        "now": now_us,
        "state": verdict.state,
        "reason": verdict.reason,
        "scheduled_at": micros_or_none(verdict.scheduled_at),
        "occurrence_no": verdict.occurrence_no,
        "occurrence_at": micros_or_none(verdict.occurrence_at),
        "expires_at": micros_or_none(verdict.expires_at),
        "succeeded": verdict.succeeded,
        "failed": verdict.failed,
        "interrupted": verdict.interrupted,
        "consecutive_failures": verdict.consecutive_failures,
        "consecutive_interruptions": verdict.consecutive_interruptions,
        "occurrence_failures": verdict.occurrence_failures,
        "last_attempt": None,
    }


def _log_fields(attempt: Attempt) -> Parameters:
    assert attempt.ended_at is not None
    return {
        "ended_at": micros(attempt.ended_at),
        "attempt_no": attempt.attempt_no,
        "occurrence_no": attempt.occurrence_no,
        "outcome": attempt.outcome,
        "error": attempt.error,
        "answer": attempt.answer,
        "owner": attempt.owner,
    }
