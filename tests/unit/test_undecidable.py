"""A stored spec about which nothing can be decided ends its action, visibly, and nothing else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from gnomon.model.action import State, Status
from gnomon.model.outcome import Abandoned, Cancelled, Failed, Interrupted, Outcome, Succeeded
from gnomon.model.spec import CatchUp, Cron, Mock, Periodic, Policy, Retry, Spec
from gnomon.model.transition import UNDECIDABLE, MissedOccurrences, decide

START = datetime(2026, 1, 1, tzinfo=UTC)
GUID = UUID(int=1)
POISONS: dict[str, Policy] = {
    "unknown zone": Cron(expression="* * * * *", timezone="Europe/Kyyv"),
    "zone outside": Cron(expression="* * * * *", timezone="../../etc/passwd"),
    "no expression": Cron(expression="every day"),
    "no period": Periodic(period=timedelta(0)),
    "beyond the calendar": Periodic(period=timedelta.max),
}
RETRIES = Retry(max=5)


def spec_of(policy: Policy) -> Spec:
    catch_up = CatchUp(mode="all", max=5)
    return Spec(action=Mock(), policy=policy, start_at=START, retry=RETRIES, catch_up=catch_up)


@pytest.mark.parametrize("policy", POISONS.values(), ids=POISONS)
@pytest.mark.parametrize(
    ("event", "counted"),
    [(Succeeded(), (1, 0, 0)), (Failed(error="no"), (0, 1, 0)), (MissedOccurrences(), (0, 0, 0))],
    ids=["succeeded", "failed", "missed"],
)
def test_what_cannot_be_decided_is_dead_with_its_reason(
    policy: Policy, event: Outcome | MissedOccurrences, counted: tuple[int, int, int]
) -> None:
    """No exception; the event is counted, and the reason says what is wrong."""
    status = Status(attempts=1, occurrence_at=START, scheduled_at=START)
    verdict = decide(spec_of(policy), status, event, guid=GUID, now=START + timedelta(days=1))
    assert State.DEAD == verdict.state
    assert verdict.scheduled_at is None
    assert (verdict.reason or "").startswith(UNDECIDABLE)
    assert counted == (verdict.succeeded, verdict.failed, verdict.interrupted)


@pytest.mark.parametrize(
    ("event", "counted"),
    [
        (Interrupted(), (0, 0, 1)),
        (Abandoned(), (0, 0, 1)),
        (Cancelled(reason="enough"), (1, 0, 0)),
    ],
    ids=["interrupted", "abandoned", "cancelled"],
)
def test_every_event_is_counted_when_nothing_can_be_decided(
    event: Outcome, counted: tuple[int, int, int]
) -> None:
    """Attempts stay the sum of their ends, whatever is wrong with the row."""
    broken = Status(attempts=1, occurrence_at=START, consecutive_interruptions="x")  # type: ignore[arg-type]
    spec = Spec(action=Mock(), deadline=datetime(2030, 1, 1), interruptions_max=0)  # noqa: DTZ001 - the poison
    verdict = decide(spec, broken, event, guid=GUID, now=START)
    assert counted == (verdict.succeeded, verdict.failed, verdict.interrupted)


def test_the_occurrence_that_was_due_is_tried_again_when_it_was_not_performed() -> None:
    """An interruption needs no calendar: the same occurrence goes on."""
    status = Status(attempts=1, occurrence_at=START, scheduled_at=START)
    spec = spec_of(POISONS["unknown zone"])
    verdict = decide(spec, status, Interrupted(planned=True), guid=GUID, now=START)
    assert State.ACTIVE == verdict.state
