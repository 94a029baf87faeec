"""The boundary of the gateways: no exception of a call passes it but as a `RefusedError`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gnomon.clock import SystemEntropy
from gnomon.contracts.observer import Observer
from gnomon.gateways.errors import problem_of, row_of
from gnomon.model.errors import GnomonError

PATH_CHARS_MAX = 200


class RefusedError(Exception):
    """What a caller is told instead of an answer: the error, and its problem document."""

    def __init__(self, error: Exception, problem: dict[str, object]) -> None:
        super().__init__(problem["detail"])
        self.error = error
        self.problem = problem

    @property
    def retry_after_s(self) -> float | None:
        wait_s: float | None = getattr(self.error, "retry_after_s", None)
        return wait_s


class Boundary:
    """Turns exceptions into refusals. Faults of ours are logged whole; the caller learns only the
    id under which they stand in the log."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    @contextmanager
    def guarding(self, method: str, path: str) -> Iterator[None]:
        """Errors: RefusedError, and nothing else."""
        try:
            yield
        except Exception as exc:
            raise self._refusal(exc, method, path[:PATH_CHARS_MAX]) from exc

    def _refusal(self, error: Exception, method: str, path: str) -> RefusedError:
        if not row_of(error).hides_detail:
            return RefusedError(error, problem_of(error))
        request_id = str(SystemEntropy().token())
        self._observer.event(
            "request_failed", request_id=request_id, method=method, path=path, exc_info=error
        )
        hidden = GnomonError()
        return RefusedError(hidden, {**problem_of(hidden), "request_id": request_id})
