"""Why an action waits: the cases that a store cannot easily be brought into."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest

from gnomon.contracts.store import LimitUse, ShardLock, WaitFacts, WorkerRow
from gnomon.contracts.store.reports import BEHIND_MAX
from gnomon.model.action import Action, Attempt, Meta, Status
from gnomon.model.limits import Limit, LimitKind
from gnomon.model.spec import Kafka, Mock, Spec
from gnomon.model.why import WaitReason, Why
from gnomon.scheduler.wait_reason import explain_wait

NOW = datetime(2030, 1, 1, tzinfo=UTC)
GUID = UUID(int=1)
MINUTE = timedelta(minutes=1)


def facts(
    spec: Spec | None = None, *, status: dict[str, Any] | None = None, **changes: Any
) -> WaitFacts:
    """An action that is due, and nothing that keeps it from beginning."""
    given = WaitFacts(
        now=NOW,
        action=Action(
            meta=Meta(id="a", guid=GUID, shard=3, created_at=NOW, updated_at=NOW),
            spec=spec or Spec(action=Mock()),
            status=Status(**({"scheduled_at": NOW - MINUTE} | (status or {}))),
        ),
        lock=ShardLock(
            shard=3, lease_guid=GUID, owner="w1", beat=1, silent_for=timedelta(0), started_at=NOW
        ),
        workers=[WorkerRow(worker=GUID, owner="w1", process=None, silent_for=timedelta(0))],
        limits=[],
    )
    return msgspec.structs.replace(given, **changes)


def told(given: WaitFacts) -> Why:
    return explain_wait(given, here=given.now)


def use(kind: LimitKind, name: str, *, granted: int = 0, wanted: int = 0, **limit: Any) -> LimitUse:
    return LimitUse(limit=Limit(kind=kind, name=name, **limit), granted=granted, wanted=wanted)


def test_what_nothing_holds_up_begins_soon() -> None:
    """The owner of its shard is named."""
    assert WaitReason.SOON is told(facts()).code
    assert "w1" in told(facts()).sentence


def test_a_worker_that_has_been_silent_is_none() -> None:
    """It may be dead."""
    silent = WorkerRow(worker=GUID, owner="w1", process=None, silent_for=MINUTE)
    assert WaitReason.NO_WORKER is told(facts(workers=[silent])).code


def test_an_owner_that_has_been_silent_is_none() -> None:
    """Another worker lives, and will take the shard."""
    lock = msgspec.structs.replace(facts().lock, silent_for=MINUTE)
    assert WaitReason.UNOWNED is told(facts(lock=lock)).code


def test_an_attempt_past_its_deadline_has_lapsed() -> None:
    """Just past it somebody may still be about to sweep it."""
    attempt = Attempt(
        attempt_id=GUID, attempt_no=1, occurrence_no=1, began_at=NOW - MINUTE, deadline=NOW
    )
    running = facts(status={"current_attempt": attempt})
    assert WaitReason.RUNNING is told(running).code
    assert WaitReason.LAPSED is told(msgspec.structs.replace(running, now=NOW + MINUTE)).code


def test_past_its_deadline_it_expires() -> None:
    """Before anybody is asked to serve it."""
    assert WaitReason.EXPIRED is told(facts(status={"expires_at": NOW}, workers=[])).code


@pytest.mark.parametrize(
    ("limit", "code"),
    [
        (use(LimitKind.QUEUE, "default", parallel=2, granted=2, wanted=3), WaitReason.LIMIT),
        (use(LimitKind.QUEUE, "default", parallel=2, granted=2, wanted=2), WaitReason.SOON),
        (use(LimitKind.QUEUE, "default", parallel=2, granted=1, wanted=3), WaitReason.SOON),
        (use(LimitKind.TARGET, "hub", parallel=0), WaitReason.LIMIT),
        (use(LimitKind.TARGET, "other", parallel=0), WaitReason.SOON),
        (use(LimitKind.STAGE, "default", parallel=0), WaitReason.SOON),
        (use(LimitKind.QUEUE, "default", rate=2.0), WaitReason.SOON),
    ],
)
def test_limits_of_its_queue_and_target_count(limit: LimitUse, code: WaitReason) -> None:
    """While they are used up."""
    spec = Spec(action=Kafka(target="hub", topic="t"))
    assert code is told(facts(spec, limits=[limit])).code


def test_a_rate_holds_up_who_comes_behind_others() -> None:
    """Alone it would have begun."""
    rated = use(LimitKind.QUEUE, "default", rate=2.0)
    found = told(facts(limits=[rated], behind=7))
    assert WaitReason.LIMIT is found.code
    assert "2 a second" in found.sentence


def test_so_many_or_more_come_before_it() -> None:
    """Nobody counts on."""
    assert f"{BEHIND_MAX} or more" in told(facts(behind=BEHIND_MAX)).sentence
