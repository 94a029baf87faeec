"""A task as a function that workers call."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from django.db import close_old_connections
from django.utils import timezone

from gnomon.django.framework import (
    AnyResult,
    AnyTask,
    TaskContext,
    TaskError,
    TaskResult,
    TaskResultStatus,
    normalize_json,
    task_finished,
    task_started,
)
from gnomon.executors.python import AttemptContext
from gnomon.model.errors import GnomonError


def caller_of(task: AnyTask) -> Callable[..., Any]:
    """What is called for an attempt; a coroutine function for one."""

    async def call_async(ctx: AttemptContext, /, *args: Any, **kwargs: Any) -> Any:
        attempt = TaskAttempt(task, ctx, args, kwargs)
        try:
            return attempt.succeed(await task.func(*attempt.arguments, **kwargs))
        except Exception as exc:
            attempt.fail(exc, is_last=await asyncio.to_thread(_is_last, task, ctx))
            raise

    def call(ctx: AttemptContext, /, *args: Any, **kwargs: Any) -> Any:
        close_old_connections()  # as before and after a request: this thread has its own
        attempt = TaskAttempt(task, ctx, args, kwargs)
        try:
            return attempt.succeed(task.func(*attempt.arguments, **kwargs))
        except Exception as exc:
            attempt.fail(exc, is_last=_is_last(task, ctx))
            raise
        finally:
            close_old_connections()

    return call_async if inspect.iscoroutinefunction(task.func) else call


class TaskAttempt:
    """An attempt as Django sees it, told by its signals: the start, and the end of the last one."""

    def __init__(
        self, task: AnyTask, ctx: AttemptContext, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        now = timezone.now()
        self._sender = type(task.get_backend())
        self.result: AnyResult = TaskResult(
            task=task,
            id=ctx.id,
            status=TaskResultStatus.RUNNING,
            enqueued_at=None,
            started_at=now,
            finished_at=None,
            last_attempted_at=now,
            args=list(args),
            kwargs=kwargs,
            backend=task.backend,
            errors=[],
            worker_ids=[str(ctx.attempt_id)] * ctx.attempt_no,  # their number is the attempt's
        )
        task_started.send(sender=self._sender, task_result=self.result)

    @property
    def arguments(self) -> list[Any]:
        """What the function is called with."""
        takes_context = self.result.task.takes_context
        context = [TaskContext(task_result=self.result)] if takes_context else []
        return [*context, *self.result.args]

    def succeed(self, value: Any) -> Any:
        """It returned; as JSON, or it is an error."""
        value = normalize_json(value)
        self._finish(TaskResultStatus.SUCCESSFUL, _return_value=value)
        return value

    def fail(self, exc: BaseException, *, is_last: bool) -> None:
        """It raised; unless it is the last attempt, another one follows."""
        self.result.errors.append(error_of(exc))
        if is_last:
            self._finish(TaskResultStatus.FAILED)

    def _finish(self, status: Any, **values: Any) -> None:
        values.update(status=status, finished_at=timezone.now())
        for name, value in values.items():
            object.__setattr__(self.result, name, value)  # it is frozen for those who look at it
        task_finished.send(sender=self._sender, task_result=self.result)


def _is_last(task: AnyTask, ctx: AttemptContext) -> bool:
    """Whether a failure of this attempt is not retried, as far as can be found out."""
    with suppress(GnomonError):
        backend: Any = task.get_backend()
        action = backend.app.blocking.get(ctx.id)
        return bool(action.status.occurrence_failures >= action.spec.retry.max)
    return False


def error_of(exc: BaseException) -> TaskError:
    """What a task raised, as Django shows it."""
    kind = type(exc)
    return TaskError(
        exception_class_path=f"{kind.__module__}.{kind.__qualname__}",
        traceback="".join(traceback.format_exception(exc)),
    )
