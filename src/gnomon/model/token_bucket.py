"""The token bucket: how often something may happen, and how often at once.

Pure: the caller says what time it is, in seconds of a monotonic clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

ROUNDING = 1e-6  # what lacks no more than this of a token is one


@dataclass(slots=True)
class TokenBucket:
    """Tokens come at `rate` a second and are kept up to `burst`. What is overdrawn is owed."""

    rate: float
    burst: float  # at least 1, or nothing could ever be taken
    tokens: float
    filled_at: float

    @classmethod
    def full(cls, rate: float, now: float) -> TokenBucket:
        """A bucket that holds a second's worth, and has it."""
        burst = max(1.0, rate)
        return cls(rate=rate, burst=burst, tokens=burst, filled_at=now)

    def count(self, now: float) -> int:
        """How many whole tokens there are now."""
        self._fill(now)
        return max(0, int(self.tokens + ROUNDING))

    def spend(self, count: int, now: float) -> None:
        """Take so many, also if there are fewer."""
        self._fill(now)
        self.tokens -= count

    def wait_s(self, now: float, count: float = 1.0) -> float:
        """How long until there are so many, or as many as are kept; infinite if none come."""
        self._fill(now)
        lacking = min(count, self.burst) - self.tokens
        if lacking <= ROUNDING:
            return 0.0
        return lacking / self.rate if self.rate else math.inf

    def is_full(self, now: float) -> bool:
        """Whether no more tokens are kept: such a bucket need not be remembered."""
        self._fill(now)
        return self.tokens >= self.burst

    def _fill(self, now: float) -> None:
        came = max(0.0, now - self.filled_at) * self.rate
        self.tokens = min(self.burst, self.tokens + came)
        self.filled_at = now
