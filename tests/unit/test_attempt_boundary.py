"""The attempt boundary keeps what was raised inside, and nothing more than it is to keep."""

from __future__ import annotations

import gc
import weakref
from concurrent.futures import Future

import pytest

from gnomon.boundary import hand_on, performed
from gnomon.model.attempt_boundary import AttemptBoundary


def test_what_is_raised_inside_is_kept() -> None:
    error = ValueError("no")
    with AttemptBoundary(Exception) as attempt:
        raise error
    assert error is attempt.error is attempt.failure


def test_what_ends_well_has_no_error() -> None:
    with AttemptBoundary(Exception) as attempt:
        pass
    assert attempt.error is None


def test_who_enters_it_again_finds_nothing_of_before() -> None:
    """A slot has one for all of its attempts: the error of one is not the next one's."""
    attempt = AttemptBoundary(Exception)
    with attempt:
        raise ValueError("no")
    with attempt:
        assert attempt.error is None
    assert attempt.error is None


@pytest.mark.parametrize("error", [LookupError, SystemExit, KeyboardInterrupt])
def test_what_is_not_to_be_kept_goes_through(error: type[BaseException]) -> None:
    """A class in `passing`, and one that is none of the kept ones."""
    with pytest.raises(error), AttemptBoundary(Exception, passing=(LookupError,)):
        raise error


def test_more_than_exceptions_can_be_kept() -> None:
    with AttemptBoundary((Exception, SystemExit)) as attempt:
        raise SystemExit(3)
    assert isinstance(attempt.error, SystemExit)


def test_what_a_thread_performed_is_a_value() -> None:
    """Whatever it raised: a thread has nobody above it who could catch that."""
    assert (7, None) == performed(lambda: 7)
    result, error = performed(_leave)
    assert result is None
    assert isinstance(error, SystemExit)


def test_who_waits_for_a_thread_gets_what_it_returned_or_raised() -> None:
    ended: Future[int] = Future()
    hand_on(ended, lambda: 7)
    assert 7 == ended.result()
    failed: Future[int] = Future()
    hand_on(failed, _leave)
    assert isinstance(failed.exception(), SystemExit)


def test_an_error_that_was_handed_on_is_held_by_nobody_else() -> None:
    """Its traceback holds the frames that it came through: none of them holds it in turn."""
    gc.disable()
    try:
        _, error = performed(_leave)
        assert error is not None
        held = weakref.ref(error)
        del error
        assert held() is None
    finally:
        gc.enable()


class _LeaveError(SystemExit):
    """A class of our own can be referred to weakly."""


def _leave() -> None:
    raise _LeaveError
