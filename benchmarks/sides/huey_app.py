"""huey as both ends use it. A module of its own, for huey names a function by its module too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from huey import SqliteHuey


def make_huey(path: str, perform: Callable[[float | None], None]) -> tuple[SqliteHuey, Any]:
    """The app and its no-op. `fsync` makes a commit survive the machine; without results there is
    less to write, and a function that returns None has none anyway."""
    app = SqliteHuey("bench", filename=path, fsync=True, results=False, cache_mb=64)

    @app.task()
    def noop(due: float | None = None) -> None:
        perform(due)

    return app, noop
