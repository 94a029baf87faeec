"""The undertaker on a real store: what it frees, what it leaves, and whom it does not touch."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import pytest

from gnomon.clock import SystemEntropy
from gnomon.contracts.env import Env
from gnomon.contracts.store import (
    ActionDraft,
    BeginRequest,
    BegunAttempt,
    HeldShard,
    Installation,
    LeaseRequest,
    LimitRequest,
    Store,
)
from gnomon.model.effects import ends_with_process
from gnomon.model.limits import Limit, LimitKey, LimitKind
from gnomon.model.spec import Effect, Http, Mock, Python, Spec
from gnomon.stores.sqlite import InlineRunner, open_sqlite
from gnomon.worker import Worker, WorkerConfig
from gnomon.worker import dead_workers as undertaker_module
from tests.unit.worker.surroundings import Audience, HandClock

DEAD, ALIVE, ELSEWHERE = "here 7 100", "here 8 200", "there 7 100"
HOUR = timedelta(hours=1)
SHARDS = 4
CALL = Http(method="POST", url="https://receiver.test/hook")
SILENT_S = 1.5


class Kernel:
    """Knows which processes have ended, and counts how often it was asked."""

    own = ALIVE

    def __init__(self) -> None:
        self.asked: list[str] = []

    def has_ended(self, process: str) -> bool:
        self.asked.append(process)
        return process == DEAD


class Ground(NamedTuple):
    """A store with the traces of others, and a worker that looks at them."""

    store: Store
    installation: Installation
    clock: HandClock
    audience: Audience
    kernel: Kernel
    worker: Worker
    entropy: SystemEntropy

    async def look(self) -> None:
        await self.worker._dead_workers.look()

    async def left(
        self, process: str | None, *effects: Effect, owner: str = "host/7/dead", **spec: Any
    ) -> list[BegunAttempt]:
        """A worker took the free shards, began one attempt of each effect and beat for the last
        time just now."""
        holdings = [await self._held(shard, owner) for shard in range(SHARDS)]
        await self.store.actions.create([self._draft(effect, spec) for effect in effects])
        await self.store.work.move(holdings, limit=100)
        await self.store.leases.heartbeat(
            self.entropy.token(), owner=owner, holdings=holdings, alive_for=HOUR, process=process
        )
        return list(await self._begun(holdings, owner))

    async def _held(self, shard: int, owner: str) -> HeldShard:
        lock = next(one for one in await self.store.leases.list_locks() if one.shard == shard)
        request = LeaseRequest(seen=lock, lease_guid=self.entropy.token())
        (held,) = await self.store.leases.acquire([request], owner=owner, lease_for=HOUR)
        return held

    async def _begun(self, holdings: list[HeldShard], owner: str) -> list[BegunAttempt]:
        leases = {held.shard: held.lease_guid for held in holdings}
        lanes = await self.store.work.list_lanes(holdings)
        demands = [
            BeginRequest(lane=lane, lease_guid=leases[lane.shard], limit=99) for lane in lanes
        ]
        result = await self.store.work.begin(
            demands, batch=self.entropy.token(), owner=owner, grace=HOUR, window=HOUR, silent=HOUR
        )
        return list(result.begun)

    def _draft(self, effect: Effect, spec: dict[str, Any], shard: int | None = None) -> ActionDraft:
        guid, now = self.entropy.guid(), self.clock.now()
        return ActionDraft(
            id=str(guid),
            guid=guid,
            shard=guid.int % SHARDS if shard is None else shard,
            spec=Spec(action=effect, **spec),
            scheduled_at=now,
            occurrence_at=now,
            expires_at=None,
            retention=HOUR,
            keyed=False,
        )

    async def owners(self) -> set[str | None]:
        return {lock.owner for lock in await self.store.leases.list_locks()}

    async def running(self, begun: list[BegunAttempt]) -> list[bool]:
        found = [await self.store.actions.get(one.id) for one in begun]
        return [one is not None and one.status.current_attempt is not None for one in found]


@pytest.fixture
async def ground() -> AsyncIterator[Ground]:
    clock, audience, kernel, entropy = HandClock(), Audience(), Kernel(), SystemEntropy()
    runner = InlineRunner()
    store = open_sqlite(":memory:", clock=clock, entropy=entropy, runner=runner)
    await store.installation.migrate(shard_count=SHARDS)
    installation = await store.installation.open()
    env = Env(clock=clock, entropy=entropy, observer=audience, processes=kernel)
    worker = Worker(store, installation, {}, env=env, owner="host/8", config=WorkerConfig())
    yield Ground(store, installation, clock, audience, kernel, worker, entropy)
    await store.close()
    runner.connection.close()


async def test_what_a_dead_process_left_is_freed(ground: Ground) -> None:
    """Its attempts are interrupted and due, its shards free, its row is gone; twice is once."""
    begun = await ground.left(DEAD, Mock(), Python(function="f"))
    ground.clock.seconds += SILENT_S

    await ground.look()
    await ground.look()

    assert [False, False] == await ground.running(begun)
    for one in begun:
        (attempt,) = await ground.store.actions.list_attempts(one.id, limit=9)
        assert ("interrupted", "the worker's process ended") == (attempt.outcome, attempt.error)
    assert {None} == await ground.owners()
    assert [] == list(await ground.store.leases.list_workers())
    assert ["worker_buried"] == ground.audience.events
    assert [] == list(await ground.store.installation.doctor())


async def test_what_goes_on_elsewhere_keeps_its_reservation(ground: Ground) -> None:
    """The call may still be at work where it was received; its shard is free all the same."""
    (call,) = await ground.left(DEAD, CALL)
    ground.clock.seconds += SILENT_S

    await ground.look()

    assert [True] == await ground.running([call])
    assert {None} == await ground.owners()
    assert [] == list(await ground.store.leases.list_workers())


@pytest.mark.parametrize("process", [ALIVE, ELSEWHERE, None])
async def test_who_is_not_provably_dead_keeps_everything(
    ground: Ground, process: str | None
) -> None:
    """A machine that is cut off is not dead, however long it is silent."""
    begun = await ground.left(process, Mock())
    ground.clock.seconds += 300

    await ground.look()

    assert [True] == await ground.running(begun)
    assert {"host/7/dead"} == await ground.owners()
    assert 1 == len(await ground.store.leases.list_workers())


async def test_who_beats_is_not_asked_about(ground: Ground) -> None:
    """Whatever the machine says: one that beats lives. And it costs nothing."""
    begun = await ground.left(DEAD, Mock())
    ground.clock.seconds += 0.9

    await ground.look()

    assert [] == ground.kernel.asked
    assert [True] == await ground.running(begun)


async def test_the_same_number_again_is_somebody_else(ground: Ground) -> None:
    """A restarted process has its predecessor's number; only the predecessor is buried."""
    old = await ground.left(DEAD, Mock(), owner="host/1/old")
    ground.clock.seconds += SILENT_S
    await ground.look()
    new = await ground.left("here 7 300", Mock(), owner="host/1/new")
    ground.clock.seconds += SILENT_S

    await ground.look()

    assert [True] == await ground.running([one for one in new if one.id != old[0].id])
    assert {"host/1/new"} == await ground.owners()


