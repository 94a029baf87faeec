"""The database's present, asked for now and then."""

from __future__ import annotations

from datetime import datetime

from gnomon.clock import DatabaseClock
from gnomon.contracts.clock import Clock
from gnomon.contracts.store import InstallationStore

TRUSTED_S = 60.0


class TrustedTime:
    """What the database said is trusted for a minute: the clocks do not part faster."""

    def __init__(self, store: InstallationStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._database = DatabaseClock(clock)
        self._trusted_until = 0.0

    async def now(self) -> datetime:
        """The present; asked for if the last answer is too old."""
        if self._clock.monotonic() >= self._trusted_until:
            await self._ask()
        return self._database.now()

    async def learn(self) -> None:
        """Ask in time, so that `now` does not wait for anything in the next while."""
        if self._clock.monotonic() >= self._trusted_until - TRUSTED_S / 2:
            await self._ask()

    async def _ask(self) -> None:
        self._database.observe(await self._store.now())
        self._trusted_until = self._clock.monotonic() + TRUSTED_S
