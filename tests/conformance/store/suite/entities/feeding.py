"""Part of the suite: who is asked about changes."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gnomon.contracts.store import Store
from tests.conformance.store.suite.entities.given import STAGE, GivenEntities
from tests.conformance.store.suite.given import Given


class TestFeed:
    """`feed` and `asked`: every change from outside is asked about."""

    async def test_the_rows_that_were_made_are_told(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """As by a commit: new ones that are ready."""
        await entities.written("ad")
        await entities.asked("ad", entities.offer("waits"))
        await entities.changed(await entities.entity("ad"))
        offers = (entities.offer("new"), entities.offer("waits"), entities.offer("x", looping="x"))
        answer = await entities.answer_of(await entities.fed_of("ad"), *offers)

        (made,) = await store.queues.route([answer])

        row = await entities.row("ad", "new")
        assert ((row.stage, row.seq, row.first_at),) == made

    async def test_a_change_is_fed_with_all_that_is_needed_to_ask(
        self, entities: GivenEntities
    ) -> None:
        """Entity, changes since the last time, states, and its rows in all queues."""
        entity = await entities.written("ad")
        await entities.asked("ad", entities.offer(), entities.offer("loops", looping="x"))
        state = await entities.swapped(entity)
        entity = await entities.changed(entity, paths=("a",))
        entity = await entities.changed(entity, paths=("b",))

        (fed,) = await entities.fed()

        assert entity == fed.entity
        assert [(2, ("a",)), (3, ("b",))] == [(note.version, note.paths) for note in fed.changes]
        assert {STAGE: state} == dict(fed.states)
        assert await entities.rows("ad") == dict(fed.waiting)
        assert {STAGE, "loops"} == set(fed.waiting)

    async def test_what_was_asked_about_is_not_fed_again(self, entities: GivenEntities) -> None:
        """Whether anybody wanted it or not."""
        await entities.written("ad")
        await entities.asked("ad")

        assert [] == list(await entities.fed())

    async def test_until_it_is_answered_it_is_fed(self, entities: GivenEntities) -> None:
        """A crash between the two loses nothing."""
        await entities.written("ad")

        first, second = await entities.fed(), await entities.fed()

        assert list(first) == list(second)
        assert 1 == len(first)

    async def test_a_change_meanwhile_is_not_lost(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """The offers are stored, and the newer change alone is asked about next."""
        entity = await entities.written("ad")
        answer = await entities.answer_of(await entities.fed_of("ad"), entities.offer())
        await entities.changed(entity)

        assert None not in await store.queues.route([answer])

        assert {STAGE} == set(await entities.rows("ad"))
        fed = await entities.fed_of("ad")
        assert [2] == [note.version for note in fed.changes]
        await entities.asked("ad")
        assert [] == list(await entities.fed())

    async def test_an_answer_about_a_former_epoch_takes_nothing_away(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """Nobody was asked about the new one; and it has not got the old one's offers."""
        entity = await entities.changed(await entities.written("ad"))
        answer = await entities.answer_of(await entities.fed_of("ad"), entities.offer())
        await entities.deleted(entity)
        await entities.written("ad")

        assert None not in await store.queues.route([answer])

        assert {} == await entities.rows("ad")
        assert [1] == [note.version for note in (await entities.fed_of("ad")).changes]

    async def test_a_lost_lease_writes_nothing(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """False for it alone."""
        await entities.written("lost")
        await entities.written("held")
        answers = [
            await entities.answer_of(await entities.fed_of(name), entities.offer())
            for name in ("lost", "held")
        ]
        answers[0] = msgspec.structs.replace(answers[0], lease_guid=given.entropy.token())

        assert [True, False] == [made is None for made in await store.queues.route(answers)]

        assert {} == await entities.rows("lost")
        assert ["lost"] == [fed.entity.key for fed in await entities.fed()]

    async def test_an_answer_repeated_is_harmless(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """One more wake-up at worst; a change that came since is still fed."""
        entity = await entities.written("ad")
        answer = await entities.answer_of(await entities.fed_of("ad"), entities.offer())
        await store.queues.route([answer])
        await entities.changed(entity)

        assert None not in await store.queues.route([answer])

        assert {STAGE} == set(await entities.rows("ad"))
        assert [2] == [note.version for note in (await entities.fed_of("ad")).changes]

    async def test_the_oldest_are_fed_first(self, entities: GivenEntities) -> None:
        """By the first change not asked about; no more than wanted, without the skipped."""
        made = [await entities.written(f"e{number}") for number in range(5)]
        await entities.changed(made[0])

        assert [f"e{number}" for number in range(5)] == await fed_ids(entities)
        assert ["e0", "e1"] == await fed_ids(entities, limit=2)
        assert ["e1", "e3"] == await fed_ids(entities, limit=2, skip=["e0", "e2"])

    async def test_only_held_shards_are_fed(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """Under the lease that each has."""
        entity = await entities.written("ad")
        holding = await given.holding(entity.shard)

        assert [] == list(
            await store.queues.changed_entities([given.wrong(holding)], limit=9, skip=())
        )
        assert [] == list(await store.queues.changed_entities([], limit=9, skip=()))
        assert 1 == len(await store.queues.changed_entities([holding], limit=9, skip=()))


async def fed_ids(
    entities: GivenEntities, *, limit: int = 99, skip: Sequence[str] = ()
) -> list[str]:
    return [fed.entity.key for fed in await entities.fed(limit=limit, skip=skip)]
