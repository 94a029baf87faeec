"""Part of the suite: the installation, its doctor, its upkeep."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from gnomon.contracts.store import Store
from gnomon.model.action import State
from gnomon.model.errors import InvalidRequest, SchemaMismatch
from gnomon.model.outcome import Failed
from tests.conformance.store.suite.given import HOUR, Given, every, refusal, retrying


class TestInstallation:
    """`migrate`, `open`, `now`."""

    async def test_migrating_again_applies_nothing(self, store: Store, given: Given) -> None:
        """Safe to repeat; the shard count is the first one's."""
        again = await store.installation.migrate(shard_count=given.installation.shard_count + 1)

        assert [] == list(again)
        assert given.installation == await store.installation.open()
        assert given.installation.shard_count == len(await store.leases.list_locks())

    async def test_several_may_migrate_at_once(self, given: Given) -> None:
        """Each from its own connection; the schema is made once."""
        others = [await given.open_another() for _ in range(3)]

        applied = await asyncio.gather(
            *(other.installation.migrate(shard_count=9) for other in others)
        )

        assert [[], [], []] == [list(names) for names in applied]
        assert given.installation == await others[0].installation.open()

    async def test_what_is_open_tells_what_it_is(self, store: Store) -> None:
        """Engine and durability, for health checks and answers."""
        installation = await store.installation.open()

        assert store.capabilities.engine == installation.engine
        assert installation.durability in ("replicated", "local", "none")
        assert 1 <= installation.schema_version

    async def test_a_newer_schema_is_refused(self, store: Store, given: Given) -> None:
        """This program must not touch what it does not know."""
        await given.execute_raw("UPDATE installation SET schema_version = 9999, floor = 9999")

        for call in (
            store.installation.migrate(shard_count=4),
            store.installation.open(),
        ):
            assert isinstance(await refusal(call), SchemaMismatch)

    async def test_the_clock_goes_on(self, store: Store) -> None:
        """The database's present, with a time zone."""
        first = await store.installation.now()
        second = await store.installation.now()

        assert first <= second
        assert timedelta(0) == first.utcoffset()


class TestIdentity:
    """`verify_identity` and `adopt`."""

    async def test_the_installed_database_is_itself(self, store: Store) -> None:
        """Nothing to say."""
        assert None is await store.installation.verify_identity()

    async def test_adopting_with_run_keeps_what_came_due(self, store: Store, given: Given) -> None:
        """Nothing is skipped, and the database is itself afterwards."""
        await given.moved("due")

        assert 0 == await store.installation.adopt(past_due="run")
        assert None is await store.installation.verify_identity()
        assert ["due"] == [begun.id for begun in (await given.begin()).begun]

    async def test_adopting_with_skip_lets_the_past_rest(self, store: Store, given: Given) -> None:
        """Overdue one-shots expire, periodic ones go on, the future is untouched."""
        await given.moved("overdue")
        await given.created("incoming")
        await given.moved("beat", policy=every(HOUR))
        later = await given.moved("later", due_in=HOUR)

        assert 3 == await store.installation.adopt(past_due="skip")

        await given.move()
        assert [] == list((await given.begin()).begun)
        assert State.EXPIRED is (await given.action("overdue")).status.state
        assert State.EXPIRED is (await given.action("incoming")).status.state
        beat = (await given.action("beat")).status
        assert State.ACTIVE is beat.state
        assert beat.scheduled_at is not None
        assert await given.now() < beat.scheduled_at
        assert later.status.scheduled_at == (await given.action("later")).status.scheduled_at
        assert [] == list(await store.installation.doctor())

    async def test_any_other_wish_is_refused(self, store: Store) -> None:
        """`run` or `skip`: there is no default for this."""
        error = await refusal(store.installation.adopt(past_due="maybe"))

        assert isinstance(error, InvalidRequest)


