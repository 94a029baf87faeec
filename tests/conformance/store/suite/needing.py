"""Part of the suite: actions that the worker which began them does not serve."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any
from uuid import UUID

from gnomon.contracts.store import BeginRequest, BegunAttempt, Lane, Recorded, Store
from gnomon.model.action import State
from gnomon.model.offer import ALL_QUEUES, Offer
from gnomon.model.outcome import Failed, Outcome, Succeeded, Unserved
from gnomon.model.spec import Periodic
from gnomon.worker.unserved import UnservedActions, find_unserved
from tests.conformance.store.suite.given import (
    HOUR,
    NOTHING,
    OWNER,
    SECOND,
    Given,
    retrying,
)
from tests.conformance.store.suite.races import rivals

MINUTE = timedelta(minutes=1)
NEED = "function welcome"
OTHER_NEED = "kafka target hub"
HANDED_BACK = Unserved(NEED)


async def handed_back(
    given: Given, name: str | None = None, *, need: str = NEED, **fields: Any
) -> BegunAttempt:
    """An action whose first attempt was begun by a worker that does not serve it; that attempt."""
    begun = await first_attempt(given, name or given.name_in(0), **fields)
    assert Recorded.APPLIED is await given.recorded(begun, Unserved(need))
    return begun


async def first_attempt(given: Given, name: str, **fields: Any) -> BegunAttempt:
    """Of an action that nobody has handed back; those that were stay where they are."""
    if given.arrives:
        return await given.begun(name, **fields)
    await given.moved(name, **fields)
    result = await given.begin([one for one in await given.demands() if not one.lane.need])
    return next(begun for begun in result.begun if begun.id == name)


def lane_of(begun: BegunAttempt, need: str = NEED) -> Lane:
    return begun.lane._replace(need=need)


def as_guest(begun: BegunAttempt, need: str = NEED) -> BeginRequest:
    return BeginRequest(lane=lane_of(begun, need), lease_guid=None, limit=10, is_guest=True)


class TestHandedBack:
    """`finish` of an unserved attempt: as if it had not begun."""

    async def test_it_is_due_as_before_and_nothing_is_counted(self, given: Given) -> None:
        """No attempt, no failure, no interruption; the same occurrence at the same time."""
        begun = await handed_back(given, expires_in=HOUR)

        action = await given.action(begun.id)

        assert State.ACTIVE is action.status.state
        assert NEED == action.status.need
        assert begun.scheduled_at == action.status.scheduled_at
        assert 1 == action.status.occurrence_no
        assert action.status.expires_at is not None
        status = action.status
        assert (0, 0, 0, 0) == (
            status.attempts, status.succeeded, status.failed, status.interrupted,
        )  # fmt: skip
        assert (0, 0, 0) == (
            status.consecutive_failures, status.consecutive_interruptions,
            status.occurrence_failures,
        )  # fmt: skip
        assert status.last_attempt is None
        assert status.current_attempt is None

    async def test_the_log_says_nothing_of_it(self, store: Store, given: Given) -> None:
        """It was not made."""
        begun = await handed_back(given)
        assert [] == list(await store.actions.list_attempts(begun.id, limit=10))
        assert [] == list(await store.installation.doctor())

    async def test_it_waits_in_the_lane_of_its_need(self, store: Store, given: Given) -> None:
        """The lane without a need has nothing left, so its owner has nothing to ask for."""
        begun = await handed_back(given)

        lanes = await store.work.list_lanes(await given.holdings())

        assert {lane_of(begun): begun.scheduled_at} == dict(lanes)
        lease_guid = (await given.holding(0)).lease_guid
        plain = BeginRequest(lane=begun.lane, lease_guid=lease_guid, limit=10)
        assert [] == list((await given.begin([plain])).begun)

    async def test_the_owner_begins_it_in_the_lane_of_its_need(self, given: Given) -> None:
        """Its first attempt, whoever tried before; and that one is told its lane."""
        begun = await handed_back(given)

        again = await given.begun_again(begun.id)

        assert lane_of(begun) == again.lane
        assert 1 == again.status.attempts
        assert begun.attempt_id != again.attempt_id
        assert Recorded.APPLIED is await given.recorded(again)
        action = await given.action(begun.id)
        assert (State.DONE, 1, 1) == (
            action.status.state, action.status.attempts, action.status.succeeded,
        )  # fmt: skip

    async def test_a_repeat_is_recognised(self, given: Given) -> None:
        """The answer was lost."""
        begun = await given.begun(given.name_in(0))
        await given.recorded(begun, HANDED_BACK)
        assert Recorded.REPEATED is await given.recorded(begun, HANDED_BACK)
        assert 0 == (await given.action(begun.id)).status.attempts

    async def test_a_late_one_leaves_no_trace(self, store: Store, given: Given) -> None:
        """Another attempt runs by now."""
        begun = await handed_back(given)
        again = await given.begun_again(begun.id)

        assert Recorded.LATE is await given.recorded(begun, HANDED_BACK)

        assert [] == list(await store.actions.list_attempts(begun.id, limit=10))
        current = (await given.action(begun.id)).status.current_attempt
        assert current is not None
        assert again.attempt_id == current.attempt_id

    async def test_one_that_was_swept_stays_an_interruption(
        self, store: Store, given: Given
    ) -> None:
        """Its worker was silent for so long that it was taken for dead: that is true as well."""
        begun = await given.overrun(given.name_in(0))
        await store.work.settle([await given.settlement(await given.lapsed(begun.id))])

        assert Recorded.LATE is await given.recorded(begun, HANDED_BACK)

        status = (await given.action(begun.id)).status
        assert (1, 1, None) == (status.attempts, status.interrupted, status.need)
        assert [] == list(await store.installation.doctor())

    async def test_the_row_of_a_replaced_action_goes(self, store: Store, given: Given) -> None:
        """Nobody will ever begin it."""
        begun = await given.begun(given.name_in(0))
        await given.replaced(begun.id, due_in=HOUR)

        assert Recorded.LATE is await given.recorded(begun, HANDED_BACK)

        await given.move()
        assert 1 == await given.queue_row_count()
        assert [] == list(await store.work.list_needs(limit=10))

    async def test_a_batch_has_results_of_all_kinds(self, store: Store, given: Given) -> None:
        """Each is what it is."""
        outcomes: list[Outcome] = [
            HANDED_BACK, Succeeded(), Failed(error="no"), Unserved(OTHER_NEED),
        ]  # fmt: skip
        attempts = [
            await given.begun(given.name_in(place % 2), retry=retrying(1)) for place in range(4)
        ]
        finishes = [
            await given.finish_of(begun, outcome)
            for begun, outcome in zip(attempts, outcomes, strict=True)
        ]

        recorded = await store.work.finish(finishes, owner=OWNER)

        assert [Recorded.APPLIED] * 4 == list(recorded)
        actions = [await given.action(begun.id) for begun in attempts]
        assert [NEED, None, None, OTHER_NEED] == [action.status.need for action in actions]
        assert [0, 1, 1, 0] == [action.status.attempts for action in actions]
        assert [] == list(await store.installation.doctor())


class TestGuests:
    """`begin` in the shards of others."""

    async def test_a_guest_begins_while_the_owner_lives(self, given: Given) -> None:
        """No lease, no silence is asked for, nor that a row be overdue for long."""
        begun = await handed_back(given, due_in=NOTHING)

        result = await given.begin([as_guest(begun)], silent=HOUR, owner="guest")

        (again,) = result.begun
        assert (begun.id, lane_of(begun)) == (again.id, again.lane)
        assert Recorded.APPLIED is await given.recorded(again)
        assert State.DONE is (await given.action(begun.id)).status.state

    async def test_a_guest_begins_nothing_before_its_time(self, given: Given) -> None:
        """Like anybody else."""
        begun = await given.begun(given.name_in(0), policy=Periodic(period=HOUR))
        await given.recorded(begun, HANDED_BACK)
        again = await given.begun_again(begun.id)
        await given.recorded(again)

        result = await given.begin([as_guest(begun)], silent=HOUR, owner="guest")

        assert [] == list(result.begun)
        later = result.next_due[lane_of(begun)]
        assert later is not None
        assert later > result.now

    async def test_a_helper_needs_a_silent_owner_for_it(self, given: Given) -> None:
        """Only guests do not."""
        begun = await handed_back(given)
        demand = BeginRequest(lane=lane_of(begun), lease_guid=None, limit=10)
        assert [] == list((await given.begin([demand], silent=HOUR)).begun)

    async def test_another_need_is_another_lane(self, given: Given) -> None:
        """Who serves one does not get the other."""
        begun = await handed_back(given)
        assert [] == list((await given.begin([as_guest(begun, OTHER_NEED)])).begun)
        assert [] == list((await given.begin([as_guest(begun, "")])).begun)

    async def test_a_lost_answer_is_found(self, store: Store, given: Given) -> None:
        """With the lane."""
        begun = await handed_back(given)
        batch = given.entropy.token()
        await given.begin([as_guest(begun)], batch=batch, owner="guest")

        (again,) = await store.work.find_begun(given.shards, batch=batch)

        assert (begun.id, lane_of(begun)) == (again.id, again.lane)

    async def test_of_guests_and_the_owner_one_begins_each(
        self, store: Store, given: Given
    ) -> None:
        """All at once, with and without the lease."""
        names = [given.name_in(0) for _ in range(30)]
        attempts = [await handed_back(given, name) for name in names]
        guest = as_guest(attempts[0])
        lease_guid = (await given.holding(0)).lease_guid
        owner = BeginRequest(lane=guest.lane, lease_guid=lease_guid, limit=10)
        callers = await rivals(store, given)
        begun: Counter[str] = Counter()

        async def drain(rival: Store, demand: BeginRequest) -> None:
            while True:
                result = await rival.work.begin(
                    [demand], batch=given.entropy.token(), owner=OWNER,
                    grace=HOUR, window=HOUR, silent=HOUR,
                )  # fmt: skip
                if not result.begun:
                    return
                begun.update(one.id for one in result.begun)

        demands = [owner, guest, guest, guest]
        await asyncio.gather(*map(drain, callers, demands))

        begun.update(one.id for one in (await given.begin()).begun)
        assert Counter(names) == begun


class TestNeeds:
    """`list_needs`, `list_need_lanes`, `count_due`: who looks for work finds it."""

    async def test_without_any_there_is_nothing(self, store: Store, given: Given) -> None:
        """The common case."""
        await given.moved()
        assert [] == list(await store.work.list_needs(limit=10))
        assert {} == dict(await store.work.list_need_lanes([NEED]))

    async def test_needs_and_their_lanes_are_listed(self, store: Store, given: Given) -> None:
        """Of all shards, queues and priorities, each with its earliest time."""
        first = await handed_back(given, given.name_in(0), due_in=-20 * SECOND)
        await handed_back(given, given.name_in(0))
        mail = await handed_back(given, given.name_in(1), queue="mail", priority=1)
        other = await handed_back(given, given.name_in(1), need=OTHER_NEED)

        assert [NEED, OTHER_NEED] == list(await store.work.list_needs(limit=10))
        assert [NEED] == list(await store.work.list_needs(limit=1))
        assert {
            lane_of(first): first.scheduled_at, lane_of(mail): mail.scheduled_at,
        } == dict(await store.work.list_need_lanes([NEED]))  # fmt: skip
        assert {lane_of(other, OTHER_NEED)} == set(await store.work.list_need_lanes([OTHER_NEED]))

    async def test_what_is_due_is_counted_up_to_a_bound(self, store: Store, given: Given) -> None:
        """What runs or is not due does not wait; lanes with and without a need are counted."""
        names = [given.name_in(shard) for shard in (0, 0, 1)]
        attempts = [await handed_back(given, name) for name in names]
        await handed_back(given, need=OTHER_NEED)
        (running,) = (await given.begin([as_guest(attempts[0], OTHER_NEED)])).begun
        await given.moved(given.name_in(1), queue="mail")
        await given.moved(given.name_in(1), queue="mail", due_in=HOUR)
        lanes = list(await store.work.list_need_lanes([NEED]))

        assert 3 == await store.work.count_due(lanes, limit=10)
        assert 2 == await store.work.count_due(lanes, limit=2)
        assert 0 == await store.work.count_due([running.lane], limit=10)
        assert 1 == await store.work.count_due([Lane(1, "mail", 5)], limit=10)
        assert 0 == await store.work.count_due([], limit=10)

    async def test_an_offer_is_told_with_the_heartbeat(self, store: Store, given: Given) -> None:
        """What a worker serves, for the others; and taken back by the next."""
        worker = given.entropy.token()
        offer = Offer(only=("mail",), never=("reports",), needs=(NEED,))
        await store.leases.heartbeat(
            worker, owner="choosy", holdings=[], alive_for=HOUR, offer=offer
        )
        assert [offer] == [row.offer for row in await store.leases.list_workers()]
        await store.leases.heartbeat(worker, owner="choosy", holdings=[], alive_for=HOUR)
        assert [ALL_QUEUES] == [row.offer for row in await store.leases.list_workers()]


class TestNeedsLater:
    """A row keeps its need until its generation ends."""

    async def test_retries_and_occurrences_keep_it(self, given: Given) -> None:
        """Whoever began it here does not serve it the next time either."""
        begun = await handed_back(given, policy=Periodic(period=HOUR), retry=retrying(1))
        again = await given.begun_again(begun.id)
        await given.recorded(again, Failed(error="no"))
        retried = await given.begun_once_due(begun.id)
        assert NEED == retried.need
        await given.recorded(retried)

        status = (await given.action(begun.id)).status

        assert NEED == status.need
        assert (2, 1, 1, 2) == (
            status.attempts, status.succeeded, status.failed, status.occurrence_no,
        )  # fmt: skip

    async def test_an_interruption_keeps_it(self, store: Store, given: Given) -> None:
        """The owner settles what a guest left behind."""
        begun = await handed_back(given)
        await given.begin([as_guest(begun)], grace=NOTHING, window=NOTHING, owner="guest")
        await store.work.settle([await given.settlement(await given.lapsed(begun.id))])

        again = await given.begun_once_due(begun.id)

        assert NEED == again.need
        assert 2 == again.status.attempts
        assert 1 == again.status.interrupted

    async def test_the_orphans_of_a_guest_are_found(self, store: Store, given: Given) -> None:
        """Whoever holds the shard."""
        begun = await handed_back(given)
        await given.begin([as_guest(begun)], owner="guest")
        (orphan,) = await store.work.list_orphans(
            ["guest"], shards=given.shards, after=None, limit=10
        )
        assert begun.id == orphan.id

    async def test_a_guests_reservation_is_prolonged(self, store: Store, given: Given) -> None:
        """By the guest."""
        begun = await handed_back(given)
        (again,) = (await given.begin([as_guest(begun)], owner="guest")).begun
        kept = await store.work.extend([again], window=HOUR, grace=SECOND)
        assert {again.attempt_id} == set(kept)
        due = (await given.action(begun.id)).status.scheduled_at
        assert due is not None
        assert due > await given.now() + HOUR / 2

    async def test_what_expires_meanwhile_is_settled(self, store: Store, given: Given) -> None:
        """By the owner, which does not serve it."""
        begun = await given.begun(given.name_in(0), expires_in=HOUR)
        await given.recorded(begun, HANDED_BACK)
        await given.execute_raw("UPDATE scheduled_action SET expires_at = created_at")

        lapsed = await given.lapsed(begun.id)

        assert not lapsed.running
        assert 0 == lapsed.status.attempts

    async def test_stale_rows_of_its_lane_go(self, store: Store, given: Given) -> None:
        """A generation may end while somebody holds its row."""
        begun = await handed_back(given)
        await given.execute_raw("DELETE FROM scheduled_action")

        assert 1 == await store.work.delete_stale(await given.holdings(), limit=10)

        assert [] == list(await store.work.list_needs(limit=10))
        assert 0 == await given.queue_row_count(), begun.id

    async def test_a_new_generation_has_none(self, store: Store, given: Given) -> None:
        """Replaced, paused and resumed: it begins anew."""
        begun = await handed_back(given)
        await given.replaced(begun.id)
        assert (await given.action(begun.id)).status.need is None
        await given.move()
        assert "" == (await given.begun_again(begun.id)).need
        assert [] == list(await store.work.list_needs(limit=10))

    async def test_a_paused_one_waits_for_nobody(self, store: Store, given: Given) -> None:
        """Its row is gone."""
        begun = await handed_back(given)
        await store.actions.pause(begun.id, given.entropy.guid(), if_match=None)
        assert (await given.action(begun.id)).status.need is None
        assert [] == list(await store.work.list_needs(limit=10))

    async def test_it_can_be_deleted(self, store: Store, given: Given) -> None:
        """Cancelled by its user: nothing was attempted."""
        begun = await handed_back(given)
        deleted = await store.actions.delete(begun.id, if_match=None)
        assert 0 == deleted.action.status.attempts
        assert 0 == await given.queue_row_count()
        assert [] == list(await store.installation.doctor())


class TestUnserved:
    """What no living worker serves is found, and how many; see `gnomon.worker.unserved`."""

    async def test_a_need_that_nobody_offers(self, store: Store, given: Given) -> None:
        """With the time since when; it vanishes as soon as somebody serves it."""
        first = await handed_back(given, given.name_in(0), due_in=-MINUTE)
        await handed_back(given, given.name_in(1), due_in=NOTHING)
        worker = await offering(store, given, Offer(needs=(OTHER_NEED,)))

        (unserved,) = await find_unserved(store, given.shards)

        assert UnservedActions(NEED, 2, first.scheduled_at) == unserved
        refusing = Offer(never=("default",), needs=(NEED,))
        await offering(store, given, refusing, worker)
        assert [unserved] == await find_unserved(store, given.shards)
        await offering(store, given, Offer(needs=(NEED,)), worker)
        assert [] == await find_unserved(store, given.shards)

    async def test_what_came_due_just_now_is_left_to_the_guests(
        self, store: Store, given: Given
    ) -> None:
        """They come in a moment."""
        await handed_back(given, due_in=NOTHING)
        assert [] == await find_unserved(store, given.shards)

    async def test_what_runs_or_is_far_ahead_is_served(self, store: Store, given: Given) -> None:
        """Somebody began it; or will."""
        begun = await handed_back(given, due_in=-MINUTE, policy=Periodic(period=HOUR))
        (again,) = (await given.begin([as_guest(begun)], owner="guest")).begun
        assert [] == await find_unserved(store, given.shards)
        await given.recorded(again)
        assert [] == await find_unserved(store, given.shards)

    async def test_a_queue_that_nobody_offers(self, store: Store, given: Given) -> None:
        """If all workers are choosy; one that serves all queues, or this one, is enough."""
        await given.moved(given.name_in(0), queue="reports", due_in=-MINUTE)
        await given.moved(given.name_in(1), queue="mail", due_in=-MINUTE)
        assert [] == await find_unserved(store, given.shards)  # nobody works at all
        await offering(store, given, Offer(only=("mail",)))
        second = await offering(store, given, Offer(never=("reports",)))

        (unserved,) = await find_unserved(store, given.shards)

        assert ("queue reports", 1) == (unserved.need, unserved.count)
        await offering(store, given, ALL_QUEUES, second)
        assert [] == await find_unserved(store, given.shards)


async def offering(store: Store, given: Given, offer: Offer, worker: UUID | None = None) -> UUID:
    """A worker that lives, and says what it serves."""
    worker = worker or given.entropy.token()
    await store.leases.heartbeat(
        worker, owner=str(worker), holdings=[], alive_for=HOUR, offer=offer
    )
    return worker
