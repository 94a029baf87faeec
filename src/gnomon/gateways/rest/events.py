"""Watching an action: server-sent events, with heartbeats, until it has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import msgspec

from gnomon.model.action import Action
from gnomon.model.errors import Exhausted, GnomonError

WATCHERS_MAX = 100  # in one server process
HEARTBEAT_S = 15.0
RETRY_S = 5.0

_ENCODER = msgspec.json.Encoder()
_HEARTBEAT = b": still here\n\n"


class EventStreams:
    """Bounds how many watch at once, and ends them with the server."""

    def __init__(
        self, *, stop: asyncio.Event | None = None, heartbeat_s: float = HEARTBEAT_S
    ) -> None:
        self.count = 0
        self._stop = stop
        self._heartbeat_s = heartbeat_s

    async def open(
        self,
        actions: AsyncIterator[Action],
        *,
        shown: Callable[[Action], object],
        confirm: Callable[[], Awaitable[None]],
    ) -> AsyncIterator[bytes]:
        """The events of a watch. What is wrong with it at the start is raised here: NotFound, or
        Exhausted when too many watch. `confirm` says before each event whether it may go on."""
        if self.count >= WATCHERS_MAX:
            raise Exhausted("watchers", value=WATCHERS_MAX, retry_after_s=RETRY_S)
        first = await anext(actions)
        return self._events(first, actions, shown, confirm)

    async def _events(
        self,
        first: Action,
        actions: AsyncIterator[Action],
        shown: Callable[[Action], object],
        confirm: Callable[[], Awaitable[None]],
    ) -> AsyncIterator[bytes]:
        if self.count >= WATCHERS_MAX:  # others came between asking and answering
            return
        self.count += 1
        stop = asyncio.create_task(_waiting(self._stop))
        following: asyncio.Task[Action | None] | None = None
        try:
            yield _event(shown(first))
            while not stop.done():
                following = following or asyncio.create_task(_next(actions))
                done, _ = await asyncio.wait(
                    {following, stop},
                    timeout=self._heartbeat_s,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if following in done:
                    action, following = following.result(), None
                    if action is None:
                        return
                    await confirm()
                    yield _event(shown(action))
                elif not done:
                    await confirm()
                    yield _HEARTBEAT
        except GnomonError:
            return  # what was sent cannot be taken back: the stream ends, and the client asks again
        finally:
            self.count -= 1
            for left in (stop, following):
                if left is not None:
                    left.cancel()
                    with suppress(asyncio.CancelledError, GnomonError):
                        await left


async def _next(actions: AsyncIterator[Action]) -> Action | None:
    return await anext(actions, None)


async def _waiting(stop: asyncio.Event | None) -> None:
    await (stop or asyncio.Event()).wait()


def _event(value: object) -> bytes:
    return b"event: action\ndata: " + _ENCODER.encode(value) + b"\n\n"
