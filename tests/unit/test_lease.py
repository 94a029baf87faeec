"""The rule of leasing, as shards and task tables share it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

import pytest

from gnomon.lease import LeaseTerms, LockWatch

SECOND = timedelta(seconds=1)
TERMS = LeaseTerms(lease=10 * SECOND, beat=SECOND, step_down=3 * SECOND)
OURS, OTHERS = UUID(int=1), UUID(int=2)


@dataclass
class Lock:
    lease_guid: UUID | None = OTHERS
    beat: int = 0
    silent_for: timedelta | None = 11 * SECOND


@dataclass
class Processes:
    own: str | None = "own"
    ended: tuple[str, ...] = ("gone",)

    def has_ended(self, process: str) -> bool:
        return process in self.ended


def test_trust_counts_from_when_the_beat_was_sent() -> None:
    """Less a margin before the moment at which another may begin."""
    assert 107.0 == TERMS.trusted_until(100.0)


@pytest.mark.parametrize(
    ("process", "silent_s", "is_dead"),
    [("gone", 2, True), ("gone", 1.9, False), ("lives", 60, False), (None, 60, False)],
)
def test_death_needs_two_witnesses(process: str | None, silent_s: float, is_dead: bool) -> None:
    """The machine, and the beats that did not come."""
    assert is_dead == TERMS.is_dead(process, timedelta(seconds=silent_s), Processes())


def test_free_lock_has_no_owner_to_be_dead() -> None:
    assert not TERMS.is_dead("gone", None, Processes())


def free_at(watch: LockWatch, lock: Lock, now: float) -> bool:
    watch.see(lock, now)
    return watch.is_free(lock, TERMS.lease, now)


def test_silent_lock_is_free_when_both_clocks_agree() -> None:
    """However long the database says that it has been silent, we must have seen it so ourselves."""
    watch = LockWatch()
    assert [False, False, True] == [free_at(watch, Lock(), now) for now in (0.0, 9.9, 10.0)]


def test_lock_that_beats_is_not_free() -> None:
    """On our own clock, whatever the database's says; nor before the database's agrees."""
    watch = LockWatch()
    assert [False, False] == [free_at(watch, Lock(beat=n), 11.0 * n) for n in (0, 1)]
    assert not free_at(watch, Lock(beat=1, silent_for=9 * SECOND), 60.0)


def test_lock_that_nobody_has_is_free_at_once() -> None:
    assert free_at(LockWatch(), Lock(lease_guid=None, silent_for=None), 0.0)


def test_lease_whose_answer_was_lost_is_asked_for_again_with_the_same_guid() -> None:
    """It is ours already; once that is settled, another one is drawn."""
    watch, tokens = LockWatch(), iter([OURS, UUID(int=3)])
    free = Lock(lease_guid=None, silent_for=None)
    assert OURS == watch.ask(free, lambda: next(tokens))
    mine = Lock(lease_guid=OURS, silent_for=timedelta(0))
    assert free_at(watch, mine, 0.0)
    assert OURS == watch.ask(mine, lambda: next(tokens))
    watch.forget()
    assert not free_at(watch, mine, 0.0)
    assert UUID(int=3) == watch.ask(free, lambda: next(tokens))
