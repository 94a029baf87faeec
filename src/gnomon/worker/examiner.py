"""Checks the invariants in production, too: a finding is an alarm. One worker is enough.

It goes from shards to shards, as many at a time as take a moment, and rests a hundred times as
long: however large the store is, nobody waits for it, and it holds no snapshot for long.
"""

from __future__ import annotations

import asyncio

from gnomon.boundary import Round
from gnomon.contracts.env import Env
from gnomon.contracts.store import Installation, Store
from gnomon.worker.config import WorkerConfig
from gnomon.worker.leases import WorkerLeases

SELDOM = 100  # it takes a hundredth of the time at most
SOON_S = 0.2  # more shards at a time, if they took less
LATE_S = 1.0  # fewer, if they took more


class Examiner:
    """Lets the doctor look at all shards in turn, about once a minute."""

    def __init__(
        self,
        store: Store,
        installation: Installation,
        leases: WorkerLeases,
        config: WorkerConfig,
        env: Env,
    ) -> None:
        self._installation = store.installation
        self._leases = leases
        self._shard_count = installation.shard_count
        self._pause_s = config.doctor.total_seconds()
        self._clock = env.clock
        self._entropy = env.entropy
        self._observer = env.observer
        self._at_a_time = 1

    async def keep_examining(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(self._pause_s * (0.5 + self._entropy.fraction()))
            first = 0
            while first < self._shard_count and self._leases.holding(0) is not None:
                first = await self._examine_from(first)

    async def _examine_from(self, first: int) -> int:
        """Some shards, and rest; which comes next."""
        end = min(first + self._at_a_time, self._shard_count)
        started = self._clock.monotonic()
        with Round(self._observer, "doctor"):  # who hears of no finding must hear of this
            await self._examine(range(first, end))
        took_s = self._clock.monotonic() - started
        self._at_a_time = shards_at_a_time(self._at_a_time, took_s, self._shard_count)
        await asyncio.sleep(took_s * SELDOM)
        return end

    async def _examine(self, shards: range) -> None:
        for finding in await self._installation.doctor(shards):
            self._observer.count("doctor_findings", rule=finding.rule)
            self._observer.event(
                "doctor_finding", rule=finding.rule, subject=finding.subject, detail=finding.detail
            )


def shards_at_a_time(before: int, took_s: float, shard_count: int) -> int:
    """How many to look at next, when so many took so long."""
    if took_s < SOON_S:
        return min(2 * before, shard_count)
    return max(1, before // 2) if took_s > LATE_S else before
