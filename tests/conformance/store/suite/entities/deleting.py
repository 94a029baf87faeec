"""Part of the suite: a delete, and what comes after it."""

from __future__ import annotations

from gnomon.contracts.store import Store
from gnomon.contracts.store.queues import CommitKind, RowStatus
from tests.conformance.store.suite.entities.given import (
    DOC,
    OTHER_DOC,
    OTHER_STAGE,
    STAGE,
    GivenEntities,
)


class TestDelete:
    """`write` without a document."""

    async def test_a_tombstone_is_left(self, entities: GivenEntities) -> None:
        """With the next version and no document."""
        entity = await entities.deleted(await entities.written("ad"))

        assert (1, 2, None) == (entity.epoch, entity.version, entity.doc)
        assert entity == await entities.entity("ad")

    async def test_its_rows_and_timers_are_gone(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """Ready, sleeping and parked ones; nobody is asked about it any more."""
        claim = await entities.queued("ad")
        await entities.set_back(claim, RowStatus.LOOPING)
        await entities.offered("ad", entities.offer("b"))
        await entities.offered("ad", entities.offer("c", ready=False, wake=await entities.later()))
        changed = await entities.changed(claim.entity)

        await entities.deleted(changed)

        assert {} == await entities.rows("ad")
        assert [] == list(await entities.fed())
        assert [] == list(await store.installation.doctor())

    async def test_relay_and_stages_hear_of_it(self, entities: GivenEntities) -> None:
        """The relay if it wants to, and every stage that has a state there, with that state."""
        entity = await entities.written("ad")
        await entities.swapped(entity, b"mine")
        await entities.swapped(entity, b"other", stage=OTHER_STAGE)

        gone = await entities.deleted(entity, relay=True)

        rows = {row.sink: row for row in await entities.outgoing()}
        assert {"", STAGE, OTHER_STAGE} == set(rows)
        assert {None} == {row.doc for row in rows.values()}
        assert {(gone.epoch, gone.version)} == {(row.epoch, row.version) for row in rows.values()}
        assert {("ad/1.2", await entities.root_of(gone))} == {
            (row.key, row.root) for row in rows.values()
        }
        assert None is rows[""].state
        assert [b"mine", b"other"] == [
            state.body for stage in (STAGE, OTHER_STAGE) if (state := rows[stage].state)
        ]

    async def test_without_a_relay_only_stages_hear_of_it(self, entities: GivenEntities) -> None:
        """And a stage without a state has nothing to clean up."""
        await entities.deleted(await entities.written("ad"))
        entity = await entities.written("stated")
        await entities.swapped(entity)
        await entities.deleted(entity)

        assert [("stated", STAGE)] == [
            (row.entity_key, row.sink) for row in await entities.outgoing()
        ]

    async def test_a_delete_is_noted(self, store: Store, entities: GivenEntities) -> None:
        """Like any other change."""
        entity = await entities.deleted(await entities.written("ad"), author="importer")

        note = (await store.entities.changes("ad", shard=entity.shard, limit=1))[0]

        assert (2, "importer") == (note.version, note.author)

    async def test_a_deleted_one_is_not_changed(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """Whoever knows its tombstone must still make a new one."""
        gone = await entities.deleted(await entities.written("ad"))
        write = entities.write_of("ad", base=(gone.epoch, gone.version))
        delete = entities.write_of("ad", base=(gone.epoch, gone.version), doc=None)

        assert [None, None] == list(await store.entities.write([write, delete]))

    async def test_a_new_one_has_the_next_epoch(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """And begins at version 1; what was based on the old one fails."""
        old = await entities.deleted(await entities.written("ad"))

        new = await entities.written("ad")

        assert (2, 1, DOC) == (new.epoch, new.version, new.doc)
        late = entities.write_of("ad", base=(old.epoch, 1))
        assert [None] == list(await store.entities.write([late]))
        fed = await entities.fed_of("ad")
        assert [1] == [note.version for note in fed.changes]
        assert [1, 2, 1] == await entities.versions_of(new)

    async def test_a_commit_of_the_old_one_finds_it_gone(self, entities: GivenEntities) -> None:
        """Before and after there is a new one; the new one is not touched."""
        claim = await entities.queued("ad")
        await entities.deleted(claim.entity)

        assert CommitKind.GONE is (await entities.committed(claim, doc=OTHER_DOC)).kind
        new = await entities.written("ad")
        assert CommitKind.GONE is (await entities.committed(claim, doc=OTHER_DOC)).kind

        assert new == await entities.entity("ad")
        assert {} == await entities.rows("ad")

    async def test_states_of_the_old_one_are_not_the_new_ones(
        self, entities: GivenEntities
    ) -> None:
        """They are kept for a while, but a new entity begins without any."""
        entity = await entities.written("ad")
        await entities.swapped(entity, b"old")
        await entities.deleted(entity)
        new = await entities.written("ad")

        assert None is await entities.state("ad")
        assert {} == (await entities.fed_of("ad")).states
        assert None is await entities.swapped(entity, b"late", version=1)
        stored = await entities.swapped(new, b"new", version=0)
        assert stored is not None
        assert (1, b"new") == (stored.version, stored.body)