class TestDoctor:
    """`doctor`: every rule, kept and broken."""

    async def test_a_busy_store_is_well(self, store: Store, given: Given) -> None:
        """In every situation that the verbs can make."""
        await given.created("incoming")
        await given.paused("paused")
        await given.finished("done")
        await given.swept("swept")
        begun = await given.begun("failed", retry=retrying(2))
        await given.recorded(begun, Failed(error="no"))
        await given.begun("superseded")
        await given.replaced("superseded")
        await given.begun("running", policy=every(HOUR))

        assert [] == list(await store.installation.doctor())

    async def test_counters_that_do_not_add_up_are_found(self, store: Store, given: Given) -> None:
        """attempts = succeeded + failed + interrupted + running, for every action."""
        await given.moved("ill")
        await given.moved("well")
        await given.execute_raw("UPDATE scheduled_action SET failed = 3 WHERE id = 'ill'")

        assert {"ill"} == await subjects(store)

    async def test_finished_counters_that_do_not_add_up_are_found(
        self, store: Store, given: Given
    ) -> None:
        """Also in the archive."""
        await given.finished("ill")
        await given.execute_raw("UPDATE finished_action SET failed = 3 WHERE id = 'ill'")

        assert {"ill"} == await subjects(store)

    async def test_an_action_without_a_queue_row_is_found(self, store: Store, given: Given) -> None:
        """It would never begin."""
        await given.created("lost")
        await given.execute_raw("DELETE FROM incoming_queue")

        assert {"lost"} == await subjects(store)

    async def test_an_action_with_two_queue_rows_is_found(self, store: Store, given: Given) -> None:
        """It could begin twice."""
        await given.moved("twice")
        await given.execute_raw(
            "INSERT INTO incoming_queue (shard_id, created_at, guid, queue, priority, "
            "scheduled_at) SELECT shard_id, created_at, guid, queue, priority, scheduled_at "
            "FROM scheduled_action WHERE id = 'twice'"
        )

        assert {"twice"} == await subjects(store)

    async def test_an_active_action_without_a_time_is_found(
        self, store: Store, given: Given
    ) -> None:
        """Active means that something is planned."""
        await given.created("never")
        await given.execute_raw("UPDATE scheduled_action SET scheduled_at = NULL")

        assert {"never"} == await subjects(store)

    async def test_a_missing_lock_is_found(self, store: Store, given: Given) -> None:
        """A shard without a lock has no owner, ever."""
        await given.execute_raw("DELETE FROM shard_lock WHERE shard_id = 0")

        assert 1 == len(await store.installation.doctor())

    async def test_an_attempt_that_outlived_its_deadline_is_found(
        self, store: Store, given: Given
    ) -> None:
        """Nobody sweeps: somebody should know."""
        await given.begun("forgotten", due_in=-HOUR)
        queue = "incoming_queue" if given.arrives else "processing_queue"
        await given.execute_raw(
            f"UPDATE {queue} AS q SET deadline_at = a.occurrence_at FROM scheduled_action AS a "
            "WHERE a.shard_id = q.shard_id AND a.guid = q.guid"
        )

        assert {"forgotten"} == await subjects(store)

    async def test_rows_that_nobody_drops_are_found(self, store: Store, given: Given) -> None:
        """Of generations that are gone, long after their time, though the shard has an owner."""
        await given.moved(given.name_in(1), due_in=-HOUR)
        await given.execute_raw("DELETE FROM scheduled_action")

        assert {"shard 1"} == await subjects(store)
        await store.work.delete_stale(await given.holdings(), limit=10)
        assert set() == await subjects(store)


class TestMeasure:
    """`measure`: how large it is."""

    async def test_a_store_has_a_size(self, store: Store, given: Given) -> None:
        """By the engine's own count; nobody holds anything back in an idle store."""
        await given.created()

        found = await store.installation.measure()

        assert given.installation.engine == found.engine
        assert found.bytes > 0
        assert (found.free_bytes or 0) <= found.bytes
        assert all(table.bytes >= 0 for table in found.tables)


class TestPurge:
    """`purge`: what is over goes."""

    async def test_what_is_kept_stays(self, store: Store, given: Given) -> None:
        """Neither live actions nor finished ones within their retention go."""
        await given.created("live")
        await given.finished("done")

        await store.installation.purge(limit=100)

        assert await store.actions.get("live") is not None
        assert await store.actions.get("done") is not None

    async def test_purging_what_is_over_does_no_harm(self, store: Store, given: Given) -> None:
        """Finished actions past their retention are gone, before and after."""
        await given.finished_shortly("over", retention=timedelta(microseconds=1))

        await store.installation.purge(limit=100)

        assert None is await store.actions.get("over")
        assert [] == list(await store.installation.doctor())


async def subjects(store: Store) -> set[str]:
    """What the doctor names: the same at once, and shard by shard."""
    shards = range((await store.installation.open()).shard_count)
    one_by_one = [await store.installation.doctor([shard]) for shard in shards]
    found = {finding.subject for finding in await store.installation.doctor()}
    assert found == {finding.subject for some in one_by_one for finding in some}
    return found
