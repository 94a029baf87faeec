"""Where heartbeats come from: their own thread and connection, or, in simulation, the loop.

User code may block the event loop for seconds. The heart goes on beating through that as long
as the loop has ticked within a third of the lease; a loop that is stuck for longer loses its
shards, as it should.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress

from gnomon.contracts.observer import Observer
from gnomon.contracts.store import Pulse, Store
from gnomon.model.errors import Unavailable
from gnomon.worker.leases import Leases

OpenStore = Callable[[], Awaitable[Store]]


class Heart:
    """Beats until it is stopped."""

    def __init__(
        self,
        leases: Leases,
        *,
        interval_s: float,
        observer: Observer,
        felt: Callable[[Pulse], None],
    ) -> None:
        self._leases = leases
        self._interval_s = interval_s
        self._observer = observer
        self._felt = felt

    async def beat_in_loop(self, store: Store) -> None:
        """Beat on the caller's own loop until cancelled."""
        while True:
            pulse = await self._beat(store)
            if pulse is not None:
                self._felt(pulse)
            await asyncio.sleep(self._interval_s)

    async def beat_in_thread(self, open_store: OpenStore) -> None:
        """Beat in a thread of its own, with a store of its own, until cancelled."""
        loop = asyncio.get_running_loop()
        stop = threading.Event()
        ended = asyncio.Event()

        def body() -> None:
            try:
                asyncio.run(self._thread_body(open_store, loop, stop))
            finally:
                with suppress(RuntimeError):  # the loop may be closed already
                    loop.call_soon_threadsafe(ended.set)

        thread = threading.Thread(target=body, name="gnomon-heart", daemon=True)
        thread.start()
        try:
            await ended.wait()
        finally:
            stop.set()
            await ended.wait()

    async def _thread_body(
        self, open_store: OpenStore, loop: asyncio.AbstractEventLoop, stop: threading.Event
    ) -> None:
        store = await open_store()
        try:
            while not stop.is_set():
                pulse = await self._beat(store)
                if pulse is not None:
                    with suppress(RuntimeError):
                        loop.call_soon_threadsafe(self._felt, pulse)
                await self._pause(stop)
        finally:
            await store.close()

    async def _pause(self, stop: threading.Event) -> None:
        left_s = self._interval_s
        while left_s > 0 and not stop.is_set():
            await asyncio.sleep(min(0.02, left_s))
            left_s -= 0.02

    async def _beat(self, store: Store) -> Pulse | None:
        try:
            return await self._leases.beat(store.leases)
        except Unavailable as exc:
            self._observer.count("store_errors", operation="heartbeat")
            self._observer.event("heartbeat_failed", error=str(exc))
            return None
