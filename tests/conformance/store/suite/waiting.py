"""Part of the suite: why an action waits, from what the store says to the sentence."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from gnomon.contracts.store import Store, WaitFacts
from gnomon.model.limits import Limit, LimitKind
from gnomon.model.offer import Offer
from gnomon.model.outcome import Failed, Unserved
from gnomon.model.spec import Retry
from gnomon.model.why import WaitReason, Why
from gnomon.scheduler.wait_reason import explain_wait
from tests.conformance.store.suite.given import HOUR, OWNER, Given

WORKER = UUID(int=7)
SILENT = timedelta(minutes=1)


async def facts(store: Store, name: str) -> WaitFacts:
    found = await store.reports.why(name)
    assert found is not None
    return found


async def why(store: Store, name: str) -> Why:
    found = await facts(store, name)
    return explain_wait(found, here=found.now)


async def alive(given: Given, offer: Offer | None = None) -> None:
    """A worker that holds all shards has just beaten."""
    await given.store.leases.heartbeat(
        WORKER,
        owner=OWNER,
        holdings=await given.holdings(),
        alive_for=SILENT,
        offer=offer or Offer(),
    )


class TestWhy:
    """`why`: what decides whether an action begins."""

    async def test_of_nothing_there_is_nothing_to_say(self, store: Store) -> None:
        """The caller says that it is not there."""
        assert await store.reports.why("nobody") is None

    async def test_before_its_time_it_waits_for_that(self, store: Store, given: Given) -> None:
        """And it is known until when."""
        action = await given.created(due_in=HOUR)
        found = await why(store, action.meta.id)
        assert WaitReason.NOT_DUE is found.code
        assert action.status.scheduled_at == found.until

    async def test_a_paused_one_waits_to_be_resumed(self, store: Store, given: Given) -> None:
        """Also when its time has passed."""
        action = await given.paused()
        assert WaitReason.PAUSED is (await why(store, action.meta.id)).code

    async def test_a_running_one_does_not_wait(self, store: Store, given: Given) -> None:
        """It is said who is at it."""
        begun = await given.begun()
        found = await why(store, begun.id)
        assert WaitReason.RUNNING is found.code
        assert OWNER in found.sentence

    async def test_a_failed_one_waits_for_its_retry(self, store: Store, given: Given) -> None:
        """The error is told."""
        begun = await given.begun(retry=Retry(max=3, min_period=HOUR, max_period=HOUR))
        await given.recorded(begun, Failed(error="no route to host"))
        found = await why(store, begun.id)
        assert WaitReason.RETRYING is found.code
        assert "no route to host" in found.sentence

    async def test_a_finished_one_tells_its_end(self, store: Store, given: Given) -> None:
        """There is nothing to wait for."""
        action = await given.finished()
        found = await why(store, action.meta.id)
        assert (WaitReason.ENDED, 0) == (found.code, (await facts(store, action.meta.id)).behind)

    async def test_without_a_worker_nothing_begins(self, store: Store, given: Given) -> None:
        """A worker that left does not count."""
        action = await given.created()
        await alive(given)
        await store.leases.remove_worker(WORKER)
        assert WaitReason.NO_WORKER is (await why(store, action.meta.id)).code

    async def test_a_queue_that_nobody_serves(self, store: Store, given: Given) -> None:
        """Those who are alive serve another one."""
        action = await given.created(queue="mail")
        await alive(given, Offer(only=("other",)))
        found = await why(store, action.meta.id)
        assert WaitReason.UNSERVED is found.code
        assert "mail" in found.sentence

    async def test_a_need_that_nobody_has(self, store: Store, given: Given) -> None:
        """Until somebody offers it."""
        begun = await given.begun()
        await given.recorded(begun, Unserved(need="function welcome"))
        await alive(given)
        found = await why(store, begun.id)
        assert WaitReason.UNSERVED is found.code
        assert "function welcome" in found.sentence
        await alive(given, Offer(needs=("function welcome",)))
        assert WaitReason.SOON is (await why(store, begun.id)).code

    async def test_a_shard_without_an_owner(self, store: Store, given: Given) -> None:
        """Though a worker lives."""
        action = await given.created()
        await alive(given)
        await given.released()
        found = await why(store, action.meta.id)
        assert (WaitReason.UNOWNED, action.meta.shard) == (found.code, found.facts["shard"])

    async def test_a_limit_that_lets_nothing_begin(self, store: Store, given: Given) -> None:
        """It is named; one of another queue does not count."""
        mail, other = await given.created(queue="mail"), await given.created(queue="other")
        await alive(given)
        limit = Limit(kind=LimitKind.QUEUE, name="mail", parallel=0)
        await store.limits.set(limit, guid=given.entropy.guid())
        found = await why(store, mail.meta.id)
        assert (WaitReason.LIMIT, ["queue/mail"]) == (found.code, found.facts["limits"])
        assert WaitReason.SOON is (await why(store, other.meta.id)).code

    async def test_those_before_it_are_counted(self, store: Store, given: Given) -> None:
        """Of its shard and queue: due earlier, or of a priority before its own; nobody else."""
        shard = 1
        await alive(given)
        last = await given.created(given.name_in(shard), queue="mail", due_in=timedelta(seconds=-5))
        for fields in (
            {"queue": "mail", "due_in": timedelta(seconds=-9)},
            {"queue": "mail", "due_in": timedelta(seconds=-1), "priority": 0},
        ):
            await given.created(given.name_in(shard), **fields)
        for fields in (
            {"queue": "mail", "due_in": timedelta(seconds=-1)},
            {"queue": "mail", "due_in": timedelta(seconds=-9), "priority": 9},
            {"queue": "mail", "due_in": HOUR, "priority": 0},
            {"queue": "other", "due_in": timedelta(seconds=-9)},
        ):
            await given.created(given.name_in(shard), **fields)
        await given.created(given.name_in(shard + 1), queue="mail", due_in=timedelta(seconds=-9))
        await given.move()
        found = await why(store, last.meta.id)
        assert (WaitReason.BEHIND, 2) == (found.code, found.facts["behind"])

    async def test_by_the_clock_of_the_asker_it_is_due(self, store: Store, given: Given) -> None:
        """The database's clock counts, and the difference is told."""
        action = await given.created(due_in=timedelta(minutes=1))
        found = await facts(store, action.meta.id)
        told = explain_wait(found, here=found.now + timedelta(minutes=2))
        assert WaitReason.CLOCK is told.code
        assert "2m behind" in told.sentence
