"""Pauses: what may be said of them, and how they end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest

from gnomon.model.action import Action, Meta, Status
from gnomon.model.errors import InvalidSpec
from gnomon.model.ids import renewed_guid
from gnomon.model.pause import (
    REASON_CHARS_MAX,
    PauseTerms,
    decide_end,
    decide_resume,
    pause_sentence,
    pause_terms,
)
from gnomon.model.spec import CatchUp, Cron, Mock, Spec

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("until", "end"),
    [
        (None, None),
        ("2h", NOW + 2 * HOUR),
        ("PT2H", NOW + 2 * HOUR),
        (3600, NOW + HOUR),
        (HOUR, NOW + HOUR),
        ("2026-05-01T15:00+02:00", NOW + HOUR),
        (datetime(2026, 5, 1, 15, tzinfo=timezone(2 * HOUR)), NOW + HOUR),
    ],
)
def test_an_end_is_a_time_or_a_duration(until: Any, end: datetime | None) -> None:
    """A duration counts from the present that the database has."""
    found = pause_terms(None, until).end(NOW)
    assert end == found
    assert found is None or found.tzinfo is UTC


@pytest.mark.parametrize(
    "until",
    ["", "soon", "2h ago", "2026-05-01T15:00", NOW.replace(tzinfo=None), True, -5, "-PT5M", []],
)
def test_what_is_no_end_is_refused(until: Any) -> None:
    """With the option's name."""
    with pytest.raises(InvalidSpec) as raised:
        pause_terms(None, until)
    assert "until" == raised.value.path


@pytest.mark.parametrize("until", [NOW, NOW - HOUR, timedelta(0), timedelta.max])
def test_an_end_is_to_come(until: datetime | timedelta) -> None:
    """Also one that no calendar has is refused."""
    with pytest.raises(InvalidSpec, match="until"):
        PauseTerms(until=until).end(NOW)


@pytest.mark.parametrize(
    "reason", ["", " ", "a\nb", "\x00", "\ud800", "x" * (REASON_CHARS_MAX + 1), 5]
)
def test_a_reason_is_one_line(reason: Any) -> None:
    """Printable, and not longer than a line of a list."""
    with pytest.raises(InvalidSpec, match="reason"):
        pause_terms(reason, None)
    assert "x" * REASON_CHARS_MAX == pause_terms("x" * REASON_CHARS_MAX, None).reason


def test_an_end_that_cannot_be_decided_is_due_now() -> None:
    """A zone that no host knows: `resume` tells who called it, here nobody did."""
    policy = Cron(expression="* * * * *", timezone="Mars/Olympus")
    action = Action(
        meta=Meta(id="a", guid=UUID(int=5), shard=0, created_at=NOW, updated_at=NOW),
        spec=Spec(action=Mock(), start_at=NOW, policy=policy, catch_up=CatchUp(mode="none")),
        status=Status(occurrence_at=NOW),
    )
    with pytest.raises(Exception, match="Mars"):
        decide_resume(action, NOW + HOUR)
    assert (NOW + HOUR, NOW, None) == decide_end(action, NOW + HOUR)


def test_the_sentence_says_why_and_until_when() -> None:
    """Whatever of both is known."""
    assert "It is paused: nothing begins until it is resumed." == pause_sentence(None, None)
    assert "It is paused: the move; nothing begins until it is resumed." == (
        pause_sentence("the move", None)
    )
    assert (
        "It is paused: the move; nothing begins until 2026-05-01 12:00:00 UTC, when it goes on by "
        "itself." == pause_sentence("the move", NOW)
    )


def test_a_renewed_guid_has_the_time_of_its_batch() -> None:
    """Different for each action, the same each time, and a UUIDv7."""
    batch = UUID("01a1e91f-a93d-7966-9083-2e7ccec04c63")
    guids = {renewed_guid(batch, UUID(int=number)) for number in range(100)}
    assert 100 == len(guids)
    assert guids == {renewed_guid(batch, UUID(int=number)) for number in range(100)}
    assert {(7, batch.bytes[:6])} == {(guid.version, guid.bytes[:6]) for guid in guids}
