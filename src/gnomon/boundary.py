"""Where an unexpected error ends. Three places catch all exceptions, and nobody else:

* The attempt boundary (`model.attempt_boundary`): one attempt, one answer of a stage or one call of
  somebody else's code may fail in any way. It fails alone, and what it raised becomes its result.
* The service-loop boundary, here: one round of a loop may fail; that is told and counted, and the
  loop goes on with the next. A worker that ends takes all its shards' actions with it, and the next
  one meets the same row. What says that this worker is in the wrong database is not survived.
* The boundary of the gateways (`gateways.boundary`): a request fails, and its caller is told.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Any, TypeVar

from gnomon.contracts.observer import Observer
from gnomon.model.attempt_boundary import AttemptBoundary
from gnomon.model.errors import IdentityMismatch, SchemaMismatch, Unavailable

T = TypeVar("T")


def performed(function: Callable[[], T]) -> tuple[T | None, BaseException | None]:
    """What it returned and what it raised: for a thread, to hand on to who waits for the answer."""
    with AttemptBoundary(BaseException) as attempt:
        return function(), None
    return None, attempt.release()


def hand_on(future: Future[Any], function: Callable[[], object]) -> None:
    """Perform it and give what it returned or raised to the future."""
    result, error = performed(function)
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


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
