"""Watches of actions: bounded in number, confirmed now and then, ended with the server."""

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
    """The callers of one gateway who watch an action; `stop` ends their watches."""

    def __init__(self, stop: asyncio.Event | None = None) -> None:
        self.count = 0
        self.stop = stop or asyncio.Event()

    async def watch(
        self, actions: AsyncIterator[Action], *, confirm: Callable[[], Awaitable[None]]
    ) -> AsyncIterator[Action | None]:
        """Each action that `actions` gives; None when there was none for `CONFIRM_S`.

        `confirm` says before each of them whether the caller may still watch. Errors: Exhausted
        when too many watch, Unavailable when the server stops, those of `actions` and `confirm`.
        """
        if self.count >= WATCHERS_MAX:
            raise Exhausted("watchers", value=WATCHERS_MAX, retry_after_s=RETRY_S)
        self.count += 1
        stopping = asyncio.create_task(self.stop.wait())
        following: asyncio.Task[Action | None] | None = None
        try:
            while not stopping.done():
                following = following or asyncio.create_task(_next(actions))
                done, _ = await asyncio.wait(
                    {following, stopping}, timeout=CONFIRM_S, return_when=asyncio.FIRST_COMPLETED
                )
                if following in done:
                    action, following = following.result(), None
                    if action is None:
                        return
                    await confirm()
                    yield action
                elif not done:
                    await confirm()
                    yield None
            raise Unavailable("the server stops: watch again")
        finally:
            self.count -= 1
            for task in (stopping, following):
                if task is not None:
                    task.cancel()
                    with suppress(asyncio.CancelledError, GnomonError):
                        await task


async def _next(actions: AsyncIterator[Action]) -> Action | None:
    return await anext(actions, None)
