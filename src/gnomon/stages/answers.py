"""What a stage gives back, looked at before it is believed.

A wrong answer costs its own entity only: whoever is given one of these errors fails that entity, in
the stage's name, and says what was wrong. Nothing that a stage can return reaches the store unseen.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from gnomon.stages.stage import Keep, Update, Wake

WAKE_MIN = datetime(1970, 1, 1, tzinfo=UTC)  # whatever is before it is long due
WAKE_MAX = datetime(9998, 1, 1, tzinfo=UTC)  # room for `spread` before engines and drivers end
SHOWN_CHARS_MAX = 100


class WrongAnswerError(Exception):
    """A stage answered what it may not: the same call would give the same answer again."""


def check_ask(answer: object) -> bool | Wake:
    """An answer of `should_process`. Errors: WrongAnswerError."""
    if isinstance(answer, Wake):
        return answer if answer.at is None else Wake(check_time(answer.at, "Wake"))
    if isinstance(answer, bool):
        return answer
    _close(answer)
    raise WrongAnswerError(
        f"should_process must return True, False or Wake(at), got {_shown(answer)}"
    )


def check_done(answer: object) -> Update[Any] | Exception | None:
    """An answer of `process`. Errors: WrongAnswerError."""
    if answer is None or isinstance(answer, Exception):
        return answer
    if not isinstance(answer, Update):
        _close(answer)
        hint = ": write Update({…})" if isinstance(answer, Mapping) else ""
        raise WrongAnswerError(f"process must return Update(…) or None, got {_shown(answer)}{hint}")
    _check_patch(answer.patch)
    if not isinstance(answer.note, str):
        raise WrongAnswerError(f"Update.note must be a text, got {_shown(answer.note)}")
    if answer.wake is None or isinstance(answer.wake, Keep):
        return answer
    wake = check_time(answer.wake, "Update.wake")
    return Update(patch=answer.patch, state=answer.state, wake=wake, note=answer.note)


def check_time(at: object, what: str) -> datetime:
    """A moment that every engine can store. Errors: WrongAnswerError."""
    if not isinstance(at, datetime):
        raise WrongAnswerError(f"{what} must be a datetime with a time zone, got {_shown(at)}")
    if at.utcoffset() is None:
        raise WrongAnswerError(f"{what} needs a time zone, got {at.isoformat()} without one")
    if at > WAKE_MAX:
        raise WrongAnswerError(f"{what} must be before the year {WAKE_MAX.year}, got {at}")
    return max(at, WAKE_MIN).astimezone(UTC)


def stray(error: asyncio.CancelledError) -> Exception:
    """A cancellation that only the stage's own code asked for, as the failure that it is. Errors:
    the cancellation itself, if somebody wants this task to end."""
    task = asyncio.current_task()
    if task is None or task.cancelling():
        raise error
    return RuntimeError("the stage raised CancelledError by itself")


def _check_patch(patch: object) -> None:
    if type(patch) is dict:  # nearly always; to ask for a mapping is slow
        return
    is_list = isinstance(patch, list | tuple) and all(isinstance(op, Mapping) for op in patch)
    if not is_list and not isinstance(patch, Mapping):
        raise WrongAnswerError(
            f"Update.patch must be a mapping, or a list of JSON patch operations, "
            f"got {_shown(patch)}"
        )


def _close(answer: object) -> None:
    """Forget a coroutine that nobody will await, without Python's warning about it."""
    if inspect.iscoroutine(answer):
        answer.close()


def _shown(answer: object) -> str:
    if inspect.iscoroutine(answer):
        return "a coroutine: is it async by mistake?"
    return f"{type(answer).__name__} {answer!r}"[:SHOWN_CHARS_MAX]
