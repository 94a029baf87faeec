"""The store's time for /health, which everybody may ask: so it must cost nothing."""

from __future__ import annotations

import asyncio
from datetime import datetime

from gnomon.contracts.clock import Clock
from gnomon.contracts.store.installation import InstallationStore

REFRESH_S = 1.0


class StoreTime:
    """Asks the store for its time at most once in `REFRESH_S`, however many ask us."""

    def __init__(self, installation: InstallationStore, clock: Clock) -> None:
        self._installation = installation
        self._clock = clock
        self._turn = asyncio.Lock()
        self._asked_at = 0.0
        self._now: datetime | None = None

    async def now(self) -> datetime:
        """Errors: Unavailable."""
        async with self._turn:
            if self._now is None or self._clock.monotonic() - self._asked_at >= REFRESH_S:
                self._now = await self._installation.now()
                self._asked_at = self._clock.monotonic()
            return self._now
