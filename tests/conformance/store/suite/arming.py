"""Part of the suite: attempts that are begun ahead of their time, and confirmed at it."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from gnomon.contracts.store import BegunAttempt, ConfirmResult, Recorded, Store
from gnomon.model.action import State
from gnomon.model.outcome import Abandoned, Unserved
from tests.conformance.store.suite.given import HOUR, SECOND, Given, polls

SOON = SECOND / 5
DEAD = "host/4711/aaaa"
EXPIRE = "UPDATE scheduled_action SET expires_at = scheduled_at WHERE id = '{}'"


async def armed(
    given: Given, name: str, *, due_in: timedelta = HOUR, owner: str = DEAD, **fields: object
) -> BegunAttempt:
    """A new action whose attempt was begun ahead."""
    action = await given.moved(name, due_in=due_in, **fields)
    result = await given.begin(until=action.status.scheduled_at, owner=owner)
    return next(begun for begun in result.begun if begun.id == name)


async def confirmed_once_due(store: Store, *attempts: BegunAttempt) -> ConfirmResult:
    async for _ in polls():
        result = await store.work.confirm(attempts)
        if not result.early:
            return result
    raise AssertionError("their time did not come")


def nothing_against(result: ConfirmResult) -> bool:
    return not (result.early or result.gone or result.expired)


class TestArm:
    """`begin` with `until`: as of the time that is to come."""

    async def test_it_begins_as_of_its_time(self, given: Given) -> None:
        """Its deadline and its reservation count from there."""
        begun = await armed(given, "soon", timeout=7 * SECOND)
        action = await given.action("soon")

        assert begun.scheduled_at == begun.began_at
        assert 7 * SECOND == begun.deadline - begun.began_at
        attempt = action.status.current_attempt
        assert attempt is not None
        assert (begun.attempt_id, begun.began_at) == (attempt.attempt_id, attempt.began_at)
        lanes = await given.store.work.list_lanes(await given.holdings())
        assert [begun.began_at + 12 * SECOND] == list(lanes.values())

    async def test_what_is_due_later_is_not_armed(self, given: Given) -> None:
        """Nor what is due now begun as of later."""
        await given.moved("later", due_in=HOUR)
        now = await given.moved("now")

        result = await given.begin(until=await given.now() + HOUR / 2)

        assert [now.meta.guid] == [begun.guid for begun in result.begun]
        assert result.begun[0].began_at < await given.now() + SECOND

    async def test_what_expires_before_its_time_is_not_armed(self, given: Given) -> None:
        """As it would not begin then."""
        action = await given.moved("short", due_in=HOUR)
        await given.execute_raw(EXPIRE.format("short"))

        assert [] == list((await given.begin(until=action.status.scheduled_at)).begun)

    async def test_it_is_not_armed_twice_and_not_begun_at_its_time(
        self, store: Store, given: Given
    ) -> None:
        """It is somebody's already."""
        begun = await armed(given, "soon", due_in=SOON)
        await confirmed_once_due(store, begun)

        assert [] == list((await given.begin(until=begun.began_at + HOUR)).begun)

    async def test_a_lost_answer_is_found_again(self, store: Store, given: Given) -> None:
        """With the time as of which it began."""
        action = await given.moved("soon", due_in=HOUR)
        batch = given.entropy.token()
        (begun,) = (await given.begin(batch=batch, until=action.status.scheduled_at)).begun

        (found,) = await store.work.find_begun(list(given.shards), batch=batch)

        assert (begun.attempt_id, begun.began_at) == (found.attempt_id, found.began_at)
        assert begun.scheduled_at == found.scheduled_at

    async def test_what_is_due_soon_is_counted(self, store: Store, given: Given) -> None:
        """So that one knows a burst."""
        for _ in range(3):
            await given.moved(given.name_in(0), due_in=HOUR)
        lanes = [demand.lane for demand in await given.demands()]
        until = await given.now() + 2 * HOUR

        assert 0 == await store.work.count_due(lanes, limit=10)
        assert 3 == await store.work.count_due(lanes, limit=10, until=until)
        assert 2 == await store.work.count_due(lanes, limit=2, until=until)


