"""Where an unexpected error in one round of a worker's loop ends: told, counted, and survived.

A worker that ends takes all its shards' actions with it, and the next one meets the same row. So a
round may fail, and the loop goes on with the next. What says that this worker is in the wrong
database is not survived.
"""

from __future__ import annotations

import traceback
from types import TracebackType

from gnomon.contracts.observer import Observer
from gnomon.model.errors import IdentityMismatch, SchemaMismatch, Unavailable


class Round:
    """One round of the loop of this name: `with Round(observer, "pump"): …`."""

    def __init__(self, observer: Observer, loop: str) -> None:
        self._observer = observer
        self._loop = loop

    def __enter__(self) -> None: ...

    def __exit__(
        self, _: type[BaseException] | None, exc: BaseException | None, __: TracebackType | None
    ) -> bool:
        if isinstance(exc, Unavailable):
            self._observer.count("store_errors", operation=self._loop)
            self._observer.event("round_failed", loop=self._loop, error=str(exc))
            return True
        if not isinstance(exc, Exception) or isinstance(exc, IdentityMismatch | SchemaMismatch):
            return False
        tell_bug(self._observer, self._loop, exc)
        return True


def tell_bug(observer: Observer, loop: str, exc: BaseException) -> None:
    """Something that nobody expected happened in this loop."""
    observer.count("worker_bugs", loop=loop)
    observer.event(
        "worker_bug",
        loop=loop,
        error=f"{type(exc).__name__}: {exc}",
        traceback="".join(traceback.format_exception(exc)),
    )
