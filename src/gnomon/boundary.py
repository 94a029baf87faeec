"""Where an unexpected error ends. Nobody else catches all exceptions but the gateways' boundary.

* The attempt boundary: one attempt, one answer of a stage or one call of somebody else's code may
  fail in any way. It fails alone, and what it raised becomes its result.
* The service-loop boundary: one round of a loop may fail; that is told and counted, and the loop
  goes on with the next. A worker that ends takes all its shards' actions with it, and the next one
  meets the same row. What says that this worker is in the wrong database is not survived.
"""

from __future__ import annotations

import traceback
from types import TracebackType
from typing import Self

from gnomon.contracts.observer import Observer
from gnomon.model.errors import IdentityMismatch, SchemaMismatch, Unavailable


class AttemptBoundary:
    """Keeps what was raised inside: `with AttemptBoundary() as attempt: …`, then `attempt.error`.

    Exceptions of the classes in `passing`, and what is no `Exception`, go through.
    """

    def __init__(self, passing: tuple[type[Exception], ...] = ()) -> None:
        self._passing = passing
        self.error: Exception | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _: type[BaseException] | None, exc: BaseException | None, __: TracebackType | None
    ) -> bool:
        if not isinstance(exc, Exception) or isinstance(exc, self._passing):
            return False
        self.error = exc
        return True

    @property
    def failure(self) -> Exception:
        """The error, where it is known that there is one."""
        assert self.error is not None
        return self.error


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
