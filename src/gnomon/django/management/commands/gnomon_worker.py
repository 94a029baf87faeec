"""`manage.py gnomon_worker`: performs tasks and all other actions of the app."""

from __future__ import annotations

from argparse import ArgumentParser
from dataclasses import replace
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils.module_loading import autodiscover_modules

from gnomon.app import App
from gnomon.cli.place import installation_text
from gnomon.cli.process import Telemetry, load_app, run, stop_on_signals, together
from gnomon.config import Settings
from gnomon.django.backend import GnomonBackend
from gnomon.django.framework import task_backends
from gnomon.model.errors import GnomonError


class Command(BaseCommand):
    """A worker, until SIGTERM or Ctrl-C."""

    help = "Performs the tasks of Django, until SIGTERM or Ctrl-C; then those under way may end."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--backend", default="default", help="which of TASKS (default)")
        parser.add_argument("--queues", help="only these, for example mail,reports")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Load the tasks of all installed apps, and work."""
        backend = self._backend(options["backend"])
        autodiscover_modules("tasks")
        try:
            run(self._work(backend.app, _settings_of(backend.app, options["queues"])))
        except GnomonError as exc:
            raise CommandError(str(exc)) from exc

    def _backend(self, alias: str) -> GnomonBackend:
        if alias not in task_backends.settings:
            known = ", ".join(task_backends.settings)
            raise CommandError(f"TASKS has no {alias!r}; it has {known}")
        backend = task_backends[alias]
        if not isinstance(backend, GnomonBackend):
            raise CommandError(
                f"TASKS[{alias!r}] is a {type(backend).__name__}: write "
                '"BACKEND": "gnomon.django.backend.GnomonBackend"'
            )
        return backend

    async def _work(self, imported: App, settings: Settings) -> None:
        stop = stop_on_signals()
        async with load_app(settings, Telemetry(settings), imported) as app:
            count = len(imported.registry.names)
            self.stderr.write(f"{count} tasks, working on {installation_text(settings)}")
            await together(app.work(stop), stop=stop)


def _settings_of(app: App, queues: str | None) -> Settings:
    if queues is None:
        return app.settings
    names = tuple(name.strip() for name in queues.split(",") if name.strip())
    return replace(app.settings, worker=replace(app.settings.worker, only_queues=names))
