"""An action as Django shows it: the result of a task."""

from __future__ import annotations

import builtins
import json
from collections.abc import Sequence
from typing import Any

from gnomon.django.framework import (
    AnyResult,
    AnyTask,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
)
from gnomon.model.action import Action, Attempt, State
from gnomon.model.spec import Python

PRIORITY_LABEL = "django_priority"
COUNTED = ("succeeded", "failed", "cancelled", "interrupted", "running")


def result_of(task: AnyTask, action: Action, attempts: Sequence[Attempt]) -> AnyResult:
    """The result of a task; the attempts come newest first."""
    effect, status = action.spec.action, action.status
    assert isinstance(effect, Python)
    made = [attempt for attempt in reversed(attempts) if attempt.outcome in COUNTED]
    result = TaskResult(
        task=task,
        id=action.meta.id,
        status=_status_of(action),
        enqueued_at=action.meta.created_at,
        started_at=made[0].began_at if made else None,
        finished_at=status.finished_at,
        last_attempted_at=made[-1].began_at if made else None,
        args=list(effect.args),
        kwargs=dict(effect.kwargs),
        backend=task.backend,
        errors=[_error_of(attempt) for attempt in made if attempt.outcome == "failed"],
        worker_ids=[attempt.owner or "" for attempt in made],
    )
    answer = None if status.last_attempt is None else status.last_attempt.answer
    if result.status == TaskResultStatus.SUCCESSFUL and answer is not None:
        object.__setattr__(result, "_return_value", _value_of(action.meta.id, answer))
    return result


def _status_of(action: Action) -> Any:
    match action.status.state:
        case State.DONE:
            return TaskResultStatus.SUCCESSFUL
        case State.ACTIVE | State.PAUSED:
            is_running = action.status.current_attempt is not None
            return TaskResultStatus.RUNNING if is_running else TaskResultStatus.READY
        case State.DEAD | State.CANCELLED | State.EXPIRED:
            return TaskResultStatus.FAILED


def _error_of(attempt: Attempt) -> TaskError:
    """The class is the first word of what was recorded, if it looks like one."""
    text = attempt.error or ""
    name = text.partition(":")[0]
    if isinstance(getattr(builtins, name, None), type):
        name = f"builtins.{name}"
    is_path = "." in name and all(part.isidentifier() for part in name.split("."))
    return TaskError(exception_class_path=name if is_path else "builtins.Exception", traceback=text)


def _value_of(id: str, answer: str) -> Any:
    try:
        return json.loads(answer)
    except ValueError:
        raise TaskResultDoesNotExist(
            f"what the task {id} returned was too long to be kept whole: store it where others "
            "find it, and return its key"
        ) from None
