"""Admission: defaults filled in, rules that compare with the present, and how a pause ends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest

from gnomon.contracts.store import ActionDraft, Installation
from gnomon.model.action import Action, Meta, Status
from gnomon.model.errors import InvalidRequest, InvalidSpec
from gnomon.model.pause import decide_resume
from gnomon.model.spec import CatchUp, Cron, Mock, Periodic, Spec
from gnomon.scheduler.admission import WAKE_WITHIN, Plans, Request, admit, shards_to_wake

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
GUID = UUID(int=5)
INSTALLATION = Installation(
    id=UUID(int=1), shard_count=8, schema_version=1, durability="local", engine="sqlite"
)


def admitted(request: Request) -> ActionDraft:
    return admit(
        request, guid=GUID, now=NOW, installation=INSTALLATION, retention=timedelta(days=7)
    )


def spec(**fields: object) -> Spec:
    return Spec(action=Mock(), **fields)  # type: ignore[arg-type]


def test_an_action_without_a_time_is_due_now() -> None:
    """Immediate actions take the same way."""
    draft = admitted(Request(spec=spec()))
    assert (NOW, NOW) == (draft.scheduled_at, draft.spec.start_at)
    assert str(GUID) == draft.id
    assert timedelta(days=7) == draft.retention


def test_ten_minutes_in_the_past_is_the_limit() -> None:
    """M2, to the microsecond."""
    edge = NOW - timedelta(minutes=10)
    assert edge == admitted(Request(spec=spec(start_at=edge))).scheduled_at
    with pytest.raises(InvalidSpec, match="start_at"):
        admitted(Request(spec=spec(start_at=edge - timedelta(microseconds=1))))


def test_a_deadline_that_passed_is_refused() -> None:
    """Nothing is stored that can never begin."""
    with pytest.raises(InvalidSpec, match="deadline"):
        admitted(Request(spec=spec(deadline=NOW)))


def test_a_deadline_before_the_first_cron_time_is_refused() -> None:
    """The first occurrence counts, not start_at."""
    cron = Cron(expression="0 0 1 1 *")
    with pytest.raises(InvalidSpec, match="first occurrence"):
        admitted(Request(spec=spec(policy=cron, deadline=NOW + timedelta(days=2))))


def test_the_same_key_gives_the_same_generation_and_another_key_another() -> None:
    """R14: a repeat is recognisable even after a fail-over that lost the first."""
    first = admitted(Request(id="a", key="k", spec=spec()))
    again = admitted(Request(id="a", key="k", spec=spec()))
    other = admitted(Request(id="a", key="l", spec=spec()))
    assert first.guid == again.guid != other.guid
    assert first.keyed


@pytest.mark.parametrize("key", ["", "x" * 256, "a\nb", "a\x00b"])
def test_a_bad_key_is_refused(key: str) -> None:
    """Keys are short and printable."""
    with pytest.raises(InvalidRequest, match="idempotency key"):
        admitted(Request(id="a", key=key, spec=spec()))


def test_jitter_is_the_same_for_the_same_occurrence() -> None:
    """Due times are decided once, without randomness."""
    draft = admitted(Request(spec=spec(jitter=timedelta(minutes=1))))
    again = admitted(Request(spec=spec(jitter=timedelta(minutes=1))))
    assert draft.scheduled_at == again.scheduled_at
    assert timedelta(0) <= draft.scheduled_at - NOW < timedelta(minutes=1)


DAYS = Periodic(period=timedelta(days=1))


@pytest.mark.parametrize(
    "shared",
    [
        spec(),
        spec(start_at=NOW + timedelta(hours=1), active=timedelta(minutes=5)),
        spec(jitter=timedelta(minutes=1), active=timedelta(minutes=5)),
        spec(policy=DAYS, jitter=timedelta(hours=1), catch_up=CatchUp(mode="none")),
        spec(retention=timedelta(0), deadline=NOW + timedelta(days=1)),
    ],
)
def test_the_actions_of_a_bulk_are_admitted_as_each_would_be_alone(shared: Spec) -> None:
    """What they share is worked out once; name, key, delay and jitter are each one's own."""
    other = msgspec.structs.replace(shared, priority=1)
    asked = [
        Request(spec=shared),
        Request(spec=shared, id="named"),
        Request(spec=shared, id="keyed", key="k"),
        Request(spec=shared, delay=timedelta(minutes=3)),
        Request(spec=other),
        Request(spec=shared),
    ]
    plans: Plans = {}
    for number, request in enumerate(asked):
        terms: Any = {
            "guid": UUID(int=number), "now": NOW, "installation": INSTALLATION,
            "retention": timedelta(days=7),
        }  # fmt: skip
        assert admit(request, **terms) == admit(request, **terms, plans=plans)
    assert 2 == len(plans)


