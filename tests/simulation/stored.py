"""The rules on what is stored: while things happen, and when the world has come to rest."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from gnomon.contracts.store import SettleRequest
from gnomon.model.spec import Once
from gnomon.stores.sqlite.queries import SQL
from gnomon.stores.sqlite.rows import micros, moment
from tests.simulation.crowd import LAG
from tests.simulation.invariants import Generation, Rules
from tests.simulation.steps import SteppedClock

OVERDUE_MAX = timedelta(seconds=3)  # at rest a row may be due this long
AHEAD_MAX = timedelta(seconds=170)  # nothing is planned farther ahead: less than a clock's skew

# What was written by somebody's clock, and so must be the database's.
PAST_COLUMNS = {
    "scheduled_action": ("created_at", "updated_at"),
    "incoming_queue": ("created_at",),
    "finished_action": ("created_at", "updated_at", "finished_at"),
    "attempt_log": ("ended_at",),
    "shard_lock": ("heartbeat_at", "last_processing_start_at", "incoming_mark"),
    "worker": ("started_at", "heartbeat_at"),
}
PLANNED_COLUMNS = {
    "scheduled_action": ("scheduled_at", "occurrence_at", "expires_at", "paused_until"),
    "incoming_queue": ("scheduled_at",),
    # What is armed begins a little later.
    "processing_queue": ("scheduled_at", "deadline_at", "began_at"),
    "finished_action": ("began_at",),
    "attempt_log": ("began_at",),
}


def _bounds_query(tables: dict[str, tuple[str, ...]]) -> str:
    return " UNION ALL ".join(
        f"SELECT '{table}.{column}', min({column}), max({column}) FROM {table}"
        for table, columns in tables.items()
        for column in columns
    )


PAST_QUERY = _bounds_query(PAST_COLUMNS)
PLANNED_QUERY = _bounds_query(PLANNED_COLUMNS)
ROW_QUERY = (
    "SELECT running, swept, attempt_id, scheduled_at FROM processing_queue"
    " WHERE shard_id = ? AND guid = ?"
)
LIVE_QUERY = """
SELECT a.guid, a.id, a.state, a.succeeded, a.failed, a.occurrence_no,
       q.scheduled_at, q.running, q.deadline_at, a.shard_id, a.queue, a.priority
