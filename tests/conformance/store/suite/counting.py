"""Part of the suite: the figures of the installation."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from gnomon.contracts.store import InstallationFigures, QueueFigures, StageFigures, Store
from gnomon.contracts.store.figures import COUNT_LEAST
from gnomon.model.outcome import Failed
from tests.conformance.store.suite.entities.given import OTHER_STAGE, STAGE, GivenEntities
from tests.conformance.store.suite.given import HOUR, NOTHING, OWNER, Given

MINUTE = timedelta(minutes=1)
WORKER = UUID(int=7)
LIMIT = 1_000


async def figures(store: Store, *, limit: int = LIMIT) -> InstallationFigures:
    return await store.installation.figures(limit=limit, alive_for=MINUTE)


async def counts(store: Store, queue: str, *, limit: int = LIMIT) -> tuple[int, int, int, int]:
    """Waiting, overdue, running, dead."""
    for one in (await figures(store, limit=limit)).queues:
        if one.queue == queue:
            return one.waiting, one.overdue, one.running, one.dead
    return 0, 0, 0, 0


class TestFigures:
    """`figures`: how much there is, by queue and by stage."""

    async def test_an_empty_installation_has_none(self, store: Store, given: Given) -> None:
        """Shards without an owner there are, and no worker."""
        found = await figures(store)

        assert ([], [], 0) == (list(found.queues), list(found.stages), found.workers_alive)
        shards = given.installation.shard_count
        assert (shards, shards) == (found.shards, found.shards_unowned)
        assert (LIMIT, False) == (found.limit, found.partial)
        assert QueueFigures(queue="") == found.actions

    async def test_arrivals_count_before_anybody_moved_them(
        self, store: Store, given: Given
    ) -> None:
        """No worker need be there."""
        await given.created(queue="mail", due_in=HOUR)
        await given.created(queue="mail")
        await given.created(queue="mail")
        assert (1, 2, 0, 0) == await counts(store, "mail")

    async def test_what_was_moved_counts_the_same(self, store: Store, given: Given) -> None:
        """In every lane of the queue."""
        await given.created(queue="mail", due_in=HOUR)
        await given.created(queue="mail", priority=0)
        await given.created(queue="mail", priority=9)
        await given.created(queue="other")
        await given.move()
        assert (1, 2, 0, 0) == await counts(store, "mail")
        assert (0, 1, 0, 0) == await counts(store, "other")

    async def test_a_running_attempt_is_neither_waiting_nor_overdue(
        self, store: Store, given: Given
    ) -> None:
        """Wherever its row is; also if its reservation has run out."""
        await given.begun(queue="mail")
        assert (0, 0, 1, 0) == await counts(store, "mail")
        await given.overrun(queue="late")
        assert (0, 0, 1, 0) == await counts(store, "late")

    async def test_the_dead_count_while_they_are_kept(self, store: Store, given: Given) -> None:
        """Done ones do not."""
        begun = await given.begun(queue="mail")
        await given.recorded(begun, Failed(error="no", retryable=False))
        await given.finished(queue="mail")
        assert (0, 0, 0, 1) == await counts(store, "mail")

    async def test_the_age_is_that_of_the_oldest_in_any_lane(
        self, store: Store, given: Given
    ) -> None:
        """Also where the count has ended at the limit long before."""
        for shard in given.shards:
            for _ in range(3):
                await given.created(given.name_in(shard), queue="mail")
        last = given.name_in(given.shards[-1])
        await given.created(last, queue="mail", due_in=-HOUR, priority=9)
        await given.move()

        found = await figures(store, limit=2)

        assert found.actions.overdue_for >= HOUR
        assert 2 == found.actions.overdue

    @pytest.mark.parametrize("is_moved", [False, True])
    async def test_counts_end_at_the_limit(
        self, store: Store, given: Given, is_moved: bool
    ) -> None:
        """Then they mean: so many, or more."""
        for _ in range(5):
            await given.created(queue="mail")
            await given.created(queue="mail", due_in=HOUR)
        if is_moved:
            await given.move()
        assert (3, 3, 0, 0) == await counts(store, "mail", limit=3)
        assert (5, 5, 0, 0) == await counts(store, "mail", limit=6)

    async def test_paused_actions_do_not_wait(self, store: Store, given: Given) -> None:
        """Nothing will become of them by itself."""
        await given.paused(queue="mail")
        await given.move()
        assert (0, 0, 0, 0) == await counts(store, "mail")

    async def test_workers_and_owners_are_counted_by_their_signs_of_life(
        self, store: Store, given: Given
    ) -> None:
        """An owner that is silent is none."""
        holding = await given.holding(0)
        await store.leases.heartbeat(WORKER, owner=OWNER, holdings=[holding], alive_for=MINUTE)

        present = await figures(store)
        silent = await store.installation.figures(limit=LIMIT, alive_for=NOTHING)

        shards = given.installation.shard_count
        assert (1, shards - 1) == (present.workers_alive, present.shards_unowned)
        assert shards == silent.shards_unowned

    async def test_stages_have_figures_too(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """What is ready and due, what is parked; and how long the oldest has waited."""
        await entities.queued("a")
        await entities.queued("b")
        await entities.parked("c")
        await entities.offered("c", entities.offer(OTHER_STAGE))

        found = {one.stage: one for one in (await figures(store)).stages}

        assert (2, 1) == (found[STAGE].overdue, found[STAGE].parked)
        assert (1, 0) == (found[OTHER_STAGE].overdue, found[OTHER_STAGE].parked)
        assert NOTHING <= found[STAGE].overdue_for < HOUR
        limited = await figures(store, limit=1)
        assert StageFigures(stage=STAGE, overdue=1).overdue == next(
            one.overdue for one in limited.stages if one.stage == STAGE
        )

    async def test_many_queues_cost_no_more_than_one(self, store: Store, given: Given) -> None:
        """Each is counted to less, and the figures say to how much."""
        for number in range(30):
            await given.created(queue=f"q{number}")
        await given.move()
        few = await figures(store, limit=5)
        many = await figures(store, limit=10_000)
        assert (30, 5) == (len(few.queues), few.limit)
        assert 30 == many.actions.overdue
        assert COUNT_LEAST <= many.limit < 10_000
