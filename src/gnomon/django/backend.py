"""The backend of Django's tasks: `enqueue` schedules an action.

TASKS = {"default": {"BACKEND": "gnomon.django.backend.GnomonBackend"}}

Within `transaction.atomic()` a task is enqueued when the transaction commits, and not otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Self

from django.utils import timezone as django_timezone

from gnomon.app import App
from gnomon.django.framework import (
    AnyResult,
    AnyTask,
    BaseTaskBackend,
    InvalidTask,
    TaskResultDoesNotExist,
    normalize_json,
    task_enqueued,
)
from gnomon.django.results import PRIORITY_LABEL, result_of
from gnomon.django.tasks_app import TasksApp, function_name, tasks_app_of
from gnomon.model.errors import GnomonError, NotFound
from gnomon.model.spec import Mock, Python
from gnomon.scheduler.admission import check_request
from gnomon.scheduler.options import Options, request_of

ATTEMPTS_SHOWN = 1_000
PRIORITY_STEP = 20  # of Django's 201 priorities for each of our ten
PRIORITY_DEFAULT, PRIORITY_LAST = 5, 9
OWN_OPTIONS = (
    "retry", "timeout", "active", "jitter", "interruptions_max", "retention", "labels",
)  # fmt: skip
SCHEDULE = ("cron", "timezone", "every")


@dataclass(frozen=True, slots=True, kw_only=True)
class GnomonTask(AnyTask):
    """A task, and what Gnomon can do besides: `@task(retry=5, timeout="1m", cron="0 9 * * *")`.

    With `cron` or `every` workers call it at these times, without arguments; `enqueue` calls it
    once more, besides.
    """

    retry: Any = None  # a number, or a gnomon.Retry
    timeout: Any = None
    active: Any = None
    jitter: Any = None
    interruptions_max: int | None = None
    retention: Any = None
    labels: Mapping[str, str] | None = None
    cron: str | None = None
    timezone: str | None = None
    every: Any = None

    def using(
        self,
        *,
        priority: int | None = None,
        queue_name: str | None = None,
        run_after: datetime | None = None,
        backend: str | None = None,
        **options: Any,
    ) -> Self:
        """The same task with other options, also ours: `remind.using(retry=3).enqueue(…)`."""
        unknown = options.keys() - set(OWN_OPTIONS)
        if unknown:
            names = ", ".join(OWN_OPTIONS)
            raise TypeError(f"using() has no option {min(unknown)!r}; ours are {names}")
        common = {
            "priority": priority,
            "queue_name": queue_name,
            "run_after": run_after,
            "backend": backend,
        }
        changes: dict[str, Any] = {
            name: value for name, value in common.items() if value is not None
        }
        return replace(self, **changes, **options)


class GnomonBackend(BaseTaskBackend):
    """Enqueues tasks as actions, and shows what became of them."""

    task_class = GnomonTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.tasks_app: TasksApp = tasks_app_of(alias, self.options)

    @property
    def app(self) -> App:
        """The app behind it: for a bench, and for what is no task."""
        return self.tasks_app.app

    def validate_task(self, task: AnyTask) -> None:
        """As Django does; and our options must be right."""
        super().validate_task(task)
        options = _options_of(task, (*OWN_OPTIONS, *SCHEDULE))
        common = _common_options(task)
        common.pop("at", None)
        options = {**options, **common}
        try:
            check_request(request_of(Mock(), options))
        except GnomonError as exc:
            raise InvalidTask(f"{task.module_path}: {exc}") from exc
        self.tasks_app.know(task, options)

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Schedule it: at once, or after `run_after`."""
        self.validate_task(task)
        given: Any = normalize_json([list(args), kwargs])
        effect = Python(function=function_name(task), args=given[0], kwargs=given[1])
        options: Options = {**_options_of(task, OWN_OPTIONS), **_common_options(task)}
        action = self.app.blocking.schedule(
            effect,
            connection=self.tasks_app.transaction(),
            **options,
        )
        result = result_of(task, action, [])
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> AnyResult:
        """What became of a task."""
        try:
            action = self.app.blocking.get(str(result_id))
        except NotFound as exc:
            raise TaskResultDoesNotExist(str(exc)) from exc
        effect = action.spec.action
        task = self.tasks_app.tasks.get(effect.function) if isinstance(effect, Python) else None
        if task is None:
            raise TaskResultDoesNotExist(f"the action {result_id} is no task of this program")
        priority = int(action.spec.labels.get(PRIORITY_LABEL, 0))
        task = task.using(queue_name=action.spec.queue, priority=priority)
        attempts = self.app.blocking.attempts(action.meta.id, limit=ATTEMPTS_SHOWN)
        return result_of(task, action, attempts)


def _options_of(task: AnyTask, names: tuple[str, ...]) -> Options:
    given = {name: getattr(task, name, None) for name in names}
    options: Options = {}
    options.update({name: value for name, value in given.items() if value is not None})  # type: ignore[typeddict-item]
    return options


def _common_options(task: AnyTask) -> Options:
    """What every backend knows: queue, priority, the earliest time."""
    options: Options = {"queue": task.queue_name, "priority": _priority_of(task.priority)}
    labels = dict(getattr(task, "labels", None) or {})
    if task.priority:
        labels[PRIORITY_LABEL] = str(task.priority)
    if labels:
        options["labels"] = labels
    if task.run_after is not None:
        at = task.run_after
        options["at"] = django_timezone.make_aware(at) if django_timezone.is_naive(at) else at
    return options


def _priority_of(priority: int) -> int:
    """Django's 100 is our 0, which is first; its 0 is our 5; its -100 is our 9."""
    return min(PRIORITY_LAST, PRIORITY_DEFAULT - round(priority / PRIORITY_STEP))
