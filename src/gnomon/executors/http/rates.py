"""How many calls a second one host gets from this process."""

from __future__ import annotations

from gnomon.model.token_bucket import TokenBucket

HOSTS_MAX = 10_000  # remembered; beyond it, those that are at rest are forgotten


class HostRates:
    """Counts out turns: at most `per_second` to one host, and a second's worth at once."""

    def __init__(self, per_second: float) -> None:
        self._rate = per_second
        self._buckets: dict[str, TokenBucket] = {}

    def take(self, host: str, now: float, patience_s: float) -> float | None:
        """Seconds until the turn that was taken; None if it would be after `patience_s`: then none
        was taken."""
        if not self._rate:
            return 0.0
        bucket = self._buckets.get(host) or self._add(host, now)
        wait_s = bucket.wait_s(now)
        if wait_s > patience_s:
            return None
        bucket.spend(1, now)
        return wait_s

    def wait_s(self, host: str, now: float) -> float:
        """Seconds until a turn is free."""
        bucket = self._buckets.get(host)
        return 0.0 if bucket is None else bucket.wait_s(now)

    def _add(self, host: str, now: float) -> TokenBucket:
        if len(self._buckets) >= HOSTS_MAX:
            self._buckets = {
                name: bucket for name, bucket in self._buckets.items() if not bucket.is_full(now)
            }
        bucket = self._buckets[host] = TokenBucket.full(self._rate, now)
        return bucket
