"""Part of the suite: begin, recall, extend."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec

from gnomon.contracts.store import BeginRequest, BegunAttempt, Lane, Store
from gnomon.model.outcome import Failed
from gnomon.model.spec import Python
from tests.conformance.store.suite.given import (
    HOUR,
    NOTHING,
    OWNER,
    SECOND,
    Given,
    every,
    polls,
    retrying,
)


class TestBegin:
    """`begin`: the only way to the right to execute."""

    async def test_what_is_begun_carries_all_that_an_attempt_needs(self, given: Given) -> None:
        """The right to execute, complete."""
        action = await given.moved("one", timeout=7 * SECOND)
        batch = given.entropy.token()

        result = await given.begin(batch=batch)

        (begun,) = result.begun
        assert "one" == begun.id
        assert action.meta.guid == begun.guid
        assert action.meta.shard == begun.shard
        assert UUID(f"{batch}"[:19] + f"{action.meta.guid}"[19:]) == begun.attempt_id
        assert action.spec == begun.spec
        assert 1 == begun.status.attempts
        assert action.status.occurrence_at == begun.status.occurrence_at
        assert action.status.scheduled_at == begun.scheduled_at
        assert result.now == begun.began_at
        assert timedelta(seconds=7) == begun.deadline - begun.began_at

    async def test_what_a_reader_changes_is_his_own(self, given: Given) -> None:
        """Arguments are lists: who reads an action may change them, and no attempt sees it."""
        effect = Python(function="send", args=[["ann"]])
        await given.moved("one", action=effect)
        await given.moved("two", action=msgspec.structs.replace(effect))
        for _ in range(2):  # what is read first may be remembered
            shown = (await given.action("one")).spec.action
            assert isinstance(shown, Python)
            assert [["ann"]] == shown.args
            shown.args.append("bob")

        begun = (await given.begin()).begun

        assert [effect] * 2 == [one.spec.action for one in begun]

    async def test_the_status_is_the_one_it_began_with(self, store: Store, given: Given) -> None:
        """Counters of earlier attempts, for the transition to count on."""
        begun = await given.begun("one", policy=every(HOUR), retry=retrying(3))
        await given.recorded(begun, Failed(error="no"))
        await store.actions.run_now("one", given.entropy.guid(), if_match=None)
        await given.move()

        again = await given.begun_once_due("one")

        assert 2 == again.status.attempts
        assert 1 == again.status.failed
        assert 1 == again.status.consecutive_failures

    async def test_rows_are_begun_in_order_of_their_time(self, given: Given) -> None:
        """The oldest of a lane first, and no more than the limit."""
        ages = [3, 1, 5, 2, 4]
        names = {
            age: (await given.created(given.name_in(0), due_in=-age * SECOND)).meta.id
            for age in ages
        }
        await given.move()

        first = (await given.begin(limit=2)).begun
        rest = (await given.begin(limit=10)).begun

        assert [names[5], names[4]] == [begun.id for begun in first]
        assert [names[3], names[2], names[1]] == [begun.id for begun in rest]

    async def test_nothing_begins_early(self, given: Given) -> None:
        """Not before its time by the database's clock."""
        action = await given.moved("soon", due_in=SECOND / 5)
        assert action.status.scheduled_at is not None

        begun = await given.begun_once_due("soon")

        assert action.status.scheduled_at <= begun.began_at

    async def test_what_is_not_due_does_not_begin(self, given: Given) -> None:
        """`next_due` says when to come back."""
        action = await given.moved(due_in=HOUR)

        result = await given.begin()

        assert [] == list(result.begun)
        assert [action.status.scheduled_at] == list(result.next_due.values())

    async def test_a_row_is_not_begun_twice(self, given: Given) -> None:
        """A running attempt is nobody else's."""
        await given.begun()

        assert [] == list((await given.begin()).begun)

    async def test_even_past_its_reservation_a_running_row_is_refused(self, given: Given) -> None:
        """It must be settled first, so that every attempt is counted."""
        begun = await given.overrun()
        await given.lapsed(begun.id)

        assert [] == list((await given.begin()).begun)

    async def test_only_the_demanded_lane_is_begun(self, given: Given) -> None:
        """Shard, queue and priority all count."""
        wanted = await given.created(given.name_in(0), queue="mail", priority=2)
        await given.created(given.name_in(0), queue="mail", priority=3)
        await given.created(given.name_in(0), queue="post", priority=2)
        await given.created(given.name_in(1), queue="mail", priority=2)
        await given.move()
        lease_guid = (await given.holding(0)).lease_guid

        result = await given.begin(
            [BeginRequest(lane=Lane(0, "mail", 2), lease_guid=lease_guid, limit=10)]
        )

        assert [wanted.meta.id] == [begun.id for begun in result.begun]

    async def test_many_demands_are_met_in_one_call(self, store: Store, given: Given) -> None:
        """Each up to its own limit; every demanded lane is in `next_due`."""
        for shard in range(given.installation.shard_count):
            await store.actions.create([await given.draft(given.name_in(shard)) for _ in range(3)])
        await given.move()

        result = await given.begin(limit=2)

        assert 2 * given.installation.shard_count == len(result.begun)
        assert given.installation.shard_count == len(result.next_due)

    async def test_without_the_lease_nothing_begins(self, given: Given) -> None:
        """Rows of a lane whose lease is not the given one are left alone."""
        await given.moved(given.name_in(0))
        wrong = given.wrong(await given.holding(0)).lease_guid

        result = await given.begin(
            [BeginRequest(lane=Lane(0, "default", 5), lease_guid=wrong, limit=10)]
        )

        assert [] == list(result.begun)

    async def test_the_expired_do_not_begin(self, given: Given) -> None:
        """After `expires_at` no attempt may begin."""
        await given.moved("late", expires_in=-SECOND)
        await given.moved("fine", expires_in=HOUR)

        assert ["fine"] == [begun.id for begun in (await given.begin()).begun]

    async def test_the_reservation_is_timeout_plus_grace(self, given: Given) -> None:
        """`next_due` counts the running row by its reservation."""
        await given.moved(timeout=7 * SECOND)

        result = await given.begin(grace=3 * SECOND, window=30 * SECOND)

        assert [result.now + 10 * SECOND] == list(result.next_due.values())

    async def test_the_reservation_of_a_long_attempt_is_the_window(self, given: Given) -> None:
        """min(timeout, window) + grace; the deadline is the timeout all the same."""
        await given.moved(timeout=HOUR)

        result = await given.begin(grace=3 * SECOND, window=30 * SECOND)

        assert [result.now + 33 * SECOND] == list(result.next_due.values())
        assert HOUR == result.begun[0].deadline - result.begun[0].began_at

    async def test_an_empty_lane_has_no_next_time(self, given: Given) -> None:
        """None: there is no row left."""
        lane = Lane(0, "default", 5)
        lease_guid = (await given.holding(0)).lease_guid

        result = await given.begin([BeginRequest(lane=lane, lease_guid=lease_guid, limit=10)])

        assert {lane: None} == dict(result.next_due)

    async def test_since_leaves_nothing_out_that_is_due(self, given: Given) -> None:
        """A low-water mark that is true changes nothing."""
        action = await given.moved(given.name_in(0))
        lease_guid = (await given.holding(0)).lease_guid
        demand = BeginRequest(
            lane=Lane(0, "default", 5),
            lease_guid=lease_guid,
            limit=10,
            since=action.status.scheduled_at,
        )

        assert 1 == len((await given.begin([demand])).begun)