def test_a_bad_spec_in_a_bulk_is_refused_each_time() -> None:
    """Nothing is remembered of it; nor does a deadline between the jittered times spoil a bulk."""
    plans: Plans = {}
    terms: Any = {"now": NOW, "installation": INSTALLATION, "retention": timedelta(days=7)}
    bad = Request(spec=spec(deadline=NOW))
    for number in range(2):
        with pytest.raises(InvalidSpec, match="deadline"):
            admit(bad, guid=UUID(int=number), **terms, plans=plans)
    shaky = Request(spec=spec(jitter=timedelta(minutes=2), deadline=NOW + timedelta(minutes=1)))
    refused = 0
    for number in range(40):
        try:
            admit(shaky, guid=UUID(int=number), **terms, plans=plans)
        except InvalidSpec:
            refused += 1
    assert 0 < refused < 40


def paused(**fields: object) -> Action:
    meta = Meta(id="a", guid=GUID, shard=0, created_at=NOW, updated_at=NOW)
    status = Status(scheduled_at=NOW, occurrence_at=NOW, expires_at=None)
    return Action(meta=meta, spec=spec(start_at=NOW, **fields), status=status)


def test_resume_before_its_time_keeps_the_plan() -> None:
    """A pause that ends in time changes nothing."""
    assert (NOW, NOW, None) == decide_resume(paused(), NOW - timedelta(hours=1))


def test_resume_after_its_time_is_due_now() -> None:
    """A once action that was paused over its time happens when resumed."""
    late = NOW + timedelta(hours=1)
    assert (late, NOW, None) == decide_resume(paused(), late)


def test_resume_with_catch_up_none_goes_on_with_the_next_occurrence() -> None:
    """Missed occurrences are passed over if the spec says so."""
    action = paused(policy=Periodic(period=timedelta(minutes=10)), catch_up=CatchUp(mode="none"))
    scheduled, occurrence, expires = decide_resume(action, NOW + timedelta(minutes=25))
    assert NOW + timedelta(minutes=30) == scheduled == occurrence
    assert NOW + timedelta(minutes=40) == expires


def test_a_key_without_an_id_can_be_repeated() -> None:
    """Both are derived from the key: a repeat finds the action that the first call made."""
    first, second = (
        admit(
            Request(spec=spec(), key="k"), guid=UUID(int=number), now=NOW,
            installation=INSTALLATION, retention=timedelta(days=7),
        )
        for number in (1, 2)
    )  # fmt: skip
    assert (first.id, first.guid) == (second.id, second.guid)
    assert str(first.guid) == first.id


def test_a_key_belongs_to_its_token() -> None:
    """The same key from two tokens, or from none, makes three generations."""
    drafts = [
        admit(
            Request(id="a", spec=spec(), key="k"), guid=GUID, now=NOW, installation=INSTALLATION,
            retention=timedelta(days=7), actor=actor,
        )
        for actor in ("local", "ann", "bob", "ann")
    ]  # fmt: skip
    assert 3 == len({draft.guid for draft in drafts})
    assert drafts[1].guid == drafts[3].guid


def test_owners_are_woken_only_for_what_is_due_before_they_look_anyway() -> None:
    moments = (
        NOW - WAKE_WITHIN,
        NOW,
        NOW + WAKE_WITHIN / 2,
        NOW + WAKE_WITHIN,
        NOW + 2 * WAKE_WITHIN,
    )
    drafts = [
        msgspec.structs.replace(admitted(Request(spec=spec())), shard=shard, scheduled_at=at)
        for shard, at in enumerate(moments)
    ]
    assert {0, 1, 2} == shards_to_wake(drafts, NOW)
