"""What Django loads: the place where a process keeps its backends, and tables made by `migrate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate

if TYPE_CHECKING:
    from gnomon.django.tasks_app import TasksApp


class GnomonConfig(AppConfig):
    """`INSTALLED_APPS = ["gnomon.django", …]`."""

    name = "gnomon.django"
    label = "gnomon"
    verbose_name = "Gnomon"

    def __init__(self, app_name: str, app_module: Any) -> None:
        super().__init__(app_name, app_module)
        self.tasks_apps: dict[str, TasksApp] = {}  # by the alias of their backend
        self._installed: set[tuple[str, str]] = set()

    def ready(self) -> None:
        """`manage.py migrate` makes our tables, too."""
        post_migrate.connect(self._install, dispatch_uid="gnomon")

    def _install(self, using: str, **_: Any) -> None:
        from gnomon.django.backend import GnomonBackend
        from gnomon.django.framework import task_backends

        for alias in task_backends.settings:
            backend = task_backends[alias]
            if not isinstance(backend, GnomonBackend) or backend.tasks_app.database != using:
                continue
            app = backend.app
            if app.blocking.is_open or app.stand_in or app.settings.database.is_memory:
                continue
            place = alias, app.settings.database.url
            if place not in self._installed:  # once, though every app of the project asks
                self._installed.add(place)
                app.blocking.open(migrate=True)
                app.blocking.close()