class TestConfirm:
    """`confirm`: which armed attempts may be performed now."""

    async def test_before_its_time_it_is_early(self, store: Store, given: Given) -> None:
        """By the database's clock."""
        begun = await armed(given, "soon")

        result = await store.work.confirm([begun])

        assert [begun.attempt_id] == list(result.early)
        assert result.now < begun.began_at

    async def test_at_its_time_it_may_be_performed(self, store: Store, given: Given) -> None:
        """And its result is recorded like any other."""
        begun = await armed(given, "soon", due_in=SOON)

        result = await confirmed_once_due(store, begun)

        assert nothing_against(result)
        assert result.now >= begun.began_at
        assert Recorded.APPLIED is await given.recorded(begun)
        status = (await given.action("soon")).status
        assert (State.DONE, 1, 1) == (status.state, status.attempts, status.succeeded)

    @pytest.mark.parametrize("change", ["delete", "pause", "replace"])
    async def test_what_was_changed_is_gone(self, store: Store, given: Given, change: str) -> None:
        """No attempt of the version before begins, once the change is acknowledged."""
        begun = await armed(given, "changed")
        other = await armed(given, "other")
        if change == "replace":
            await given.replaced("changed", due_in=HOUR)
        elif change == "delete":
            await store.actions.delete("changed", if_match=None)
        else:
            await store.actions.pause("changed", given.entropy.guid(), if_match=None)

        result = await store.work.confirm([begun, other])

        assert [begun.attempt_id] == list(result.gone)
        assert [other.attempt_id] == list(result.early)

    async def test_its_row_goes_when_it_is_handed_back(self, store: Store, given: Given) -> None:
        """And the log says that it was not performed."""
        begun = await armed(given, "changed")
        await store.actions.delete("changed", if_match=None, running=True)

        assert Recorded.LATE is await given.recorded(begun, Abandoned())

        assert 0 == await given.queue_row_count()
        (logged,) = await store.actions.list_attempts("changed", limit=9)
        assert "late_abandoned" == logged.outcome

    async def test_what_expired_stands_but_must_not_begin(self, store: Store, given: Given) -> None:
        """It is to be taken back: somebody passes over it then."""
        begun = await armed(given, "late", due_in=SOON)
        await given.execute_raw(EXPIRE.format("late"))

        result = await confirmed_once_due(store, begun)

        assert [begun.attempt_id] == list(result.expired)

    async def test_what_somebody_else_settled_is_gone(self, store: Store, given: Given) -> None:
        """The row does not carry it any more."""
        begun = await armed(given, "cut")
        (orphan,) = await store.work.list_orphans(
            [DEAD], shards=list(given.shards), after=None, limit=9
        )
        assert 1 == await store.work.settle([await given.settlement(orphan)])

        assert {begun.attempt_id} == set((await store.work.confirm([begun])).gone)

    async def test_nothing_is_said_of_nothing(self, store: Store) -> None:
        assert nothing_against(await store.work.confirm([]))

    async def test_many_are_told_apart(self, store: Store, given: Given) -> None:
        """In any shard, each by itself."""
        attempts = [await armed(given, given.name_in(n % 4)) for n in range(12)]
        changed = attempts[::3]
        for begun in changed:
            await given.replaced(begun.id, due_in=HOUR)

        result = await store.work.confirm(attempts)

        assert _ids(changed) == set(result.gone)
        assert _ids(attempts) - _ids(changed) == set(result.early)


class TestDisarm:
    """What was armed and not performed is as if it had not begun."""

    async def test_it_is_due_at_its_time_again(self, given: Given) -> None:
        """Nothing is counted, and nothing is in the log."""
        begun = await armed(given, "soon")

        assert Recorded.APPLIED is await given.recorded(begun, Unserved(begun.need))

        status = (await given.action("soon")).status
        assert (0, 0, begun.scheduled_at) == (
            status.attempts,
            status.interrupted,
            status.scheduled_at,
        )
        assert status.current_attempt is None
        assert [] == list(await given.store.actions.list_attempts("soon", limit=9))

    async def test_it_may_be_armed_again(self, given: Given) -> None:
        """Under another id."""
        begun = await armed(given, "soon")
        await given.recorded(begun, Unserved(begun.need))

        (again,) = (await given.begin(until=begun.began_at)).begun

        assert begun.attempt_id != again.attempt_id
        assert (begun.began_at, 1) == (again.began_at, again.status.attempts)

    async def test_the_doctor_finds_nothing(self, store: Store, given: Given) -> None:
        """Armed or disarmed: the counters add up."""
        begun = await armed(given, "one")
        await armed(given, "two")
        await given.recorded(begun, Unserved(begun.need))

        assert [] == list(await store.installation.doctor())


def _ids(attempts: list[BegunAttempt]) -> set[UUID]:
    return {begun.attempt_id for begun in attempts}