FROM scheduled_action AS a
LEFT JOIN processing_queue AS q ON q.shard_id = a.shard_id AND q.guid = a.guid
"""

PAUSED_QUERY = "SELECT id, paused_until FROM scheduled_action WHERE paused_until IS NOT NULL"
# A change takes the idle row of its old generation with it: there is none at any moment.
STALE_QUERY = """
SELECT q.guid FROM processing_queue AS q
LEFT JOIN scheduled_action AS a ON a.guid = q.guid
WHERE a.guid IS NULL AND q.running = 0
"""
LEFT_QUERIES = {
    "processing_queue": """
        SELECT q.owner, q.attempt_id FROM processing_queue AS q
        JOIN scheduled_action AS a ON a.shard_id = q.shard_id AND a.guid = q.guid
        WHERE q.running = 1""",
    "shard_lock": "SELECT owner, NULL FROM shard_lock WHERE beat > 0",
    "worker": "SELECT owner, NULL FROM worker",
}


class StoredRules:
    """Looks into the tables."""

    def __init__(
        self, connection: sqlite3.Connection, rules: Rules, clock: SteppedClock, lease: timedelta
    ) -> None:
        self._connection = connection
        self._rules = rules
        self._clock = clock
        self._history = rules.history
        self._lease = lease
        self._archived: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        rules.is_settled = self._is_settled

    def _is_settled(self, settle: SettleRequest) -> bool:
        """Whether a settlement that was just asked for was written."""
        lapsed, verdict = settle.lapsed, settle.verdict
        made = self._rules.generations[lapsed.guid]
        if self._rules.current.get(lapsed.id) is not made:
            return False
        row = self._connection.execute(ROW_QUERY, (lapsed.shard, lapsed.guid.bytes)).fetchone()
        if verdict.state.is_terminal:
            return row is None
        assert verdict.scheduled_at is not None
        if row is None or row[3] != micros(verdict.scheduled_at) or row[0]:
            return False
        return bool(row[1]) if lapsed.running else True

    # -- at any moment ----------------------------------------------------------------------------

    def check_quickly(self) -> None:
        """One row for each active action; counters add up."""
        for query in ("doctor_counters", "doctor_one_row"):
            for rule, subject, detail in self._connection.execute(SQL[query]):
                self._history.violate(rule, subject, detail)
        for (guid,) in self._connection.execute(STALE_QUERY):
            self._history.violate("stale_row", guid.hex())

    def check(self) -> None:
        self.check_quickly()
        for query in ("doctor_scheduled", "doctor_lock_rows"):
            for rule, subject, detail in self._connection.execute(SQL[query]):
                self._history.violate(rule, subject, detail)
        self._check_clocks()
        self._check_archive()

    def _check_clocks(self) -> None:
        """No column holds the clock of a worker or of a user's machine."""
        # Marks lag; what is foreign is off by much more.
        first, last = micros(self._clock.first - LAG), micros(self._clock.last)
        for column, least, most in self._connection.execute(PAST_QUERY):
            if least is not None and not first <= least <= most <= last:
                self._history.violate("foreign_clock", column, moment(least), moment(most))
        for column, least, most in self._connection.execute(PLANNED_QUERY):
            early = micros(self._clock.first - timedelta(seconds=10))
            late = micros(self._clock.last + AHEAD_MAX)
            if least is not None and not early <= least <= most <= late:
                self._history.violate("foreign_clock", column, moment(least), moment(most))

    def _check_archive(self) -> None:
        """What is finished stays as it is until its retention is over."""
        rows: dict[tuple[Any, ...], tuple[Any, ...]] = {
            (row[0], row[2], row[20]): row
            for row in self._connection.execute("SELECT * FROM finished_action")
        }
        for key, row in self._archived.items():
            if key not in rows:
                if row[21] > micros(self._clock.last):
                    self._history.violate("purged_too_early", *key[:1])
            elif rows[key] != row:
                self._history.violate("finished_changed", *key[:1])
        self._archived = rows

    # -- at rest ----------------------------------------------------------------------------------

    def unrest(self) -> str | None:
        """Why the world is not at rest yet; None if it is."""
        return next(self._unrest(self._clock.now()), None)

    def _unrest(self, now: datetime) -> Iterator[str]:
        (waiting,) = self._connection.execute("SELECT count(*) FROM incoming_queue").fetchone()
        if waiting:
            yield f"{waiting} rows were never moved"
        for row in self._connection.execute(LIVE_QUERY):
            _, id, state, *_, due_us, running, deadline_us, _, _, _ = row
            if state != "active":
                continue
            if running and moment(deadline_us) + self._lease < now:
                yield f"{id} runs past its deadline"
            elif due_us is not None and not running and moment(due_us) + OVERDUE_MAX < now:
                yield f"{id} is due since {moment(due_us)}"
        for id, until_us in self._connection.execute(PAUSED_QUERY):
            if moment(until_us) + OVERDUE_MAX < now:
                yield f"{id} is paused past {moment(until_us)}"
        if self._connection.execute("SELECT 1 FROM processing_queue WHERE swept = 1").fetchone():
            yield "an interrupted attempt is not followed by another"

    def check_at_rest(self) -> None:
        self.check()
        self._check_live()
        self._check_finished()
        for made in self._rules.generations.values():
            self._check_occurrences(made)

    def check_left_behind(self, owners: set[str]) -> None:
        """Who left cleanly left nothing: no attempt, no shard that it knew of, not its name."""
        for table, query in LEFT_QUERIES.items():
            for owner, attempt in self._connection.execute(query):
                is_known = attempt is None or UUID(bytes=attempt) not in self._rules.forgotten
                if owner in owners and is_known:
                    self._history.violate("left_behind", table, owner)

    def _check_live(self) -> None:
        """Every acknowledged action is there, in the right generation, counted right."""
        current = dict(self._rules.current)
        for guid, id, state, succeeded, failed, number, *_ in self._connection.execute(LIVE_QUERY):
            made = current.pop(id, None)
            if made is None or made.guid != UUID(bytes=guid):
                self._history.violate("live_differs", id, made, state)
                continue
            found, known = (succeeded, failed, number), (made.succeeded, made.failed)
            if found != (*known, made.occurrence_no):
                self._history.violate("counted_wrong", made, found, (*known, made.occurrence_no))
        for made in current.values():
            self._history.violate("lost", made)

    def _check_finished(self) -> None:
        rows = {
            (id, UUID(bytes=guid)): (state, succeeded, failed, reason)
            for id, guid, state, succeeded, failed, reason in self._connection.execute(
                "SELECT id, guid, state, succeeded, failed, reason FROM finished_action"
            )
        }
        for made in self._rules.generations.values():
            if made.end in (None, "superseded"):
                continue
            row = rows.get((made.id, made.guid))
            if row is None:
                if made.spec.retention is None:
                    self._history.violate("finished_lost", made, made.end)
                continue
            if row[:3] != (made.end, made.succeeded, made.failed):
                known = (made.end, made.succeeded, made.failed)
                self._history.violate("counted_wrong", made, row, known)
            if made.end != "done" and not row[3]:
                self._history.violate("ended_without_reason", made, row)

    def _check_occurrences(self, made: Generation) -> None:
        """Every occurrence before the present one was attempted, or ended with a reason."""
        for number in range(made.first_occurrence_no, made.occurrence_no):
            if number not in made.begun_occurrences and number not in made.passed_occurrences:
                self._history.violate("occurrence_lost", made, number)
        if made.end == "done" and isinstance(made.spec.policy, Once) and made.succeeded != 1:
            self._history.violate("once_not_once", made, made.succeeded)
