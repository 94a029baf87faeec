"""Failed actions are grouped by what failed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from gnomon.contracts.store import FailedAction
from gnomon.scheduler.failure_groups import NAMES_MAX, group_failures

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def failed(number: int, error: str, *, is_dead: bool = True) -> FailedAction:
    return FailedAction(
        id=f"a{number}",
        queue=f"q{number % 2}",
        is_dead=is_dead,
        at=NOW + timedelta(seconds=number),
        need="function f",
        error=error,
    )


def test_the_largest_group_is_first_and_shows_the_newest() -> None:
    """Its example, its times and its ids."""
    members = [failed(number, f"row {number} is gone", is_dead=number > 0) for number in range(30)]
    first, second = group_failures([failed(99, "other"), *members], limit=10)
    assert ("row <n> is gone", 30, 29) == (first.fingerprint, first.count, first.dead)
    assert ("row 29 is gone", ["q0", "q1"]) == (first.error, first.queues)
    assert (members[0].at, members[-1].at) == (first.first_at, first.last_at)
    assert [f"a{number}" for number in range(29, 29 - NAMES_MAX, -1)] == first.ids
    assert ("other", 1) == (second.fingerprint, second.count)


def test_no_more_groups_than_wanted() -> None:
    """Letters differ, so each is its own cause."""
    many = [failed(number, "x" * (number + 1)) for number in range(10)]
    assert 3 == len(group_failures(many, limit=3))
