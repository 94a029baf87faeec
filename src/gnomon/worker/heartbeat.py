"""Where heartbeats come from: their own thread and connection, or, in simulation, the loop.

User code may block the event loop for seconds. The heartbeat goes on through that as long
as the loop has ticked within a third of the lease; a loop that is stuck for longer loses its
shards, as it should.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress

from gnomon.boundary import hand_on
from gnomon.contracts.observer import Observer
from gnomon.contracts.store import HeartbeatResult, Store
from gnomon.model.errors import Unavailable
from gnomon.telemetry.watchdog import Watchdog
from gnomon.worker.leases import WorkerLeases

OpenStore = Callable[[], Awaitable[Store]]

STOP_POLL_S = 0.02
YOUNG_BEATS = 5  # the pauses after the first: a 32nd of the usual one, a 16th, … a half


class Heartbeat:
    """Beats until it is stopped."""

    def __init__(
        self,
        leases: WorkerLeases,
        *,
        interval_s: float,
        observer: Observer,
        felt: Callable[[HeartbeatResult], None],
        watchdog: Watchdog | None = None,
    ) -> None:
        self._leases = leases
        self._interval_s = interval_s
        self._observer = observer
        self._felt = felt
        self._watchdog = watchdog
        self._is_failing = False
        self._young_beats = YOUNG_BEATS

    async def beat_once(self, store: Store) -> None:
        """The first beat, by a store that is open already: to open one of its own takes the thread
        longer than everything else that is done before the first attempt."""
        pulse = await self._beat(store)
        if pulse is not None:
            self._felt(pulse)

    async def beat_in_loop(self, store: Store) -> None:
        """Go on beating on the caller's own loop until cancelled."""
        while True:
            await asyncio.sleep(self._pause_s())
            await self.beat_once(store)

    async def beat_in_thread(self, open_store: OpenStore) -> None:
        """Beat in a thread of its own, with a store of its own, until cancelled.

        Whatever ends the beating raises here: a worker must not live on without its heartbeat.
        """
        loop = asyncio.get_running_loop()
        beating: Future[None] = Future()
        stop = threading.Event()

        def body() -> None:
            asyncio.run(self._thread_body(open_store, loop, stop))

        thread = threading.Thread(
            target=hand_on, args=(beating, body), name="gnomon-heart", daemon=True
        )
        thread.start()
        ended = asyncio.wrap_future(beating)
        try:
            await asyncio.shield(ended)
        finally:
            stop.set()
            await asyncio.wait([ended])

    async def _thread_body(
        self, open_store: OpenStore, loop: asyncio.AbstractEventLoop, stop: threading.Event
    ) -> None:
        beats = asyncio.create_task(self._keep_beating(open_store, loop), name="beats")
        while not stop.is_set() and not beats.done():
            await asyncio.wait([beats], timeout=STOP_POLL_S)
            if self._watchdog is not None:
                self._watchdog.look(self._leases.ticked_at)
        beats.cancel()  # also one that waits for a database that does not answer
        with suppress(asyncio.CancelledError):
            await beats

    async def _keep_beating(self, open_store: OpenStore, loop: asyncio.AbstractEventLoop) -> None:
        store = await self._opened(open_store)
        try:
            while True:
                pulse = await self._beat(store)
                if pulse is not None:
                    with suppress(RuntimeError):  # the loop may be closed already
                        loop.call_soon_threadsafe(self._felt, pulse)
                await asyncio.sleep(self._pause_s())
        finally:
            await store.close()

    def _pause_s(self) -> float:
        """Shorter at first: those who start together learn soon how many share the shards."""
        pause_s = self._interval_s / (1 << self._young_beats)
        self._young_beats = max(0, self._young_beats - 1)
        return pause_s

    async def _opened(self, open_store: OpenStore) -> Store:
        """The heartbeat's own store; one that is away is waited for, as everywhere else."""
        while True:
            try:
                return await open_store()
            except Unavailable as exc:
                self._is_failing = True
                self._observer.event("heartbeat_failed", error=str(exc))
                await asyncio.sleep(self._interval_s)

    async def _beat(self, store: Store) -> HeartbeatResult | None:
        try:
            pulse = await self._leases.beat(store.leases)
        except Unavailable as exc:
            self._is_failing = True
            self._observer.count("store_errors", operation="heartbeat")
            self._observer.event("heartbeat_failed", error=str(exc))
            return None
        if self._is_failing:
            self._is_failing = False
            self._observer.event("heartbeat_resumed")
        return pulse
