"""The attempt boundary: what a call of somebody else's code raises becomes its result."""

from __future__ import annotations

from types import TracebackType
from typing import Generic, Self, TypeVar

E = TypeVar("E", bound=BaseException)


class AttemptBoundary(Generic[E]):
    """Keeps what was raised inside: `with AttemptBoundary(Exception) as attempt: …`, then look at
    `attempt.error`. Classes in `passing`, and what is none of the `kept` ones, go through. Whoever
    enters it again finds nothing in it."""

    __slots__ = ("_kept", "_passing", "error")  # there is one for each attempt

    def __init__(
        self, kept: type[E] | tuple[type[E], ...], *, passing: tuple[type[Exception], ...] = ()
    ) -> None:
        self._kept = kept
        self._passing = passing
        self.error: E | None = None

    def __enter__(self) -> Self:
        self.error = None
        return self

    def __exit__(
        self, _: type[BaseException] | None, exc: BaseException | None, __: TracebackType | None
    ) -> bool:
        if exc is None or not isinstance(exc, self._kept) or isinstance(exc, self._passing):
            return False
        self.error = exc
        return True

    @property
    def failure(self) -> E:
        """The error, where it is known that there is one."""
        assert self.error is not None
        return self.error

    def release(self) -> E:
        """The same, kept here no longer: its traceback holds the frame that holds this boundary."""
        error, self.error = self.failure, None
        return error
