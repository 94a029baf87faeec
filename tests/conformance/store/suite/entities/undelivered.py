"""Part of the suite: saves that a stage did not take, and how they come free."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from itertools import count

from gnomon.contracts.store import Store
from gnomon.contracts.store.outbox import OutboxRow
from gnomon.contracts.store.queues import Commit, CommitKind, RowStatus
from tests.conformance.store.suite.entities.given import (
    OTHER_DOC,
    OTHER_STAGE,
    STAGE,
    GivenEntities,
)
from tests.conformance.store.suite.entities.racing import committed
from tests.conformance.store.suite.entities.registering import declared
from tests.conformance.store.suite.given import HOUR, Given
from tests.conformance.store.suite.races import rivals

ENTITY_COUNT = 24
UNDELIVERED = RowStatus.UNDELIVERED


async def undelivered_of(store: Store, **wanted: object) -> list[tuple[str, str]]:
    """What is listed as undelivered: entity and stage."""
    page = {"stage": None, "after": None, "limit": 100} | wanted
    rows = await store.queues.parked(prefix="", **page)  # type: ignore[arg-type]
    return [(row.entity_key, row.stage) for row in rows if row.status is UNDELIVERED]


async def saving(entities: GivenEntities, name: str) -> Commit:
    """One more save of the stage, not made yet."""
    await entities.offered(name, entities.offer())
    return await entities.commit_of(await entities.claim(name), doc=OTHER_DOC, after_save=True)


class TestUndelivered:
    """`quarantine`: saves that wait for a person."""

    async def test_it_waits_with_all_that_is_behind_it(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """What was there, what stages save later, and a delete; nothing of others."""
        await entities.written("bad", relay=True)
        for stage in (STAGE, STAGE, OTHER_STAGE):
            await entities.saved_by("bad", stage)
        first, _ = await entities.outgoing(STAGE)
        await store.outbox.quarantine(first, error="no")
        await entities.saved_by("bad")
        await entities.deleted(await entities.entity("bad"))
        await entities.written("good")
        await entities.saved_by("good")

        rows = await entities.outgoing()

        assert {("bad", ""), ("bad", OTHER_STAGE), ("good", ""), ("good", STAGE)} == {
            (row.entity_key, row.sink) for row in rows
        }
        assert 3 == len([row for row in rows if row.sink])  # the delete is told to the other, too

    async def test_it_has_no_age_but_is_in_the_backlog(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """It holds up nothing and is no alarm, but is told of with its error."""
        await entities.undelivered("bad")
        await entities.saved_by("bad")
        await entities.age("stage_outbox", "at", by=HOUR)
        assert [] == list(await entities.waiting())
        names = (f"good-{number}" for number in count())
        good = next(name for name in names if given.shard_of(name) == given.shard_of("bad"))
        await entities.written(good)
        await entities.saved_by(good)

        (waiting,) = await entities.waiting()
        assert waiting.age < HOUR
        (backlog,) = await store.outbox.backlog()
        assert (STAGE, 3, 2, "no") == (
            backlog.sink, backlog.count, backlog.quarantined, backlog.error,
        )  # fmt: skip

    async def test_it_is_shown_with_the_entity_and_listed(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """Once, by the save that was not taken, however many are behind it."""
        save = await entities.undelivered("bad")
        await entities.saved_by("bad")

        row = await entities.row("bad")

        assert (UNDELIVERED, save.at, 1, ("save v2",), save.root, "no") == (
            row.status, row.first_at, row.attempts, row.reasons, row.root, row.error,
        )  # fmt: skip
        assert [row] == list(await store.queues.parked(prefix="", stage=None, after=None, limit=9))
        assert [] == list(
            await store.queues.parked(prefix="", stage=OTHER_STAGE, after=None, limit=9)
        )

    async def test_a_page_does_not_part_what_belongs_together(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """A stage may have given up an entity and a save of it: both are on one page."""
        for name in ("b", "a", "c"):
            await entities.undelivered(name)
        await entities.offered("b", entities.offer())
        await entities.set_back(await entities.claim("b"), RowStatus.QUARANTINED)

        found = []
        after = None
        while rows := await store.queues.parked(prefix="", stage=STAGE, after=after, limit=1):
            found.append([(row.entity_key, row.status) for row in rows])
            after = (rows[-1].entity_key, rows[-1].stage)

        assert [
            [("a", UNDELIVERED)],
            [("b", RowStatus.QUARANTINED), ("b", UNDELIVERED)],
            [("c", UNDELIVERED)],
        ] == found

    async def test_release_lets_saves_out_in_their_order(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """Of one stage or of all, with no failures; though the entity is gone."""
        shard = given.shard_of("bad")
        await entities.undelivered("bad")
        await entities.saved_by("bad", OTHER_STAGE)
        (other,) = await entities.outgoing(OTHER_STAGE)
        await store.outbox.quarantine(other, error="no")
        await entities.saved_by("bad")
        await entities.deleted(await entities.entity("bad"))
        await entities.undelivered("worse")

        assert 0 == await store.queues.release("bad", "nobody", shard=shard)
        assert 1 == await store.queues.release("bad", STAGE, shard=shard)
        assert [(2, 0), (4, 0), (5, 0)] == [
            (row.version, row.attempts) for row in await entities.outgoing()
        ]
        assert 1 == await store.queues.release("bad", None, shard=shard)
        assert [(3, 0), (5, 0)] == [
            (row.version, row.attempts) for row in await entities.outgoing(OTHER_STAGE)
        ]
        assert [("worse", STAGE)] == await undelivered_of(store)
        assert 0 == await store.queues.release("bad", None, shard=shard)

    async def test_release_frees_the_entity_and_its_saves(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """Both are counted, and saves that come later are due."""
        await entities.undelivered("bad")
        await entities.offered("bad", entities.offer())
        await entities.set_back(await entities.claim("bad"), RowStatus.QUARANTINED)

        assert 2 == await store.queues.release("bad", STAGE, shard=given.shard_of("bad"))

        await entities.saved_by("bad")
        assert [2, 3] == [row.version for row in await entities.outgoing(STAGE)]

    async def test_a_raised_revision_lets_saves_out(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """Of that stage, though it has another name by now; the same revision does not."""
        await declared(store, {"old": 1, OTHER_STAGE: 1})
        for name in ("a", "b"):
            await entities.undelivered(name, "old")
        await entities.saved_by("a", "old")
        await entities.undelivered("c", OTHER_STAGE)

        await declared(store, {STAGE: 1, OTHER_STAGE: 1}, formerly={STAGE: "old"})
        assert [("a", STAGE), ("b", STAGE), ("c", OTHER_STAGE)] == await undelivered_of(store)
        await declared(store, {STAGE: 2, OTHER_STAGE: 1})

        assert [("c", OTHER_STAGE)] == await undelivered_of(store)
        assert [("a", 2, 0), ("a", 3, 0), ("b", 2, 0)] == sorted(
            (row.entity_key, row.version, row.attempts) for row in await entities.outgoing()
        )

    async def test_a_late_answer_does_not_free_it(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """Nor is anything given up for a save that has arrived."""
        bad = await entities.undelivered("bad")
        await store.outbox.put_off([bad], delay=timedelta(0), error="late", counts=True)
        await store.outbox.quarantine(bad, error="later")
        assert ("no", 1) == ((row := await entities.row("bad")).error, row.attempts)
        await entities.written("good")
        await entities.saved_by("good")
        (arrived,) = await entities.outgoing(STAGE)
        await store.outbox.remove([arrived])
        await entities.saved_by("good")

        await store.outbox.quarantine(arrived, error="no")

        assert [3] == [row.version for row in await entities.outgoing()]
        assert [("bad", STAGE)] == await undelivered_of(store)

    async def test_a_stage_is_shown_with_what_it_did_not_take(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """An entity counts once among what is parked, beside those in the queue."""
        await declared(store, {STAGE: 1, OTHER_STAGE: 1})
        for name in ("a", "b"):
            await entities.undelivered(name)
            await entities.saved_by(name)
        await entities.parked("c")

        assert {STAGE: 3, OTHER_STAGE: 0} == {
            each.name: each.parked for each in await store.register.stages()
        }

    async def test_a_save_at_the_same_time_is_behind_it_or_free_with_it(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """None overtakes one that is just quarantined; none stays behind when it is released."""
        rival = (await rivals(store, given))[-1]
        names = [f"e{number:02}" for number in range(ENTITY_COUNT)]
        for name in names:
            await entities.written(name)
            await entities.saved_by(name)
        firsts = {row.entity_key: row for row in await entities.outgoing(STAGE)}

        commits = [await saving(entities, name) for name in names]
        committing = asyncio.create_task(committed(store, commits))
        await asyncio.gather(
            *(until_free(partial(quarantined, rival, firsts[name])) for name in reversed(names))
        )
        assert {CommitKind.SAVED} == {each.kind for each in await committing}
        assert [] == list(await entities.outgoing())

        commits = [await saving(entities, name) for name in names]
        committing = asyncio.create_task(committed(store, commits))
        await asyncio.gather(
            *(
                rival.queues.release(name, None, shard=given.shard_of(name))
                for name in reversed(names)
            )
        )
        assert {CommitKind.SAVED} == {each.kind for each in await committing}
        assert [] == await undelivered_of(store)
        rows = await entities.outgoing()
        assert [(name, version) for name in names for version in (2, 3, 4)] == sorted(
            (row.entity_key, row.version) for row in rows
        )

    async def test_saves_that_race_with_being_put_off_stay_in_order(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """Whichever is first, the later save is not due before the earlier one."""
        rival = (await rivals(store, given))[-1]
        for turn in range(4):
            names = [f"e{turn}-{number:02}" for number in range(ENTITY_COUNT)]
            for name in names:
                await entities.written(name)
                await entities.saved_by(name)
            firsts = {row.entity_key: row for row in await entities.outgoing(STAGE)}

            commits = [await saving(entities, name) for name in names]
            committing = asyncio.create_task(committed(store, commits))
            await asyncio.gather(
                *(until_free(partial(put_off, rival, firsts[name])) for name in reversed(names))
            )
            assert {CommitKind.SAVED} == {each.kind for each in await committing}
            assert [] == list(await entities.outgoing())


async def quarantined(store: Store, row: OutboxRow) -> bool:
    return await store.outbox.quarantine(row, error="no")


async def put_off(store: Store, row: OutboxRow) -> bool:
    return not await store.outbox.put_off([row], delay=HOUR, error="no", counts=True)


async def until_free(write: Callable[[], Awaitable[bool]]) -> None:
    """Somebody may hold the entity for a moment."""
    while not await write():
        pass
