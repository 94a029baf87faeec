"""Keeps this process within the limits of the whole installation: of queues, targets and stages.

Why no more than `parallel` are under way at once, whatever the number of processes:

* What processes may use is written down in the store, by one transaction at a time for each limit,
  and its sum never exceeds the limit. A process uses no more than it was told last; what it says
  it holds when it asks is what it may use until it hears the answer; and it is counted with all
  that it has under way, also while it shuts down.
* What was told is trusted for as long as a lease is. A process that cannot ask begins nothing more
  some seconds before the others may have what it had.

When a limit is new or lowered, what is under way is not cut off: it counts, and nothing more begins
until enough has ended. When a process dies, so do its attempts, and its part is used by nobody for
the time of a lease, or until another worker buries it. Only a process that is silent for
longer without being dead (frozen, or cut off from the database) may still be at attempts that are
not counted any more, until they time out.

Rates are not asked for: each is split by the shards that each process holds.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import NamedTuple, Protocol
from uuid import UUID

from gnomon.clock import wait_set
from gnomon.contracts.env import Env
from gnomon.contracts.store import LimitRequest, LimitStore, LimitTable
from gnomon.model.errors import Unavailable
from gnomon.model.limits import LimitKey

ASK_S = 0.5
LEAVE_S = 2.0


class Gates(Protocol):
    """What is limited in this process."""

    @property
    def is_denied(self) -> bool:
        """Whether something was told less than it needs: it asks again soon."""
        ...

    def limit_keys(self) -> Collection[LimitKey]:
        """The limits of which the store may count something for this process."""
        ...

    def set_limits(self, table: LimitTable) -> None:
        """These are the installation's limits now."""
        ...

    def requests(self) -> dict[LimitKey, LimitRequest]:
        """What to tell the store."""
        ...

    def grant(self, answer: Mapping[LimitKey, int], trusted_until: float) -> None:
        """What the store answered to the last requests, and until when on the monotonic clock it
        counts. A limit that is not in the answer was dropped or has no parallelism."""
        ...

    def end_round(self) -> None:
        """The store was asked, or could not be."""
        ...


class AskPace(NamedTuple):
    """How often the store is asked."""

    read_every_s: float = math.inf  # for the limits themselves; infinite: when `read_soon` says so
    denied_s: float = 0.2  # while there is less than is wanted
    pause_min_s: float = 0.05  # however urgent it is


DEFAULT_PACE = AskPace()


class Limiter:
    """Asks the store for this process's part of the limits, as often as needed."""

    def __init__(
        self,
        store: LimitStore,
        gates: Gates,
        *,
        worker: UUID,
        alive_for: timedelta,  # so long a grant counts for a process that does not ask
        trust_for: timedelta,  # and so long the process itself relies on it
        env: Env,
        pace: AskPace = DEFAULT_PACE,
    ) -> None:
        self._store = store
        self._gates = gates
        self._worker = worker
        self._alive_for = alive_for
        self._trust_s = trust_for.total_seconds()
        self._clock = env.clock
        self._observer = env.observer
        self._pace = pace
        self._wake = asyncio.Event()
        self._read_at = math.inf if math.isinf(pace.read_every_s) else -math.inf
        self._asked_at = -math.inf

    def __repr__(self) -> str:
        return f"Limiter({', '.join(str(key) for key in self._gates.limit_keys())})"

    def wake(self) -> None:
        """Ask soon."""
        self._wake.set()

    def read_soon(self) -> None:
        """The limits themselves have changed."""
        self._read_at = -math.inf
        self._wake.set()

    async def keep_asking(self) -> None:
        """Ask until cancelled."""
        while True:
            await self._rest()
            try:
                await self._read_in_time()
                await self._ask()
            except Unavailable as exc:
                self._observer.count("store_errors", operation="share_limits")
                self._observer.event("share_failed", error=str(exc))
                await asyncio.sleep(self._pace.denied_s)
            self._gates.end_round()

    async def leave(self) -> None:
        """Give everything back, so that the others need not wait for the silence. Nothing is under
        way any more, and nobody asks."""
        nothing = {key: LimitRequest(held=0, wanted=0) for key in self._gates.limit_keys()}
        with suppress(Unavailable, TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                if nothing:
                    await self._store.share(self._worker, nothing, alive_for=self._alive_for)

    async def _rest(self) -> None:
        """Until the next question: when something hurries, soon; without limits, for ever."""
        pause_s = self._pace.denied_s if self._gates.is_denied else ASK_S
        await wait_set(self._wake, pause_s if self._gates.limit_keys() else None)
        too_soon_s = self._asked_at + self._pace.pause_min_s - self._clock.monotonic()
        if too_soon_s > 0:
            await asyncio.sleep(too_soon_s)
        self._wake.clear()

    async def _read_in_time(self) -> None:
        now = self._clock.monotonic()
        if now >= self._read_at:
            table = await self._store.list()
            self._gates.set_limits(table)
            self._read_at = now + self._pace.read_every_s

    async def _ask(self) -> None:
        self._asked_at = self._clock.monotonic()
        requests = self._gates.requests()
        if requests:
            trusted_until = self._asked_at + self._trust_s
            answer = await self._store.share(self._worker, requests, alive_for=self._alive_for)
            self._gates.grant(answer, trusted_until)