class TestRefusing:
    """What `begin` says of due rows that it leaves alone."""

    async def test_refused_rows_are_told_apart_from_those_behind_them(self, given: Given) -> None:
        """So that the lane can go on without them."""
        expired = await given.created(given.name_in(0), expires_in=-SECOND)
        later = await given.created(given.name_in(0), due_in=HOUR)
        await given.move()

        result = await given.begin()

        lane = Lane(0, "default", 5)
        assert {lane: expired.status.scheduled_at} == dict(result.refused)
        assert {lane: later.status.scheduled_at} == dict(result.next_due)

    async def test_refused_rows_alone_leave_no_next_time(self, given: Given) -> None:
        """There is nothing to come back for, but for the refused."""
        await given.moved(given.name_in(0), expires_in=-SECOND)

        result = await given.begin()

        assert [None] == list(result.next_due.values())
        assert 1 == len(result.refused)

    async def test_what_was_not_asked_for_is_not_refused(self, given: Given) -> None:
        """A lane that gave all it was asked for has its next row, due or not."""
        await given.created(given.name_in(0))
        second = await given.created(given.name_in(0), due_in=-SECOND)
        await given.move()

        result = await given.begin(limit=1)

        assert {} == dict(result.refused)
        assert [second.status.scheduled_at] == list(result.next_due.values())

    async def test_a_locked_row_is_passed_over_and_told(self, store: Store, given: Given) -> None:
        """A user's open transaction holds its own row up, no other, and is not waited for."""
        if given.caller_transaction is None or not store.capabilities.parallel_writers:
            return
        held = await given.created(given.name_in(0))
        free = [await given.created(given.name_in(0), due_in=-SECOND) for _ in range(2)]
        await given.move()
        async with given.caller_transaction() as transaction:
            await store.joining(transaction.connection).delete(held.meta.id, if_match=None)
            full = await given.begin(limit=1)
            short = await given.begin(limit=9)
            await transaction.roll_back()

        assert {action.meta.id for action in free} == {
            begun.id for begun in (*full.begun, *short.begun)
        }
        assert [held.status.scheduled_at] == list(full.next_due.values())
        assert [held.status.scheduled_at] == list(short.refused.values())
        assert [held.meta.id] == [begun.id for begun in (await given.begin()).begun]


