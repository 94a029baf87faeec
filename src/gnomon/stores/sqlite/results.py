"""Recording in SQLite: how attempts ended, and what follows for the action.

Two ways lead to the same end. First-time successes of one-shots, the bulk of all results, are
written by three statements for the whole batch; if one of them is fenced off, and for all other
results, it is one result after the other.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from gnomon.contracts.clock import Clock
from gnomon.contracts.store import FinishRequest, Recorded, SettleRequest
from gnomon.model.action import Attempt, State
from gnomon.model.errors import check
from gnomon.model.transition import Verdict
from gnomon.stores.sqlite.connection import Runner
from gnomon.stores.sqlite.queries import SQL
from gnomon.stores.sqlite.rows import encode_attempt, micros, micros_or_none

Connection = sqlite3.Connection
Parameters = dict[str, Any]

OPEN_OUTCOMES = ("interrupted", "superseded")  # in the log, but not the attempt's own word


class SqliteResults:
    """The half of the `WorkStore` that records."""

    def __init__(self, runner: Runner, clock: Clock) -> None:
        self._runner = runner
        self._clock = clock

    # -- finish -----------------------------------------------------------------------------------

    async def finish(self, finishes: Sequence[FinishRequest], *, owner: str) -> Sequence[Recorded]:
        return await self._runner.write(
            lambda connection: self._finish(connection, finishes, owner)
        )

    def _finish(
        self, connection: Connection, finishes: Sequence[FinishRequest], owner: str
    ) -> list[Recorded]:
        now = self._clock.now()
        plain = [finish for finish in finishes if is_plain(finish)]
        if plain and self._finish_plain(connection, plain, micros(now)):
            if len(plain) == len(finishes):
                return [Recorded.APPLIED] * len(plain)
            done = {finish.attempt_id for finish in plain}
        else:
            done = set()
        return [
            Recorded.APPLIED
            if finish.attempt_id in done
            else self._finish_one(connection, finish, owner, now)
            for finish in finishes
        ]

    def _finish_plain(
        self, connection: Connection, finishes: Sequence[FinishRequest], now_us: int
    ) -> bool:
        """End them all, or none and say so."""
        batch = {
            "shards": json.dumps([finish.shard for finish in finishes]),
            "packed": b"".join(
                part.bytes for finish in finishes for part in (finish.guid, finish.attempt_id)
            ),
            "now": now_us,
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
        self, connection: Connection, finish: FinishRequest, owner: str, now: datetime
    ) -> Recorded:
        row = finish_row(finish, micros(now))
        fence = connection.execute(SQL["finish_fence"], row).fetchone()
        if fence is None:
            return self._finish_late(connection, finish, row, owner)
        (swept,) = fence
        row["interrupted"] -= swept  # the sweeper had counted it: it is counted anew
        if swept or not is_plain(finish):
            row["last_attempt"] = encode_attempt(finished_attempt(finish, owner, now))
            self._log(connection, finish, row, owner, finish.outcome)
        self._apply(connection, finish.verdict, row, "finish_reschedule")
        return Recorded.APPLIED

    def _finish_late(
        self, connection: Connection, finish: FinishRequest, row: Parameters, owner: str
    ) -> Recorded:
        """The fence refused it: it was recorded before, or something newer took its place."""
        logged = connection.execute(SQL["finish_logged_outcome"], row).fetchone()
        if logged is not None and logged[0] not in {*OPEN_OUTCOMES} - {finish.outcome}:
            return Recorded.REPEATED
        if (
            logged is None
            and connection.execute(SQL["finish_recorded"], row).fetchone() is not None
        ):
            return Recorded.REPEATED
        self._log(connection, finish, row, owner, f"late_{finish.outcome}")
        connection.execute(SQL["finish_delete_stale"], row)
        return Recorded.LATE

    def _log(
        self,
        connection: Connection,
        finish: FinishRequest,
        row: Parameters,
        owner: str,
        outcome: str,
    ) -> None:
        ended_at = row["now"] if finish.ended_at is None else micros(finish.ended_at)
        entry = row | {
            "ended_at": min(ended_at, row["now"]),
            "attempt_no": finish.attempt_no,
            "occurrence_no": finish.occurrence_no,
            "outcome": outcome,
            "error": finish.error,
            "answer": finish.answer,
            "owner": owner,
        }
        connection.execute(SQL["log_attempt"], entry)

    # -- settle -----------------------------------------------------------------------------------

    async def settle(self, settlements: Sequence[SettleRequest]) -> int:
        return await self._runner.write(lambda connection: self.settle_all(connection, settlements))

    def settle_all(self, connection: Connection, settlements: Sequence[SettleRequest]) -> int:
        """How many of them passed the fence. Also for `adopt`, inside its own transaction."""
        return sum(self._settle_one(connection, item) for item in settlements)

    def _settle_one(self, connection: Connection, settlement: SettleRequest) -> bool:
        lapsed = settlement.lapsed
        now = self._clock.now()
        row = settle_row(settlement, micros(now))
        fence = connection.execute(SQL["settle_fence"], row).fetchone()
        if fence is None:
            return False
        if lapsed.running:
            (owner,) = fence
            attempt = interrupted_attempt(settlement, owner, now)
            row["last_attempt"] = encode_attempt(attempt)
            connection.execute(SQL["log_attempt"], row | _log_fields(attempt))
        self._apply(connection, settlement.verdict, row, "settle_reschedule")
        return True

    # -- both -------------------------------------------------------------------------------------

    def _apply(
        self, connection: Connection, verdict: Verdict, row: Parameters, reschedule: str
    ) -> None:
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
    """The first attempt succeeded, ended its action and had nothing to say: its row tells all."""
    return (
        finish.attempt_no == 1
        and finish.outcome == "succeeded"
        and finish.verdict.state is State.DONE
        and finish.answer is None
        and finish.verdict.reason is None
    )


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


def finished_attempt(finish: FinishRequest, owner: str, now: datetime) -> Attempt:
    return Attempt(
        attempt_id=finish.attempt_id,
        attempt_no=finish.attempt_no,
        occurrence_no=finish.occurrence_no,
        began_at=finish.began_at,
        ended_at=now if finish.ended_at is None else min(finish.ended_at, now),
        outcome=finish.outcome,
        error=finish.error,
        answer=finish.answer,
        owner=owner,
    )


def interrupted_attempt(settlement: SettleRequest, owner: str | None, now: datetime) -> Attempt:
    attempt = settlement.lapsed.attempt
    assert attempt is not None
    return Attempt(
        attempt_id=attempt.attempt_id,
        attempt_no=attempt.attempt_no,
        occurrence_no=attempt.occurrence_no,
        began_at=attempt.began_at,
        deadline=attempt.deadline,
        ended_at=now,
        outcome="interrupted",
        error=settlement.reason,
        owner=owner,
    )


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
