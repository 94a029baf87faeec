"""How many calls a second one host gets from this process."""

from __future__ import annotations

HOSTS_MAX = 10_000  # remembered; beyond it, those that are at rest are forgotten
BURST_S = 1.0  # what was not used of the last second may be used at once


class HostRates:
    """Counts out turns: at most `per_second` to one host, and a second's worth at once."""

    def __init__(self, per_second: float) -> None:
        self._step_s = 1 / per_second if per_second else 0.0
        self._next_at: dict[str, float] = {}

    def take(self, host: str, now: float, patience_s: float) -> float | None:
        """Seconds until the turn that was taken; None if it would be after `patience_s`: then none
        was taken."""
        if not self._step_s:
            return 0.0
        earliest = min(now, now - BURST_S + self._step_s)
        next_at = max(self._next_at.get(host, earliest), earliest)
        if next_at - now > patience_s:
            return None
        if host not in self._next_at and len(self._next_at) >= HOSTS_MAX:
            self._forget(earliest)
        self._next_at[host] = next_at + self._step_s
        return max(0.0, next_at - now)

    def wait_s(self, host: str, now: float) -> float:
        """Seconds until a turn is free."""
        return max(0.0, self._next_at.get(host, now) - now)

    def _forget(self, earliest: float) -> None:
        self._next_at = {host: at for host, at in self._next_at.items() if at > earliest}
