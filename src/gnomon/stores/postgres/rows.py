"""Rows to model values, by the names of their columns."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

import msgspec

from gnomon.contracts.store import BegunAttempt, LapsedRow
from gnomon.model.action import Action, Attempt, Meta, State, Status
from gnomon.model.codec import read_attempt, read_spec
from gnomon.stores._specs import SpecCache
from gnomon.stores.postgres.connection import Row

_STATES = {str(state): state for state in State}


class Decoder:
    """Turns rows into values."""

    def __init__(self) -> None:
        self.spec = SpecCache().read

    def action_of(self, row: Row) -> Action:
        """Live or finished: the columns of `get_live`, `get_finished` and the listing. Its spec is
        its reader's own: he may change what is inside, and nobody else's attempt with it."""
        state = _STATES[row["state"]]
        return Action(
            meta=Meta(
                id=row["id"],
                guid=row["guid"],
                shard=row["shard_id"],
                created_at=row["created_at"],
                updated_at=row["updated_at"],
            ),
            spec=read_spec(row["spec"]),
            status=_finished_status(row) if state.is_terminal else _live_status(row),
        )

    def begun_of(self, row: Row) -> BegunAttempt:
        """The columns of `begin` and `find_begun`."""
        return BegunAttempt(
            row["shard_id"],
            row["id"],
            row["guid"],
            row["attempt_id"],
            self.spec(row["spec"]),
            _begun_status(row),
            row["due_at"],
            row["began_at"],
            row["deadline_at"],
            row["series"],
            row["need"],
        )

    def first_attempts(self, rows: Iterable[Row], now: datetime) -> list[BegunAttempt]:
        """The columns of `move_and_begin`: what is the same for all first attempts is not told, and
        a planned time only if it is not the due time."""
        begun = []
        for row in rows:
            spec, due = self.spec(row["spec"]), row["moment"]
            status = Status(
                scheduled_at=due,
                occurrence_no=row["occurrence_no"],
                occurrence_at=row["occurrence_at"] or due,
                attempts=1,
            )
            begun.append(
                BegunAttempt(
                    row["shard_id"],
                    row["id"],
                    row["guid"],
                    row["attempt_id"],
                    spec,
                    status,
                    due,
                    now,
                    now + spec.timeout,
                    row["series"],
                )
            )
        return begun

    def lapsed_of(self, row: Row) -> LapsedRow:
        """A row of `list_lapsed_running`, `list_orphans` or `adopt_overdue`."""
        running: bool = row["running"]
        attempt = None
        if running:
            attempt = Attempt(
                attempt_id=row["attempt_id"],
                attempt_no=row["attempts"],
                occurrence_no=row["occurrence_no"],
                began_at=row["began_at"],
                deadline=row["deadline_at"],
                owner=row["owner"],
            )
        return LapsedRow(
            shard=row["shard_id"],
            id=row["id"],
            guid=row["guid"],
            spec=self.spec(row["spec"]),
            status=_begun_status(row),
            attempt=attempt,
            running=running,
            scheduled_at=row["due_at"],
            now=row["now"],
        )


def encode_attempt(attempt: Attempt) -> str:
    return msgspec.json.encode(attempt).decode()


def plain_success(row: Row) -> Attempt:
    """The attempt of a one-shot that succeeded with nothing to tell."""
    return _succeeded(
        row["attempt_id"],
        row["attempts"],
        row["occurrence_no"],
        row["began_at"],
        ended_at=row["finished_at"],
    )


def logged_attempt(row: Row) -> Attempt:
    """The columns of `list_attempts`."""
    return Attempt(
        attempt_id=row["attempt_id"],
        attempt_no=row["attempt_no"],
        occurrence_no=row["occurrence_no"],
        began_at=row["began_at"],
        ended_at=row["ended_at"],
        outcome=row["outcome"],
        error=row["error"],
        answer=row["answer"],
        owner=row["owner"],
    )


def _succeeded(
    attempt_id: UUID, attempt_no: int, occurrence_no: int, began_at: datetime, *, ended_at: datetime
) -> Attempt:
    return Attempt(
        attempt_id=attempt_id,
        attempt_no=attempt_no,
        occurrence_no=occurrence_no,
        began_at=began_at,
        ended_at=ended_at,
        outcome="succeeded",
    )


def _begun_status(row: Row) -> Status:
    return Status(
        scheduled_at=row["due_at"],
        occurrence_no=row["occurrence_no"],
        occurrence_at=row["occurrence_at"],
        expires_at=row["expires_at"],
        attempts=row["attempts"],
        succeeded=row["succeeded"],
        failed=row["failed"],
        interrupted=row["interrupted"],
        consecutive_failures=row["consecutive_failures"],
        consecutive_interruptions=row["consecutive_interruptions"],
        occurrence_failures=row["occurrence_failures"],
        last_attempt=read_attempt(row["last_attempt"]),
    )


def _live_status(row: Row) -> Status:
    state = _STATES[row["state"]]
    begun: int | None = row["begun"]
    current = None
    if row["running"]:
        current = Attempt(
            attempt_id=row["attempt_id"],
            attempt_no=row["begun"],
            occurrence_no=row["occurrence_no"],
            began_at=row["began_at"],
            deadline=row["deadline_at"],
            owner=row["owner"],
        )
    due = None
    if state is State.ACTIVE:
        due = row["scheduled_at"] if row["due_at"] is None else row["due_at"]
    return Status(
        state=state,
        scheduled_at=due,
        occurrence_no=row["occurrence_no"],
        occurrence_at=row["occurrence_at"],
        expires_at=row["expires_at"],
        attempts=row["attempts"] if begun is None else begun,
        succeeded=row["succeeded"],
        failed=row["failed"],
        interrupted=row["interrupted"],
        consecutive_failures=row["consecutive_failures"],
        consecutive_interruptions=row["consecutive_interruptions"],
        occurrence_failures=row["occurrence_failures"],
        need=row["need"] or None,
        current_attempt=current,
        last_attempt=read_attempt(row["last_attempt"]),
        reason=row["reason"],
        paused_until=row["paused_until"],
    )


def _finished_status(row: Row) -> Status:
    last = read_attempt(row["last_attempt"])
    if last is None and row["attempt_id"] is not None:
        last = _succeeded(
            row["attempt_id"],
            row["attempts"],
            row["occurrence_no"],
            row["began_at"],
            ended_at=row["finished_at"],
        )
    return Status(
        state=_STATES[row["state"]],
        occurrence_no=row["occurrence_no"],
        occurrence_at=row["occurrence_at"],
        attempts=row["attempts"],
        succeeded=row["succeeded"],
        failed=row["failed"],
        interrupted=row["interrupted"],
        consecutive_failures=row["consecutive_failures"],
        consecutive_interruptions=row["consecutive_interruptions"],
        occurrence_failures=row["occurrence_failures"],
        last_attempt=last,
        reason=row["reason"],
        finished_at=row["finished_at"],
    )
