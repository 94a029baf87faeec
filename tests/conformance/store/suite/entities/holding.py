"""Part of the suite: a user's open transaction holds entities, and owners go on without them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gnomon.contracts.store import Store
from gnomon.contracts.store.entities import StateWrite
from gnomon.contracts.store.queues import CommitKind, ReturnedKind, RowStatus
from tests.conformance.store.suite.entities.given import (
    OTHER_DOC,
    OTHER_STAGE,
    STAGE,
    GivenEntities,
)
from tests.conformance.store.suite.given import HOUR, Given

# What commits can be about: each takes another way through an engine.
COMMITS: dict[str, dict[str, Any]] = {
    "a document": {"doc": OTHER_DOC},
    "a state": {"state": StateWrite(body=b"2", revision=1)},
    "nothing": {},
    "others alone": {"offers": True},
}


class TestHeldEntities:
    """Whatever a user holds, for as long as he likes: no owner waits for it."""

    @pytest.mark.parametrize("what", COMMITS)
    async def test_a_held_commit_does_not_hold_up_the_others(
        self, store: Store, given: Given, entities: GivenEntities, what: str
    ) -> None:
        """It is told apart, nothing of it is written, and later it is saved as it is."""
        claims = [await entities.queued(name) for name in ("held", "free")]
        fields = {**COMMITS[what]}
        if fields.pop("offers", False):
            fields["enqueues"] = (entities.offer(OTHER_STAGE),)
        commits = [await entities.commit_of(claim, **fields) for claim in claims]
        async with _holding(store, given, "held") as is_held:
            if not is_held:
                return
            told = await store.queues.commit(commits)
            assert [CommitKind.HELD, CommitKind.SAVED] == [one.kind for one in told]
            assert claims[0].row == await entities.row("held")

        (told_again,) = await store.queues.commit(commits[:1])
        assert CommitKind.SAVED is told_again.kind
        assert STAGE not in await entities.rows("held")

    async def test_a_lost_lease_is_told_first(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """Who has lost it need not try again."""
        claim = await entities.queued("held")
        commit = await entities.commit_of(claim, doc=OTHER_DOC, lease_guid=given.entropy.token())
        async with _holding(store, given, "held"):
            (told,) = await store.queues.commit([commit])
            assert CommitKind.LOST is told.kind

    async def test_a_held_claim_is_given_back_later_and_the_others_at_once(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """Its row is as it was until then."""
        claims = [await entities.queued(name) for name in ("held", "free")]
        backs = [await entities.set_back_of(one, RowStatus.READY, delay=HOUR) for one in claims]
        async with _holding(store, given, "held") as is_held:
            if not is_held:
                return
            told = await store.queues.give_back(backs)
            assert [ReturnedKind.HELD, ReturnedKind.WRITTEN] == list(told)
            assert claims[0].row == await entities.row("held")

        assert [ReturnedKind.WRITTEN] == list(await store.queues.give_back(backs[:1]))

    async def test_a_held_change_is_asked_about_again_and_the_others_are_stored(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """What a stage wants with it is not written, and it stays among the changed ones."""
        for name in ("held", "free"):
            await entities.written(name)
        fed = {one.entity.key: one for one in await entities.fed()}
        answers = [
            await entities.answer_of(fed[name], entities.offer()) for name in ("held", "free")
        ]
        async with _holding(store, given, "held") as is_held:
            if not is_held:
                return
            held, free = await store.queues.route(answers)
            assert held is None
            assert free is not None
            assert [STAGE] == [row.stage for row in free]
            assert ["held"] == [one.entity.key for one in await entities.fed()]

        assert None not in await store.queues.route(answers[:1])
        assert [] == list(await entities.fed())

    async def test_a_backfill_does_not_pass_a_held_entity_over(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """Nobody would come to it again: the page is tried once more, whole."""
        keys = [entities.key_in(1) for _ in range(2)]
        for key in keys:
            await entities.written(key)
        await entities.backfill_begun()
        holding = await given.holding(1)
        page = await store.queues.backfill_page(holding, STAGE, limit=9, backlog_max=9)
        assert page is not None
        routings = [await entities.answer_of(one, entities.offer()) for one in page.entities]

        async def advanced() -> bool:
            return await store.queues.advance_backfill(
                holding, STAGE, started_at=page.started_at, cursor=None, routings=routings
            )

        async with _holding(store, given, keys[0]) as is_held:
            if not is_held:
                return
            assert not await advanced()
            assert [{}, {}] == [await entities.rows(key) for key in keys]

        assert await advanced()
        assert [{STAGE}, {STAGE}] == [set(await entities.rows(key)) for key in keys]

    async def test_a_held_save_is_put_off_later_and_the_others_at_once(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """It stays due; whoever looks for saves meanwhile can leave it out."""
        for name in ("held", "free"):
            await entities.published(name)
        rows = await entities.outgoing()

        async def put_off() -> frozenset[str]:
            return await store.outbox.put_off(rows, delay=HOUR, error="no", counts=True)

        async with _holding(store, given, "held") as is_held:
            if not is_held:
                return
            assert {"held"} == await put_off()
            assert ["held"] == [row.entity_key for row in await entities.outgoing()]
            assert not await store.outbox.quarantine(rows[0], error="no")

        assert frozenset() == await put_off()
        assert [] == list(await entities.outgoing())

    async def test_saves_of_entities_are_left_out_that_the_caller_names(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """And they take no room."""
        for name in ("a", "b", "c"):
            await entities.published(name)
        rows = await store.outbox.due_saves(
            await given.holdings(), "", limit=1, skip=frozenset({"a", "b"})
        )
        assert ["c"] == [row.entity_key for row in rows]

    async def test_states_of_a_held_tombstone_are_removed_later(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """The others' at once."""
        for name in ("held", "free"):
            await entities.deleted(await entities.kept(name, STAGE))
        await entities.age("entity", "changed_at", 8 * 24 * HOUR)
        async with _holding(store, given, "held") as is_held:
            if not is_held:
                return
            assert 1 == await store.entities.purge(limit=10)
            assert None is await entities.state("free")

        assert 1 == await store.entities.purge(limit=10)
        assert None is await entities.state("held")


@asynccontextmanager
async def _holding(store: Store, given: Given, *names: str) -> AsyncIterator[bool]:
    """A user's transaction that has locked entities, still open; False where it would hold the
    whole store: there is one writer at a time then, whoever it is."""
    if not store.capabilities.parallel_writers:
        yield False
        return
    await given.execute_raw("BEGIN")
    try:
        for name in names:
            await given.execute_raw(
                f"SELECT 1 FROM entity WHERE shard_id = {given.shard_of(name)} "
                f"AND entity_key = '{name}' FOR UPDATE"
            )
        yield True
    finally:
        await given.execute_raw("ROLLBACK")
