"""Whoever works on the leases of a worker is told when it has taken shards."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection
from datetime import timedelta

from gnomon.contracts.env import Env
from gnomon.contracts.leased_service import Ownership
from gnomon.contracts.observer import SilentObserver
from gnomon.stores.sqlite import open_sqlite
from gnomon.testing.virtual import SeededEntropy, VirtualClock, VirtualLoop, VirtualProcess
from gnomon.worker import Worker
from tests.simulation.runner import SimulationRunner
from tests.simulation.staged import CONFIG, SHARD_COUNT


class Companion:
    """Notes how many shards there were whenever it was told to look anywhere."""

    def __init__(self, ownership: Ownership) -> None:
        self._ownership = ownership
        self.held: list[int] = []

    def hint(self, shards: Collection[int]) -> None:
        if not shards:
            self.held.append(len(self._ownership.trusted()))

    async def keep_working(self) -> None:
        await asyncio.Event().wait()

    async def drain(self, within: timedelta) -> None: ...


async def _work_for_a_second(loop: VirtualLoop) -> list[int]:
    env = Env(
        clock=VirtualClock(loop),
        entropy=SeededEntropy(random.Random(1)),
        observer=SilentObserver(),
    )
    runner = SimulationRunner()
    store = open_sqlite(":memory:", clock=env.clock, entropy=env.entropy, runner=runner)
    await store.installation.migrate(shard_count=SHARD_COUNT)
    companions: list[Companion] = []

    def companion(ownership: Ownership) -> Companion:
        companions.append(Companion(ownership))
        return companions[-1]

    worker = Worker(
        store, await store.installation.open(), {}, env=env, owner="w", config=CONFIG,
        companions=[companion],
    )  # fmt: skip
    stop = asyncio.Event()
    working = VirtualProcess(loop, "w").start(worker.work(stop), name="w")
    await asyncio.sleep(1)
    stop.set()
    await working
    runner.connection.close()
    return companions[0].held


def test_companions_hear_of_shards_that_were_taken() -> None:
    """Nobody else tells them: what waits there was announced to the owner before."""
    loop = VirtualLoop()
    try:
        held = loop.run_until_complete(_work_for_a_second(loop))
    finally:
        loop.close()
    assert SHARD_COUNT in held
