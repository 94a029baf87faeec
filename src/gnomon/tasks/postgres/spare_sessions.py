"""Sessions that are opened before they are needed: a task does not wait for its connection.

About as many as are in use, for the next task of each is likely to come; one, when there is no
work. What a role or a database sets counts from the beginning of a session, so that one from before
a change of that is of no use any more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple

from gnomon.model.errors import Unavailable
from gnomon.tasks.postgres.connector import ConnectRefused, connect
from gnomon.tasks.postgres.table_access import TableAccess, warm
from gnomon.tasks.postgres.wire import Wire, WireLost

SPARES_MAX = 8
IDLE_S = 5.0  # without a new session: then one is enough


class SpareSession(NamedTuple):
    """A session, and what was set for it when it began."""

    wire: Wire
    settings: frozenset[bytes]


class SpareSessions:
    """The reserve of one table."""

    def __init__(
        self, access: TableAccess, settings: Callable[[], Awaitable[frozenset[bytes]]]
    ) -> None:
        self._access = access
        self._settings = settings  # what role and database set now
        self._ready: deque[asyncio.Task[SpareSession]] = deque()
        self._idle: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def take(self, group: str) -> Wire:
        """A session for a group; the reserve is made up again meanwhile. Errors: Unavailable."""
        wire = await self._reserved()
        if wire is None:
            self._access.learn(await self._settings())
            wire = await connected(self._access, group)
        self.fill(len(self._access.pids) + 1)
        return wire

    def fill(self, number: int) -> None:
        """So many are wanted, at most."""
        if self._is_closed:
            return
        loop = asyncio.get_running_loop()
        while len(self._ready) < min(SPARES_MAX, number):
            spare = loop.create_task(self._open())
            spare.add_done_callback(_retrieve)
            self._ready.append(spare)
        if self._idle is not None:
            self._idle.cancel()
        self._idle = loop.call_later(IDLE_S, self._shrink)

    def _shrink(self) -> None:
        while len(self._ready) > 1:
            self._drop(self._ready.pop())

    def _drop(self, spare: asyncio.Task[SpareSession]) -> None:
        spare.cancel()
        spare.add_done_callback(_close)

    async def _reserved(self) -> Wire | None:
        """One of the reserve that is as good as new."""
        while self._ready:
            spare = self._ready.popleft()
            with suppress(Unavailable):
                try:
                    wire, settings = await asyncio.shield(spare)
                except asyncio.CancelledError:
                    self._drop(spare)
                    raise
                if wire.is_open and settings == await self._settings():
                    return wire
                wire.close()
        return None

    async def _open(self) -> SpareSession:
        """Connect a session and prepare what every task needs. Errors: Unavailable."""
        settings = await self._settings()
        self._access.learn(settings)
        wire = await connected(self._access, None)
        try:
            await warm(wire, self._access.statements)
        except WireLost as exc:
            wire.close()
            raise Unavailable(f"no session for a task: {exc}") from None
        return SpareSession(wire, settings)

    async def close(self) -> None:
        """End them all."""
        self._is_closed = True
        if self._idle is not None:
            self._idle.cancel()
        ending = list(self._ready)
        self._ready.clear()
        for spare in ending:
            self._drop(spare)
        await asyncio.gather(*ending, return_exceptions=True)


async def connected(access: TableAccess, group: str | None) -> Wire:
    """A new session. Errors: Unavailable."""
    try:
        return await connect(access.session_options(group))
    except ConnectRefused as exc:
        raise Unavailable(f"no session for a task: {exc.detail}") from None


def _retrieve(spare: asyncio.Task[SpareSession]) -> None:
    """A spare that could not be had is nobody's trouble: the next session says what is wrong."""
    if not spare.cancelled():
        spare.exception()


def _close(spare: asyncio.Task[SpareSession]) -> None:
    if not spare.cancelled() and spare.exception() is None:
        spare.result().wire.close()
