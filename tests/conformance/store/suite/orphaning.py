"""Part of the suite: what workers leave behind whose processes end."""

from __future__ import annotations

from uuid import UUID

from gnomon.contracts.store import LapsedRow, Recorded, SettleRequest, Store
from gnomon.model.action import State
from gnomon.model.outcome import Interrupted
from gnomon.model.transition import transition
from tests.conformance.store.suite.given import HOUR, SECOND, Given

DEAD = "host/4711/aaaa"
ALIVE = "host/4711/bbbb"


class TestOrphans:
    """`orphans`: attempts of given owners, before their reservations are over."""

    async def test_running_attempts_of_the_owner_are_found(
        self, store: Store, given: Given
    ) -> None:
        """With everything that `settle` needs, whatever is left of their reservations."""
        await given.moved("mine", timeout=HOUR)
        (begun,) = (await given.begin(owner=DEAD)).begun

        (orphan,) = await orphans(store, given)

        assert orphan.running
        assert (begun.guid, begun.shard, begun.spec) == (orphan.guid, orphan.shard, orphan.spec)
        assert orphan.attempt is not None
        assert begun.attempt_id == orphan.attempt.attempt_id
        assert DEAD == orphan.attempt.owner
        assert 1 == orphan.status.attempts
        assert orphan.scheduled_at > orphan.now

    async def test_attempts_of_others_are_not(self, store: Store, given: Given) -> None:
        """An owner's name is compared whole: the same process number may have come again."""
        await given.moved("theirs")
        await given.begin(owner=ALIVE)
        await given.moved("waiting", due_in=HOUR)

        assert [] == await orphans(store, given)
        assert [] == await orphans(store, given, owners=[])

    async def test_what_ended_or_was_replaced_is_not(self, store: Store, given: Given) -> None:
        """Only current generations, and only what runs."""
        await given.moved("ended")
        await given.moved("replaced")
        begun = {one.id: one for one in (await given.begin(owner=DEAD)).begun}
        await given.recorded(begun["ended"])
        await given.replaced("replaced", due_in=HOUR)

        assert [] == await orphans(store, given)

    async def test_pages_follow_one_another_by_guid(self, store: Store, given: Given) -> None:
        """What stays running does not hide the rest."""
        guids = sorted([(await given.moved()).meta.guid for _ in range(5)])
        await given.begin(owner=DEAD)

        first = await orphans(store, given, limit=2)
        second = await orphans(store, given, limit=2, after=first[-1].guid)
        third = await orphans(store, given, limit=2, after=second[-1].guid)

        assert guids == [one.guid for one in (*first, *second, *third)]

    async def test_only_the_given_shards_are_looked_at(self, store: Store, given: Given) -> None:
        await given.moved(given.name_in(0))
        await given.begin(owner=DEAD)

        assert [] == list(await store.work.list_orphans([DEAD], shards=[1], after=None, limit=9))
        assert 1 == len(await store.work.list_orphans([DEAD], shards=[1, 0], after=None, limit=9))


class TestInterrupting:
    """`settle` on orphans."""

    async def test_an_interrupted_orphan_is_due_at_once(self, store: Store, given: Given) -> None:
        """Counted and logged with its reason and owner; the next attempt has the next number."""
        await given.moved("cut", timeout=HOUR)
        await given.begin(owner=DEAD)
        (orphan,) = await orphans(store, given)

        assert 1 == await interrupt(store, orphan)

        status = (await given.action("cut")).status
        assert (State.ACTIVE, 1, 1) == (status.state, status.attempts, status.interrupted)
        (logged,) = await store.actions.list_attempts("cut", limit=9)
        assert ("interrupted", "it ended") == (logged.outcome, logged.error)
        assert DEAD == logged.owner
        assert 2 == (await given.begun_again("cut")).status.attempts
        assert [] == list(await store.installation.doctor())

    async def test_twice_is_once(self, store: Store, given: Given) -> None:
        """Two workers may find the same dead one at the same moment."""
        await given.moved("cut", timeout=HOUR)
        await given.begin(owner=DEAD)
        (orphan,) = await orphans(store, given)

        assert [1, 0] == [await interrupt(store, orphan) for _ in range(2)]

        await given.begun_again("cut")
        assert 0 == await interrupt(store, orphan)
        assert 1 == (await given.action("cut")).status.interrupted

    async def test_a_result_on_its_way_wins_or_takes_it_back(
        self, store: Store, given: Given
    ) -> None:
        """The database may perform a process' last call after its end."""
        await given.moved("cut", timeout=HOUR)
        await given.moved("done", timeout=HOUR)
        begun = {one.id: one for one in (await given.begin(owner=DEAD)).begun}
        found = {one.id: one for one in await orphans(store, given)}

        assert Recorded.APPLIED is await given.recorded(begun["done"])
        assert 0 == await interrupt(store, found["done"])
        assert 1 == await interrupt(store, found["cut"])
        assert Recorded.APPLIED is await given.recorded(begun["cut"])

        ended = [(await given.action(name)).status for name in ("cut", "done")]
        assert [(1, 0), (1, 0)] == [(one.succeeded, one.interrupted) for one in ended]


class TestWorkers:
    """`workers`: who said that it lives, and how its end can be proved."""

    async def test_workers_are_listed_with_their_processes(
        self, store: Store, given: Given
    ) -> None:
        """A silent one too, until it leaves or is purged."""
        first, second = sorted([given.entropy.token(), given.entropy.token()])
        for worker, process in ((first, "linux 1 2"), (second, None)):
            await store.leases.heartbeat(
                worker, owner=f"w/{worker}", holdings=[], alive_for=SECOND, process=process
            )

        rows = await store.leases.list_workers()

        assert [(first, f"w/{first}", "linux 1 2"), (second, f"w/{second}", None)] == [
            (row.worker, row.owner, row.process) for row in rows
        ]
        assert all(row.silent_for < HOUR for row in rows)
        await store.leases.remove_worker(first)
        assert [second] == [row.worker for row in await store.leases.list_workers()]

    async def test_a_heartbeat_ends_the_silence(self, store: Store, given: Given) -> None:
        """Silence is counted by the database's clock, from the last heartbeat."""
        worker = given.entropy.token()

        async def beat() -> None:
            await store.leases.heartbeat(worker, owner="w", holdings=[], alive_for=HOUR)

        await beat()
        before = await given.now()
        await beat()

        (row,) = await store.leases.list_workers()
        assert row.silent_for <= await given.now() - before


async def orphans(
    store: Store,
    given: Given,
    *,
    owners: list[str] | None = None,
    after: UUID | None = None,
    limit: int = 100,
) -> list[LapsedRow]:
    shards = range(given.installation.shard_count)
    names = [DEAD] if owners is None else owners
    return list(await store.work.list_orphans(names, shards=shards, after=after, limit=limit))


async def interrupt(store: Store, orphan: LapsedRow) -> int:
    event = Interrupted(reason="it ended", reserved_until=orphan.scheduled_at)
    verdict = transition(orphan.spec, orphan.status, event, guid=orphan.guid, now=orphan.now)
    settlement = SettleRequest(lapsed=orphan, verdict=verdict, reason="it ended")
    return await store.work.settle([settlement])
