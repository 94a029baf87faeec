"""Part of the suite: what is over goes, and what is wrong is found."""

from __future__ import annotations

from datetime import timedelta

from gnomon.contracts.store import Store
from tests.conformance.store.suite.entities.given import STAGE, GivenEntities


class TestPurgeEntities:
    """`purge_entities`: what is over goes."""

    async def test_old_notes_go_young_ones_stay(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """An hour is enough to solve conflicts."""
        entity = await entities.written("ad")
        await entities.asked("ad")
        await entities.age("entity_change", "at", timedelta(minutes=61))
        entity = await entities.changed(entity)
        await entities.asked("ad")

        assert 1 == await store.entities.purge(limit=100)

        assert [2] == await entities.versions_of(entity)
        assert 0 == await store.entities.purge(limit=100)
        assert entity == await entities.entity("ad")

    async def test_a_note_that_nobody_was_asked_about_stays(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """However long the workers are away, they ask about every change."""
        entity = await entities.changed(await entities.written("ad"))
        await entities.age("entity_change", "at", timedelta(days=2))

        await store.entities.purge(limit=100)

        fed = await entities.fed_of(entity.key)
        assert [1, 2] == [note.version for note in fed.changes]

    async def test_notes_of_tombstones_and_former_epochs_go(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """There is nobody to ask about them."""
        gone = await entities.deleted(await entities.written("gone"))
        await entities.deleted(await entities.written("back"))
        await entities.age("entity_change", "at", timedelta(hours=2))
        back = await entities.written("back")

        assert 4 == await store.entities.purge(limit=100)

        assert [] == await entities.versions_of(gone)
        assert [1] == await entities.versions_of(back)

    async def test_states_of_tombstones_go_after_a_week(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """They are kept that long for those who clean up; the tombstone stays for its epoch."""
        entity = await entities.written("ad")
        await entities.swapped(entity)
        living = await entities.written("living")
        await entities.swapped(living)
        gone = await entities.deleted(entity)

        await entities.age("entity", "changed_at", timedelta(days=6))
        await store.entities.purge(limit=100)
        assert 2 == await state_count(entities)

        await entities.age("entity", "changed_at", timedelta(days=8))
        await store.entities.purge(limit=100)
        assert 1 == await state_count(entities)
        assert await entities.state("living") is not None
        assert (gone.epoch, None) == ((await entities.entity("ad")).epoch, gone.doc)

    async def test_it_takes_no_more_than_it_is_told(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """The rest goes the next time."""
        entity = await entities.written("ad")
        for _ in range(4):
            entity = await entities.changed(entity)
        await entities.asked("ad")
        await entities.age("entity_change", "at", timedelta(hours=2))

        counts = [await store.entities.purge(limit=2) for _ in range(4)]

        assert [2, 2, 1, 0] == counts


class TestEntityDoctor:
    """`doctor`, as far as entities go: every rule, kept and broken."""

    async def test_a_busy_base_is_well(self, store: Store, entities: GivenEntities) -> None:
        """In every situation that the verbs can make."""
        await entities.written("unasked")
        await entities.queued("ready", wake=await entities.later())
        await entities.sleeping("asleep")
        await entities.parked("parked")
        await entities.deleted(await entities.kept("gone", STAGE, relay=True))
        await entities.deleted(await entities.written("back"))
        await entities.written("back")
        await entities.committed(await entities.queued("done"), doc="{}", unrouted=True)

        assert [] == list(await store.installation.doctor())

    async def test_a_row_without_an_entity_is_found(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """It would be looked at for ever, in vain."""
        await entities.queued("lost")
        await entities.queued("well")
        await entities.given.execute_raw("DELETE FROM entity WHERE entity_key = 'lost'")

        assert {("entity_row", "lost")} == await findings(store)

    async def test_a_row_of_a_tombstone_is_found(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """A delete takes all rows along."""
        await entities.queued("gone")
        await entities.given.execute_raw("UPDATE entity SET doc = NULL")

        assert {("entity_row", "gone")} == await findings(store)

    async def test_a_tombstone_that_is_to_be_asked_about_is_found(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """Nobody can be asked about what is not there."""
        await entities.written("gone")
        await entities.written("well")
        await entities.given.execute_raw("UPDATE entity SET doc = NULL WHERE entity_key = 'gone'")

        assert {("entity_row", "gone")} == await findings(store)

    async def test_a_row_without_its_time_is_found(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """Ready needs a time, sleeping a timer; else nothing ever comes of it."""
        await entities.queued("never")
        await entities.sleeping("for-ever")
        await entities.given.execute_raw(
            "UPDATE stage_queue SET ready_at = NULL WHERE entity_key = 'never'"
        )
        await entities.given.execute_raw(
            "UPDATE stage_queue SET timer_at = NULL WHERE entity_key = 'for-ever'"
        )

        assert {("entity_time", "never"), ("entity_time", "for-ever")} == await findings(store)


async def state_count(entities: GivenEntities) -> int:
    rows = await entities.given.execute_raw("SELECT count(*) FROM stage_state")
    return int(rows[0][0])


async def findings(store: Store) -> set[tuple[str, str]]:
    return {(finding.rule, finding.subject) for finding in await store.installation.doctor()}
