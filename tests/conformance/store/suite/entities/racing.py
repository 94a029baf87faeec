"""Part of the suite: several at one entity, one winner, and no wake-up lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from gnomon.contracts.store import Store
from gnomon.contracts.store.entities import Entity
from gnomon.contracts.store.queues import Commit, CommitKind, CommitResult, Routing, RowStatus
from tests.conformance.store.suite.entities.given import OTHER_DOC, GivenEntities
from tests.conformance.store.suite.given import HOUR, Given
from tests.conformance.store.suite.races import rivals

ROUNDS = 5
ENTITY_COUNT = 12


@pytest.mark.usefixtures("waiting_verbs")
class TestEntityRaces:
    """Several stores on one database, the same entities at the same time."""

    async def test_one_write_on_a_base_wins(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """A new entity, and the next version of it: one of each, with one note."""
        stores = await rivals(store, given)
        await entities.has_relay()
        for base in (None, (1, 1)):
            answers = await asyncio.gather(
                *(rival.entities.write([entities.write_of("ad", base=base)]) for rival in stores)
            )

            assert len(stores) - 1 == [*answers].count([None])

        assert [2, 1] == await entities.versions_of(await entities.entity("ad"))
        assert [1, 2] == [row.version for row in await entities.outgoing()]

    async def test_all_writers_at_once_wait_for_each_other_in_one_order(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """Commits that change something and that do not, deletes, states, releases: in any order of
        the ids, nobody waits for somebody who waits for him."""
        stores = await rivals(store, given)
        for turn in range(ROUNDS):
            names = [f"{turn}-{number}" for number in range(ENTITY_COUNT)]
            claims = [await entities.queued(name) for name in names]
            plain = [await entities.commit_of(claim) for claim in claims]
            saves = [await entities.commit_of(claim, doc=OTHER_DOC) for claim in claims]
            gone = [entities.write_of(name, base=(1, 1), doc=None) for name in names]
            backs = [
                await entities.set_back_of(claim, RowStatus.READY, delay=HOUR) for claim in claims
            ]
            first, last = stores[0].queues, stores[-1]
            await asyncio.gather(
                first.commit(plain[::-1]),
                first.commit([*plain[::2], *saves[1::2]]),
                last.entities.write(gone[::-1]),
                last.queues.give_back(backs[::-1]),
                last.entities.write(
                    [entities.write_of(name, base=(1, 1), doc="{}") for name in names]
                ),
            )
            assert {1, 2} >= {(await entities.entity(name)).version for name in names}

    async def test_a_commit_or_a_write_wins(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """Never both on the same version: what loses sees what won."""
        outsider = (await rivals(store, given))[-1]
        claims = [await entities.queued(f"e{number}") for number in range(ENTITY_COUNT)]
        commits = [await entities.commit_of(claim, doc=OTHER_DOC) for claim in claims]
        writes = [entities.write_of(claim.entity.key, base=(1, 1)) for claim in claims]

        committing = asyncio.create_task(committed(store, commits))
        written = await asyncio.gather(
            *(outsider.entities.write([write]) for write in reversed(writes))
        )

        kinds = [one.kind for one in await committing]
        won = [entity for (entity,) in reversed(written)]
        for kind, entity in zip(kinds, won, strict=True):
            assert (CommitKind.SAVED if entity is None else CommitKind.MOVED) is kind
        for claim in claims:
            assert 2 == (await entities.entity(claim.entity.key)).version
        assert [] == list(await store.installation.doctor())

    async def test_a_change_beside_an_answer_is_still_asked_about(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """Whichever comes first: it was asked about, or it will be."""
        outsider = (await rivals(store, given))[-1]
        made = [await entities.written(f"e{number}") for number in range(ENTITY_COUNT)]
        answers = [await entities.answer_of(fed) for fed in await entities.fed()]
        writes = [entities.write_of(entity.key, base=(1, 1)) for entity in made]

        await asyncio.gather(routed(store, answers), outsider.entities.write(writes))

        fed = {each.entity.key: each.changes for each in await entities.fed()}
        assert {entity.key for entity in made} == set(fed)
        assert {2} == {changes[-1].version for changes in fed.values()}

    async def test_an_offer_beside_a_commit_is_not_lost(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """The row stays, or comes again: ready, either way."""
        outsider = (await rivals(store, given))[-1]
        claims = [await entities.queued(f"e{number}") for number in range(ENTITY_COUNT)]
        commits = [await entities.commit_of(claim) for claim in claims]
        answers = await offering(entities, [claim.entity for claim in claims])

        await asyncio.gather(committed(store, commits), routed(outsider, answers))

        assert ENTITY_COUNT == len(await entities.peeked())

    async def test_batches_in_any_order_all_arrive(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """Owners and outsiders meet in many entities at once; nobody waits for ever."""
        stores = await rivals(store, given)
        made = [await entities.written(f"e{number}") for number in range(ENTITY_COUNT)]
        answers = await offering(entities, made)
        turned = answers[::-1]

        await asyncio.gather(
            *(
                routed(rival, answers if number % 2 else turned)
                for number, rival in enumerate(stores)
            ),
            *(
                rival.entities.write(
                    [entities.write_of(entity.key, base=(1, 1)) for entity in made]
                )
                for rival in stores
            ),
            stores[0].queues.fire_timers(await given.holdings(), limit=99),
        )

        assert ENTITY_COUNT == len(await entities.peeked())
        assert {2} == {(await entities.entity(entity.key)).version for entity in made}

    async def test_a_delete_beside_a_commit_leaves_no_row(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """Saved before it, or gone: a tombstone has nothing in any queue."""
        outsider = (await rivals(store, given))[-1]
        claims = [await entities.queued(f"e{number}") for number in range(ENTITY_COUNT)]
        offers = (entities.offer("other"),)
        commits = [await entities.commit_of(claim, enqueues=offers) for claim in claims]
        deletes = [
            entities.write_of(claim.entity.key, base=(1, 1), doc=None) for claim in reversed(claims)
        ]

        await asyncio.gather(committed(store, commits), outsider.entities.write(deletes))

        for claim in claims:
            assert None is (await entities.entity(claim.entity.key)).doc
            assert {} == await entities.rows(claim.entity.key)
        assert [] == list(await store.installation.doctor())


async def committed(store: Store, commits: Sequence[Commit]) -> list[CommitResult]:
    """What came of them, as soon as nobody holds the entities."""
    told = dict(enumerate(await store.queues.commit(commits)))
    while held := [place for place, one in told.items() if one.kind is CommitKind.HELD]:
        again = await store.queues.commit([commits[place] for place in held])
        told.update(zip(held, again, strict=True))
    return list(told.values())


async def routed(store: Store, answers: Sequence[Routing]) -> None:
    """The same of what stages want."""
    left = list(answers)
    while left:
        made = await store.queues.route(left)
        left = [answer for answer, rows in zip(left, made, strict=True) if rows is None]


async def offering(entities: GivenEntities, made: Sequence[Entity]) -> list[Routing]:
    """The stage wants all of them; no feed row is answered by it."""
    return [
        Routing(
            entity_key=entity.key,
            shard=entity.shard,
            lease_guid=(await entities.given.holding(entity.shard)).lease_guid,
            seq=0,
            epoch=entity.epoch,
            version=0,
            enqueues=(entities.offer(),),
        )
        for entity in made
    ]