async def test_last_words_are_heard(ground: Ground) -> None:
    """What a process sent before its end may be performed after it was buried: a last begin."""
    await ground.left(DEAD, Mock(), owner="host/7/dead")
    ground.clock.seconds += SILENT_S
    await ground.look()
    late = await ground.left(None, owner="host/7/dead")
    assert [True] == await ground.running(late)

    ground.clock.seconds += undertaker_module.AGAIN_AFTER_S
    await ground.look()

    assert [False] == await ground.running(late)
    assert {None} == await ground.owners()


async def test_more_than_a_page_is_freed_at_once(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stays running in between does not hide the rest."""
    monkeypatch.setattr(undertaker_module, "PAGE", 3)
    effects: list[Effect] = [Mock(), CALL, CALL]
    begun = await ground.left(DEAD, *effects * 5)
    ground.clock.seconds += SILENT_S

    await ground.look()

    wanted = [not ends_with_process(one.spec.action) for one in begun]
    assert wanted == await ground.running(begun)


async def test_repeated_interruptions_wait_as_before(ground: Ground) -> None:
    """An action that ends its process must not end one after the other, as fast as they start."""
    (first,) = await ground.left(DEAD, Mock())
    ground.clock.seconds += SILENT_S
    await ground.look()
    (again,) = await ground.left(DEAD, owner="host/7/next")
    ground.clock.seconds += SILENT_S
    await ground.look()

    action = await ground.store.actions.get(first.id)
    assert action is not None
    assert again.began_at + 2 * HOUR > _due(action.status.scheduled_at) > again.began_at + HOUR
    assert (2, 2) == (action.status.attempts, action.status.interrupted)


def _due(moment: datetime | None) -> datetime:
    assert moment is not None
    return moment


@pytest.mark.parametrize(("effect", "granted"), [(Mock(), 0), (CALL, 3)])
async def test_its_part_of_a_limit_is_free_unless_a_call_goes_on(
    ground: Ground, effect: Effect, granted: int
) -> None:
    """Nothing of it is under way; what is under way elsewhere counts for a lease, as ever."""
    key = LimitKey(LimitKind.QUEUE, "default")
    limit = Limit(kind=key.kind, name=key.name, parallel=3)
    await ground.store.limits.set(limit, guid=ground.entropy.guid())
    await ground.left(DEAD, effect)
    (row,) = await ground.store.leases.list_workers()
    claim = {key: LimitRequest(held=0, wanted=3)}
    assert {key: 3} == dict(await ground.store.limits.share(row.worker, claim, alive_for=HOUR))
    ground.clock.seconds += SILENT_S

    await ground.look()

    (use,) = (await ground.store.limits.list()).uses
    assert granted == use.granted


async def test_who_sees_that_another_buried_looks_at_its_own_shards(ground: Ground) -> None:
    """The dead may have worked in them, and nobody else says that something is due there now."""
    await ground.left(DEAD)
    await ground.look()
    (lock, *_) = await ground.store.leases.list_locks()
    assert lock.lease_guid is not None
    await ground.store.leases.release([HeldShard(shard=lock.shard, lease_guid=lock.lease_guid)])
    leases = ground.worker.leases
    pulse = await leases.beat(ground.store.leases)
    assert pulse is not None
    leases.note(pulse)
    await ground.store.leases.remove_worker(leases.worker)  # it is not among the living below
    assert [lock.shard] == [held.shard for held in await leases.take()]
    draft = ground._draft(Mock(), {}, shard=lock.shard)
    await ground.store.actions.create([draft])
    await ground.store.work.move(ground.worker.leases.trusted(), limit=9)
    (row,) = await ground.store.leases.list_workers()
    await ground.store.leases.remove_worker(row.worker)
    assert [] == list(ground.worker.pump.timeline.lanes())

    await ground.look()

    assert [lock.shard] == [lane.shard for lane in ground.worker.pump.timeline.lanes()]
