"""Part of the suite: from outside: a change is a whole document."""

from __future__ import annotations

from gnomon.contracts.store import Store
from tests.conformance.store.suite.entities.given import DOC, OTHER_DOC, GivenEntities
from tests.conformance.store.suite.given import Given


class TestWrite:
    """`write`: compare-and-set on the whole document."""

    async def test_a_first_write_makes_version_one(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """Epoch 1, version 1, at the database's time, to be read by its id."""
        before = await given.now()
        entity = await entities.written("ad-1")
        after = await given.now()

        assert (1, 1, DOC) == (entity.epoch, entity.version, entity.doc)
        assert before <= entity.changed_at <= after
        assert entity == await entities.entity("ad-1")
        assert given.shard_of("ad-1") == entity.shard
        assert None is await store.entities.get("ad-2", shard=given.shard_of("ad-2"))

    async def test_a_write_on_its_base_makes_the_next_version(
        self, entities: GivenEntities
    ) -> None:
        """The document is replaced whole."""
        first = await entities.written()

        second = await entities.changed(first)

        assert (1, 2, OTHER_DOC) == (second.epoch, second.version, second.doc)
        assert second == await entities.entity(first.key)

    async def test_a_write_on_another_base_stores_nothing(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """None for it, and all is as it was: version, notes, outbox."""
        first = await entities.written("ad")
        second = await entities.changed(first)
        await entities.has_relay()
        bases = [None, (1, 1), (1, 3), (2, 2), (0, 0)]

        for base in bases:
            write = entities.write_of("ad", doc="{}", base=base)
            assert [None] == list(await store.entities.write([write]))
            delete = entities.write_of("ad", doc=None, base=base)
            assert [None] == list(await store.entities.write([delete]))

        assert second == await entities.entity("ad")
        assert [2, 1] == await entities.versions_of(second)
        assert [] == list(await entities.outgoing())

    async def test_nothing_is_based_on_an_entity_that_is_not_there(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """Neither a change nor a delete."""
        writes = [
            entities.write_of("ad", base=(1, 1)),
            entities.write_of("ad", doc=None, base=(1, 1)),
            entities.write_of("ad", doc=None),
        ]

        assert [None, None, None] == list(await store.entities.write(writes))
        assert None is await store.entities.get("ad", shard=writes[0].shard)

    async def test_each_of_many_stands_for_itself(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """One that moved does not hold up the others; answers come in the order of the writes."""
        await entities.written("moved")
        names = ["z", "moved", "a", "m"]

        found = await store.entities.write([entities.write_of(name) for name in names])

        assert ["z", None, "a", "m"] == [entity and entity.key for entity in found]

    async def test_two_of_one_entity_are_written_one_after_the_other(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """The second sees the first."""
        writes = [
            entities.write_of("ad"),
            entities.write_of("ad"),
            entities.write_of("ad", base=(1, 1), doc=OTHER_DOC),
        ]

        found = await store.entities.write(writes)

        assert [1, None, 2] == [entity and entity.version for entity in found]
        assert OTHER_DOC == (await entities.entity("ad")).doc

    async def test_a_change_note_tells_what_by_whom_and_why(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """With depth 0: a chain begins."""
        write = entities.write_of("ad", paths=("price", "photos.1"), author="importer")
        (entity,) = await store.entities.write([write])
        assert entity is not None

        (note,) = await store.entities.changes("ad", shard=entity.shard, limit=10)

        assert (1, ("price", "photos.1"), "importer") == (note.version, note.paths, note.author)
        assert (write.root, 0, entity.changed_at) == (note.root, note.depth, note.at)

    async def test_the_newest_notes_come_first(self, store: Store, entities: GivenEntities) -> None:
        """As many as are wanted, none of another entity's, and none of an unknown one."""
        entity = await entities.written("ad")
        await entities.written("other")
        for _ in range(3):
            entity = await entities.changed(entity)

        assert [4, 3, 2, 1] == await entities.versions_of(entity)
        notes = await store.entities.changes("ad", shard=entity.shard, limit=2)
        assert [4, 3] == [note.version for note in notes]
        assert [] == list(await store.entities.changes("no", shard=entity.shard, limit=2))

    async def test_what_is_saved_goes_out_once_there_is_a_relay(
        self, entities: GivenEntities
    ) -> None:
        """Whoever saves it: the register says that there is a relay, not the writer."""
        first = await entities.written("ad")
        second = await entities.changed(first, relay=True, author="importer")

        (row,) = await entities.outgoing()

        assert ("", "ad", 1, 2) == (row.sink, row.entity_key, row.epoch, row.version)
        assert ("importer", ("price",), OTHER_DOC) == (row.author, row.paths, row.doc)
        assert (None, 0, second.changed_at) == (row.state, row.attempts, row.at)
        assert ("ad/1.2", await entities.root_of(second)) == (row.key, row.root)
