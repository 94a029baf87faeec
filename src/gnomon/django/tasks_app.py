"""The app of one backend of Django's tasks: its functions are the tasks."""

from __future__ import annotations

import inspect
import threading
import zlib
from collections.abc import Mapping
from typing import Any

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from gnomon.app import App
from gnomon.django.calls import caller_of
from gnomon.django.database_url import database_url
from gnomon.django.framework import AnyTask, InvalidTask
from gnomon.executors.python import Registry
from gnomon.model.errors import GnomonError
from gnomon.model.ids import NAME_PATTERN
from gnomon.model.spec import Python
from gnomon.scheduler.options import Options, request_of
from gnomon.scheduler.program import Program

NAME_CHARS_MAX = 64
KNOWN_OPTIONS = ("url", "schema", "database", "program")


class TasksApp:
    """What all threads of a process share of a backend: its tasks, and the app."""

    def __init__(self, alias: str, options: Mapping[str, Any]) -> None:
        for name in options:
            if name not in KNOWN_OPTIONS:
                known = ", ".join(KNOWN_OPTIONS)
                raise ImproperlyConfigured(
                    f"TASKS[{alias!r}]: OPTIONS has {name!r}; it may have {known}"
                )
        self.alias = alias
        self._options = options
        self.registry = Registry()
        self.program = Program(str(options.get("program") or f"django.{alias}"))
        self.tasks: dict[str, AnyTask] = {}  # by the names of their functions
        self._app: App | None = None
        self._lock = threading.Lock()

    @property
    def database(self) -> str | None:
        """Which of Django's databases it is in; None: in one of its own."""
        if "url" in self._options:
            return None
        return str(self._options.get("database", "default"))

    @property
    def app(self) -> App:
        """The app. It is made when it is first used: by then the database has its name, also in
        tests."""
        with self._lock:
            if self._app is None:
                self._app = App(
                    self._url(), schema=self._options.get("schema"), program=self.program.name
                )
                self._app.registry, self._app.program = self.registry, self.program
            return self._app

    def _url(self) -> str:
        alias = self.database
        if alias is None:
            return str(self._options["url"])
        return database_url(alias, connections[alias].settings_dict)

    def transaction(self) -> object:
        """Django's connection, if it is in a transaction that the action is to be part of."""
        if self.database is None or not connections[self.database].in_atomic_block:
            return None
        return connections[self.database]

    def know(self, task: AnyTask, options: Options) -> None:
        """Make a task known to workers, and its schedule if it has one."""
        name = function_name(task)
        with self._lock:
            if name in self.tasks:
                return
            try:
                if "cron" in options or "every" in options:
                    _check_no_arguments(task)
                    effect = Python(function=name)
                    self.program.declare(request_of(effect, {"id": name, **options}))
                self.registry.register(name, caller_of(task))
            except GnomonError as exc:
                raise InvalidTask(f"{task.module_path}: {exc}") from exc
            self.tasks[name] = task


def tasks_app_of(alias: str, options: Mapping[str, Any]) -> TasksApp:
    """The one of this process; Django makes a backend for each thread."""
    try:
        config: Any = apps.get_app_config("gnomon")
    except LookupError:
        raise ImproperlyConfigured("add 'gnomon.django' to INSTALLED_APPS") from None
    tasks_apps: dict[str, TasksApp] = config.tasks_apps
    if alias not in tasks_apps:
        tasks_apps.setdefault(alias, TasksApp(alias, options))
    return tasks_apps[alias]


def function_name(task: AnyTask) -> str:
    """The path of its function; of a long one the end, and a number made of all of it."""
    path = task.module_path
    if len(path) > NAME_CHARS_MAX:
        mark = f"{zlib.crc32(path.encode()):08x}"
        path = f"{path[len(mark) + 1 - NAME_CHARS_MAX :]}.{mark}"
    if not NAME_PATTERN.fullmatch(path):
        raise InvalidTask(f"{path}: the names of tasks are out of A-Z a-z 0-9 . _")
    return path


def _check_no_arguments(task: AnyTask) -> None:
    given = [None] if task.takes_context else []
    try:
        inspect.signature(task.func).bind(*given)
    except TypeError as exc:
        raise InvalidTask(
            f"{task.module_path}: {exc}; a task with cron or every is called without arguments"
        ) from None
