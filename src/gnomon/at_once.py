"""Coroutines that never wait for anything, performed without an event loop."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from gnomon.model.errors import BugError

T = TypeVar("T")


def at_once(call: Coroutine[Any, Any, T]) -> T:
    """Perform a coroutine here and now, in this thread, and give what it returns.

    It may let others go first (`asyncio.sleep(0)`), but there is nobody; it may not wait.
    """
    try:
        while call.send(None) is None:
            pass
    except StopIteration as end:
        result: T = end.value
        return result
    call.close()
    raise BugError(f"{call!r} waits for something, where nothing can be waited for")
