"""Watching an action over gRPC: bounded in number, looked at again now and then, ended in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

from gnomon.model.action import Action
from gnomon.model.errors import Exhausted, GnomonError, Unavailable

WATCHERS_MAX = 100  # in one server process: each looks into the store once a second
CONFIRM_S = 15.0
RETRY_S = 5.0


class Watchers:
    """Bounds how many watch at once, and ends them with the server."""

    def __init__(self) -> None:
        self.count = 0
        self.stopping = asyncio.Event()

    async def watch(
        self, actions: AsyncIterator[Action], confirm: Callable[[], Awaitable[None]]
    ) -> AsyncIterator[Action]:
        """What is watched, as long as `confirm` lets it. Errors: Exhausted when too many watch,
        Unavailable when the server stops, and those of the watch and of `confirm`."""
        if self.count >= WATCHERS_MAX:
            raise Exhausted("watchers", value=WATCHERS_MAX, retry_after_s=RETRY_S)
        self.count += 1
        stopping = asyncio.create_task(self.stopping.wait())
        following: asyncio.Task[Action | None] | None = None
        try:
            while not stopping.done():
                following = following or asyncio.create_task(_next(actions))
                done, _ = await asyncio.wait(
                    {following, stopping},
                    timeout=CONFIRM_S,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if following in done:
                    action, following = following.result(), None
                    if action is None:
                        return
                    await confirm()
                    yield action
                elif not done:
                    await confirm()
            raise Unavailable("the server stops: watch again")
        finally:
            self.count -= 1
            for left in (stopping, following):
                if left is not None:
                    left.cancel()
                    with suppress(asyncio.CancelledError, GnomonError):
                        await left


async def _next(actions: AsyncIterator[Action]) -> Action | None:
    return await anext(actions, None)