class TestHelping:
    """`begin` without a lease."""

    async def help(self, given: Given, *, silent: timedelta) -> int:
        """Begin in shard 0 without a lease; how many."""
        demand = BeginRequest(lane=Lane(0, "default", 5), lease_guid=None, limit=10)
        return len((await given.begin([demand], silent=silent)).begun)

    async def test_a_helper_begins_overdue_rows_of_a_free_shard(self, given: Given) -> None:
        """Nobody owns it: anybody may."""
        await given.moved(given.name_in(0), due_in=-2 * SECOND)
        await given.released()

        assert 1 == await self.help(given, silent=HOUR)

    async def test_a_helper_leaves_young_rows_alone(self, given: Given) -> None:
        """Not overdue by more than a second: the owner's business."""
        await given.moved(given.name_in(0), due_in=NOTHING)
        await given.released()

        assert 0 == await self.help(given, silent=HOUR)

    async def test_a_helper_leaves_the_rows_of_a_living_owner_alone(self, given: Given) -> None:
        """Its heartbeat is young."""
        await given.moved(given.name_in(0))

        assert 0 == await self.help(given, silent=HOUR)

    async def test_a_helper_begins_for_a_silent_owner(self, given: Given) -> None:
        """Its heartbeat is older than `silent`."""
        await given.moved(given.name_in(0))
        begun = 0
        async for _ in polls():
            begun = await self.help(given, silent=timedelta(milliseconds=1))
            if begun:
                break

        assert 1 == begun


class TestRecall:
    """`recall`: what a lost answer had said."""

    async def test_what_a_batch_began_is_found_again(self, store: Store, given: Given) -> None:
        """After a lost answer: the same attempts, changed by nothing."""
        await given.moved(timeout=7 * SECOND)
        await given.moved(queue="other")
        batch = given.entropy.token()
        demands = await given.demands()
        begun = (await given.begin(demands, batch=batch)).begun

        found = await store.work.find_begun(given.shards, batch=batch)

        def essence(attempts: Sequence[BegunAttempt]) -> list[tuple[Any, ...]]:
            return sorted(
                (each.attempt_id, each.id, each.guid, each.spec.queue, each.began_at,
                 each.deadline, each.status.attempts)
                for each in attempts
            )  # fmt: skip

        again = await store.work.find_begun(given.shards, batch=batch)
        assert 2 == len(begun)
        assert essence(begun) == essence(found)
        assert essence(begun) == essence(again)

    async def test_another_batch_began_nothing(self, store: Store, given: Given) -> None:
        """A batch that never arrived is found to be nothing."""
        await given.begun()

        found = await store.work.find_begun(given.shards, batch=given.entropy.token())

        assert [] == list(found)

    async def test_what_was_finished_meanwhile_is_not_recalled(
        self, store: Store, given: Given
    ) -> None:
        """Only running attempts can still be executed."""
        await given.moved(policy=every(HOUR))
        batch = given.entropy.token()
        demands = await given.demands()
        (begun,) = (await given.begin(demands, batch=batch)).begun
        await given.recorded(begun)

        assert [] == list(await store.work.find_begun(given.shards, batch=batch))


class TestExtend:
    """`extend`: attempts that take longer."""

    async def test_a_running_attempt_is_prolonged(self, store: Store, given: Given) -> None:
        """Its reservation becomes now + window + grace, and it does not lapse."""
        begun = await given.overrun(timeout=HOUR)

        kept = await store.work.extend([begun], window=HOUR, grace=SECOND)

        assert {begun.attempt_id} == set(kept)
        holdings = await given.holdings()
        assert [] == list(await store.work.list_lapsed(holdings, limit=10))
        (due,) = (await store.work.list_lanes(holdings)).values()
        assert HOUR < due - begun.began_at < HOUR + HOUR

    async def test_the_lost_are_not_among_the_kept(self, store: Store, given: Given) -> None:
        """Finished, superseded, swept and unknown attempts are gone."""
        finished = await given.begun("finished", policy=every(HOUR))
        await given.recorded(finished)
        superseded = await given.begun("superseded")
        await given.replaced("superseded", due_in=HOUR)
        swept = await given.swept("swept")
        running = await given.begun("running")
        unknown = msgspec.structs.replace(running, attempt_id=given.entropy.token())

        kept = await store.work.extend(
            [finished, superseded, swept, unknown, running], window=HOUR, grace=SECOND
        )

        assert {running.attempt_id} == set(kept)

    async def test_the_owner_of_an_attempt_is_shown(self, given: Given) -> None:
        """Who is at it, for people who ask."""
        await given.begun("busy")

        attempt = (await given.action("busy")).status.current_attempt

        assert attempt is not None
        assert OWNER == attempt.owner
