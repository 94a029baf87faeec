"""Says who holds the event loop: a function, an effect or a stage that does not give it back.

Everything of a worker shares one loop. Code that blocks it (`time.sleep`, a slow computation, a
client that is not asynchronous) delays all actions of the process, and costs it its shards after a
while. The watchdog looks from the heartbeat's thread: when the loop gave no sign of life for a
second, it reads the loop thread's stack and names whom it finds there, once for each time.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from types import CodeType, FrameType
from typing import Any, NamedTuple, TypeVar

from gnomon.contracts.clock import Clock
from gnomon.contracts.observer import Observer

F = TypeVar("F", bound=Callable[..., Any])

BLOCKED_S = 1.0
STACK_MAX = 12  # innermost calls shown
NOBODY = "(unknown)"
IDLE = ("select", "run_forever", "run_until_complete", "run")  # it waits for something to do


class Holder(NamedTuple):
    """Who holds the loop: a name of few, for the metric, and what it is at."""

    name: str
    at: str = ""


Describe = Callable[[Mapping[str, Any]], Holder]
_WATCHED: dict[CodeType, Describe] = {}


def watched(describe: Describe) -> Callable[[F], F]:
    """Mark a function that calls code of others; `describe` makes a name of its local variables.

    Costs nothing when it is called: its code is recognised on the stack, if it comes to that.
    """

    def mark(function: F) -> F:
        _WATCHED[function.__code__] = describe
        return function

    return mark


class Watchdog:
    """Looks at the thread in which it was made."""

    def __init__(self, clock: Clock, observer: Observer, *, every_s: float) -> None:
        self._clock = clock
        self._observer = observer
        self._allowed_s = every_s + BLOCKED_S  # signs of life come so often
        self._thread = threading.get_ident()
        self._told: float | None = None

    def look(self, alive_at: float) -> None:
        """Called from another thread, often; `alive_at`: the loop's last sign of life."""
        blocked_s = self._clock.monotonic() - alive_at
        if blocked_s <= self._allowed_s or self._told == alive_at:
            return
        self._told = alive_at
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001 - the only way to see it
        if frame is not None and frame.f_code.co_name not in IDLE:
            self._tell(frame, blocked_s)

    def _tell(self, frame: FrameType, blocked_s: float) -> None:
        holder = _holder_of(frame)
        stack = traceback.extract_stack(frame)[-STACK_MAX:]
        self._observer.count("event_loop_blocked", by=holder.name)
        self._observer.event(
            "event_loop_blocked",
            by=holder.name,
            at=holder.at,
            for_s=round(blocked_s, 1),
            where=f"{stack[-1].filename}:{stack[-1].lineno} in {stack[-1].name}",
            stack="".join(traceback.format_list(stack)),
        )


def _holder_of(frame: FrameType | None) -> Holder:
    """The innermost watched call."""
    while frame is not None:
        describe = _WATCHED.get(frame.f_code)
        if describe is not None:
            return describe(frame.f_locals)
        frame = frame.f_back
    return Holder(NOBODY)
