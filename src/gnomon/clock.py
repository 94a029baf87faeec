"""The machine's clock and random numbers: the only module that asks it for either."""

from __future__ import annotations

import asyncio
import os
import random
import time
from datetime import UTC, datetime, timedelta
from uuid import UUID

from gnomon.contracts.clock import Clock


class SystemClock:
    """This machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    monotonic = staticmethod(time.monotonic)


class SystemEntropy:
    """This machine's random numbers."""

    def guid(self) -> UUID:
        return uuid7(time.time_ns() // 1_000_000, os.urandom(10))

    def guids(self, count: int) -> list[UUID]:
        unix_ms, noise = time.time_ns() // 1_000_000, os.urandom(10 * count)
        return [uuid7(unix_ms, noise[place : place + 10]) for place in range(0, 10 * count, 10)]

    def token(self) -> UUID:
        return UUID(bytes=os.urandom(16), version=4)

    def fraction(self) -> float:
        return random.random()


_VERSION_7 = 7 << 76 | 0b10 << 62  # with the variant of RFC 9562
_RANDOM_BITS = (1 << 80) - 1 & ~(0xF << 76 | 0b11 << 62)


def uuid7(unix_ms: int, random_bytes: bytes) -> UUID:
    """RFC 9562 version 7 out of a time and ten random bytes."""
    random_bits = int.from_bytes(random_bytes, "big") & _RANDOM_BITS
    return UUID(int=(unix_ms & (1 << 48) - 1) << 80 | _VERSION_7 | random_bits)


async def wait_set(event: asyncio.Event, timeout_s: float | None) -> bool:
    """Wait until an event is set, at most so long; False when the time is up. None: for ever."""
    try:
        async with asyncio.timeout(timeout_s):
            return await event.wait()
    except TimeoutError:
        return False


class DatabaseClock:
    """An estimate of the database's present: the local clock plus a measured offset.

    Good for deciding when to wake up and for refusing what is long past; never for a fence,
    because the database checks every due time again by its own clock.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._base: tuple[datetime, float] | None = None

    def observe(self, database_now: datetime) -> None:
        """Note what the database just said.

        The answer's way back is not added, so the estimate lags by that much and is never
        ahead: what is due by it is due in the database too.
        """
        self._base = (database_now, self._clock.monotonic())

    @property
    def is_known(self) -> bool:
        return self._base is not None

    def now(self) -> datetime:
        """The database's present, as far as is known."""
        if self._base is None:
            return self._clock.now()
        observed, at = self._base
        return observed + timedelta(seconds=self._clock.monotonic() - at)
