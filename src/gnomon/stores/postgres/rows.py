"""Records to model values, by position: the select lists in `queries/` keep these orders."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from gnomon.contracts.store import BegunAttempt, LapsedRow
from gnomon.model.action import Action, Attempt, Meta, State, Status
from gnomon.model.codec import read_attempt, read_spec
from gnomon.model.spec import Spec
from gnomon.stores.postgres.connection import Row

SPECS_CACHED = 1024
SPEC_CHARS_CACHED = 4096  # longer ones seldom repeat; so the cache stays within a few megabytes

_STATES = {str(state): state for state in State}


class Decoder:
    """Turns rows into values. Actions stored in bulk often share one spec text, so it remembers."""

    def __init__(self) -> None:
        self._specs: dict[str, Spec] = {}

    def spec(self, text: str) -> Spec:
        found = self._specs.get(text)
        if found is None:
            found = read_spec(text)
            if len(text) <= SPEC_CHARS_CACHED:
                if len(self._specs) >= SPECS_CACHED:
                    self._specs.clear()
                self._specs[text] = found
        return found

    def action_of(self, row: Row) -> Action:
        """Live or finished: the columns of `get_live`, `get_finished` and the listing."""
        return Action(
            meta=Meta(id=row[1], guid=row[2], shard=row[0], created_at=row[5], updated_at=row[6]),
            spec=self.spec(row[3]),
            status=_live_status(row) if row[27] is None else _finished_status(row),
        )

    def begun_of(self, row: Row) -> BegunAttempt:
        """The columns of `begin`, `recall` and `arrive`; their last one is the series."""
        return BegunAttempt(
            row[0], row[1], row[2], row[3], self.spec(row[4]), _begun_status(row), row[5], row[6],
            row[7], row[8], row[-1],
        )  # fmt: skip

    def lapsed_of(self, row: Row) -> LapsedRow:
        """The columns of `lapsed_running`, `lapsed_expired` and `overdue`."""
        running: bool = row[21]
        attempt = None
        if running:
            attempt = Attempt(
                attempt_id=row[3], attempt_no=row[9], occurrence_no=row[10], began_at=row[6],
                deadline=row[7], owner=row[20],
            )  # fmt: skip
        return LapsedRow(
            shard=row[0], id=row[1], guid=row[2], spec=self.spec(row[4]), status=_begun_status(row),
            attempt=attempt, running=running, scheduled_at=row[5], now=row[22],
        )  # fmt: skip


def encode_attempt(attempt: Attempt) -> str:
    return msgspec.json.encode(attempt).decode()


def plain_success(row: Row) -> Attempt:
    """The attempt of a one-shot that succeeded with nothing to tell, out of `attempts_finished`."""
    return _succeeded(row[0], row[1], row[2], row[3], ended_at=row[4])


def logged_attempt(row: Row) -> Attempt:
    """The columns of `attempts`."""
    return Attempt(
        attempt_id=row[0], attempt_no=row[1], occurrence_no=row[2], began_at=row[3],
        ended_at=row[4], outcome=row[5], error=row[6], answer=row[7], owner=row[8],
    )  # fmt: skip


def _succeeded(
    attempt_id: UUID, attempt_no: int, occurrence_no: int, began_at: datetime, *, ended_at: datetime
) -> Attempt:
    return Attempt(
        attempt_id=attempt_id, attempt_no=attempt_no, occurrence_no=occurrence_no,
        began_at=began_at, ended_at=ended_at, outcome="succeeded",
    )  # fmt: skip


def _begun_status(row: Row) -> Status:
    return Status(
        scheduled_at=row[5],
        occurrence_no=row[10],
        occurrence_at=row[11],
        expires_at=row[12],
        attempts=row[9],
        succeeded=row[13],
        failed=row[14],
        interrupted=row[15],
        consecutive_failures=row[16],
        consecutive_interruptions=row[17],
        occurrence_failures=row[18],
        last_attempt=read_attempt(row[19]),
    )


def _live_status(row: Row) -> Status:
    state = _STATES[row[4]]
    begun: int | None = row[20]
    current = None
    if row[21]:
        current = Attempt(
            attempt_id=row[22], attempt_no=row[20], occurrence_no=row[7], began_at=row[23],
            deadline=row[24], owner=row[25],
        )  # fmt: skip
    due = None
    if state is State.ACTIVE:
        due = row[17] if row[19] is None else row[19]
    return Status(
        state=state,
        scheduled_at=due,
        occurrence_no=row[7],
        occurrence_at=row[8],
        expires_at=row[18],
        attempts=row[9] if begun is None else begun,
        succeeded=row[10],
        failed=row[11],
        interrupted=row[12],
        consecutive_failures=row[13],
        consecutive_interruptions=row[14],
        occurrence_failures=row[15],
        current_attempt=current,
        last_attempt=read_attempt(row[16]),
    )


def _finished_status(row: Row) -> Status:
    last = read_attempt(row[16])
    if last is None and row[22] is not None:
        last = _succeeded(row[22], row[9], row[7], row[23], ended_at=row[27])
    return Status(
        state=_STATES[row[4]],
        occurrence_no=row[7],
        occurrence_at=row[8],
        attempts=row[9],
        succeeded=row[10],
        failed=row[11],
        interrupted=row[12],
        consecutive_failures=row[13],
        consecutive_interruptions=row[14],
        occurrence_failures=row[15],
        last_attempt=last,
        reason=row[26],
        finished_at=row[27],
    )
