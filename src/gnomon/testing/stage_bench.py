"""A bench for stages: the real engine on SQLite in memory, under a clock that you move.

bench = StageBench(Expire(), VideoAlive(FakeTube()), now="2026-01-01")
await bench.put("a", ad())
await bench.run_due()
await bench.advance(days=180)
assert "expired" == bench["a"]["status"]
"""

from __future__ import annotations

import random
import weakref
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Self
from uuid import UUID

from gnomon.contracts.env import Env
from gnomon.contracts.observer import Observer, SilentObserver
from gnomon.contracts.store import HeldShard, Installation, LeaseRequest, Store
from gnomon.contracts.store.outbox import OutboxRow
from gnomon.model.ids import EntityKey
from gnomon.model.stage.patch import Patch
from gnomon.stages.codec import decode_document
from gnomon.stages.config import StagesConfig
from gnomon.stages.explain import Explanation, ParkedRow
from gnomon.stages.service import Stages, StageWorker
from gnomon.stages.stage import Stage
from gnomon.stores.sqlite import InlineRunner, open_sqlite
from gnomon.testing.bench_clock import BenchClock
from gnomon.testing.virtual import SeededEntropy

SHARD_COUNT = 4
ROUNDS_MAX = 100_000
STEP = timedelta(milliseconds=100)  # when a rate, not a time, is what is waited for


class AllShards:
    """Holds everything: there is nobody else."""

    worker = UUID(int=0)

    def __init__(self) -> None:
        self.holdings: dict[int, HeldShard] = {}

    def trusted(self) -> list[HeldShard]:
        return list(self.holdings.values())

    def holding(self, shard: int) -> HeldShard | None:
        return self.holdings.get(shard)


class StageBench:
    """Some stages over entities of a kind, a store in memory, and the time in your hands."""

    def __init__(
        self,
        kind: str,
        *stages: Stage[Any, Any],
        now: str | datetime = "2026-01-01",
        entity: Any = None,
        config: StagesConfig | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.clock = BenchClock(now)
        self.env = Env(
            clock=self.clock,
            entropy=SeededEntropy(random.Random(0)),  # the same for every bench
            observer=observer or SilentObserver(),
        )
        self._runner = InlineRunner()
        # Many a test just drops its bench, and newer Pythons warn of what is left open then.
        weakref.finalize(self, self._runner.connection.close)
        self.store: Store = open_sqlite(
            ":memory:", clock=self.clock, entropy=self.env.entropy, runner=self._runner
        )
        self._installation: Installation | None = None
        self._worker: StageWorker | None = None
        self._ownership = AllShards()
        self.stages_config = config or StagesConfig()
        self.attached: list[Stages[Any]] = []
        self.published: list[OutboxRow] = []  # what the relay was given, in order
        self.stages: Stages[Any] = Stages(self, kind, entity=entity, relay=_Kept(self))
        self.stages.add(*stages)

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        await self.close()

    @property
    def installation(self) -> Installation:
        assert self._installation is not None, "await something of the bench first"
        return self._installation

    @property
    def worker(self) -> StageWorker:
        """What works here: reconciler and relay."""
        assert self._worker is not None, "await something of the bench first"
        return self._worker

    @property
    def now(self) -> datetime:
        """The bench's present."""
        return self.clock.now()

    async def close(self) -> None:
        """Forget everything."""
        await self._runner.close()

    # -- entities ---------------------------------------------------------------------------------

    async def put(self, entity_id: str, document: Any) -> None:
        """Create or replace an entity."""
        await self._open()
        await self.stages.put(entity_id, document)

    async def patch(self, entity_id: str, patch: Patch) -> None:
        """Change some of its fields."""
        await self._open()
        await self.stages.patch(entity_id, patch)

    async def delete(self, entity_id: str) -> None:
        """Remove it."""
        await self._open()
        await self.stages.delete(entity_id)

    def __getitem__(self, entity_id: str) -> dict[str, Any]:
        """An entity's document, as it is now. Errors: KeyError."""
        return decode_document(self._living(entity_id)[1])

    def version(self, entity_id: str) -> int:
        """How often it was changed."""
        return self._living(entity_id)[0]

    def _living(self, entity_id: str) -> tuple[int, str]:
        row: tuple[int, str] | None = self._runner.connection.execute(
            "SELECT version, doc FROM entity WHERE entity_key = ? AND doc IS NOT NULL",
            (str(EntityKey(self.stages.kind, entity_id)),),
        ).fetchone()
        if row is None:
            raise KeyError(entity_id)
        return row

    async def explain(self, entity_id: str) -> Explanation:
        """Why it is in which queue."""
        await self._open()
        return await self.stages.explain(entity_id)

    async def parked(self) -> Sequence[ParkedRow]:
        """What waits for a person."""
        await self._open()
        return await self.stages.parked()

    # -- time -------------------------------------------------------------------------------------

    async def run_due(self) -> None:
        """Do everything that is due now."""
        worker = await self._open()
        await worker.reconciler.declare_in_time()
        for _ in range(ROUNDS_MAX):
            worker.hint(())  # stages and tests may have changed something meanwhile
            did = await worker.reconciler.step()
            if worker.reconciler.claims.in_hand:
                await worker.reconciler.claims.idle()
                did = True
            did = await worker.relay.step() or did
            if not did:
                return
        raise AssertionError(f"something is due again and again after {ROUNDS_MAX} rounds")

    async def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> None:
        """Let time pass, and everything happen at its time."""
        worker = await self._open()
        end = self.now + timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        await self.run_due()
        while True:
            times = (worker.reconciler.next_at(), worker.relay.next_at())
            at = min((time for time in times if time is not None), default=None)
            if at is None or at > end:
                break
            self.clock.move_to(at if at > self.now else self.now + STEP)
            await self.run_due()
        self.clock.move_to(end)
        await self.run_due()

    def restart(self) -> None:
        """As if the program ended and came again, with the stages it has by now."""
        self._worker = None

    async def _open(self) -> StageWorker:
        if self._worker is not None:
            return self._worker
        await self.store.installation.migrate(shard_count=SHARD_COUNT)
        self._installation = await self.store.installation.open()
        requests = [
            LeaseRequest(seen=lock, lease_guid=self.env.entropy.token())
            for lock in await self.store.leases.list_locks()
            if lock.shard not in self._ownership.holdings
        ]
        taken = await self.store.leases.acquire(
            requests, owner="bench", lease_for=timedelta(seconds=10)
        )
        assert len(taken) == len(requests)
        self._ownership.holdings |= {held.shard: held for held in taken}
        self._worker = StageWorker.of(self, self._ownership)
        await self._worker.reconciler.declare()
        await self.run_due()  # the backfills of new stages, which find nothing yet
        return self._worker


class _Kept:
    """A relay that keeps what it is given."""

    def __init__(self, bench: StageBench) -> None:
        self._bench = bench

    async def send(self, rows: Sequence[OutboxRow]) -> Sequence[Exception | None]:
        self._bench.published.extend(rows)
        return [None] * len(rows)

    async def close(self) -> None: ...
