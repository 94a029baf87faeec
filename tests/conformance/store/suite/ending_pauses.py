"""Part of the suite: pauses with a reason and an end, and how they end by themselves."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from gnomon.contracts.store import (
    NO_PLACES,
    AuditSelection,
    HeldShard,
    PauseEnds,
    PausePlace,
    Selection,
    Store,
)
from gnomon.model.action import Action, State
from gnomon.model.errors import InvalidSpec
from gnomon.model.pause import PauseTerms, decide_end, decide_resume
from gnomon.model.spec import CatchUp, Unreadable
from tests.conformance.store.suite.given import HOUR, NOTHING, SECOND, Given, every, polls, refusal
from tests.conformance.store.suite.holding import deleting

SHORTLY = timedelta(milliseconds=1)
PAUSED = Selection(states=(State.PAUSED,))


async def paused(
    given: Given,
    name: str,
    *,
    until: datetime | timedelta | None = None,
    reason: str | None = None,
    **fields: object,
) -> Action:
    """An action that is paused under these terms."""
    await given.created(name, **fields)
    return await paused_again(given, name, until=until, reason=reason)


async def paused_again(
    given: Given,
    name: str,
    *,
    until: datetime | timedelta | None = None,
    reason: str | None = None,
) -> Action:
    terms = PauseTerms(reason=reason, until=until)
    guid = given.entropy.guid()
    return (await given.store.actions.pause(name, guid, terms=terms, if_match=None)).action


async def ends(
    given: Given, *, limit: int = 100, places: Mapping[int, PausePlace] = NO_PLACES
) -> PauseEnds:
    """What the owner of all shards finds."""
    return await given.store.work.end_pauses(
        await given.holdings(),
        batch=given.entropy.guid(),
        decide=decide_end,
        limit=limit,
        places=places,
    )


async def ended(given: Given, count: int, *, limit: int = 100) -> list[Action]:
    """So many actions whose pauses end within the next moments."""
    actions: list[Action] = []
    async for _ in polls():
        actions += (await ends(given, limit=limit)).actions
        if len(actions) >= count:
            return actions
    raise AssertionError(f"{len(actions)} pauses ended")


async def passed(given: Given, moment: datetime | None) -> None:
    """Wait until it is later than that by the database's clock."""
    assert moment is not None
    async for _ in polls():
        if await given.now() > moment:
            return


class TestPauseTerms:
    """`pause` with a reason and an end."""

    async def test_reason_and_end_are_shown(self, store: Store, given: Given) -> None:
        """By id and in listings; a duration counts from the database's present."""
        until = await given.now() + HOUR
        first = await paused(given, "a", until=until, reason="the move")
        second = await paused(given, "b", until=HOUR)

        assert ("the move", until) == (first.status.reason, first.status.paused_until)
        assert second.status.paused_until is not None
        assert until < second.status.paused_until <= second.meta.updated_at + HOUR
        for shown in (first, second):
            assert shown == await store.actions.get(shown.meta.id)
        page = await store.actions.list(PAUSED, after=None, limit=10)
        assert [first, second] == page.actions

    async def test_an_end_that_has_passed_is_refused(self, store: Store, given: Given) -> None:
        """Nothing is paused then."""
        await given.created("a")
        for until in (await given.now() - SECOND, NOTHING, timedelta.max):
            terms = PauseTerms(until=until)
            error = await refusal(
                store.actions.pause("a", given.entropy.guid(), terms=terms, if_match=None)
            )
            assert isinstance(error, InvalidSpec)
            assert "until" == error.path
        assert State.ACTIVE is (await given.action("a")).status.state

    async def test_pausing_again_replaces_reason_and_end(self, given: Given) -> None:
        """As a new generation: who saw the old terms gets a conflict. The same terms change
        nothing."""
        until = await given.now() + HOUR
        first = await paused(given, "a", until=until, reason="one")

        same = await paused_again(given, "a", until=until, reason="one")
        other = await paused_again(given, "a", until=2 * HOUR, reason="two")
        plain = await paused_again(given, "a")

        assert first == same
        assert 3 == len({first.meta.guid, other.meta.guid, plain.meta.guid})
        assert "two" == other.status.reason
        assert (None, None) == (plain.status.reason, plain.status.paused_until)

    async def test_a_repeated_pause_is_one(self, store: Store, given: Given) -> None:
        """Its answer was lost, and it is sent again under the same guid."""
        await given.created("a")
        guid, terms = given.entropy.guid(), PauseTerms(until=HOUR)
        first = await store.actions.pause("a", guid, terms=terms, if_match=None)

        again = await store.actions.pause("a", guid, terms=terms, if_match=None)

        assert first.action == again.action

    async def test_whatever_ends_the_pause_ends_its_terms(self, store: Store, given: Given) -> None:
        """Resume, replace and delete: nothing ends by itself afterwards."""
        for name in ("resumed", "replaced", "deleted"):
            await paused(given, name, until=SHORTLY, reason="the move", due_in=HOUR)
        guid = given.entropy.guid()
        await store.actions.resume("resumed", guid, decide=decide_resume, if_match=None)
        await store.actions.replace(await given.draft("replaced", due_in=HOUR), if_match=None)
        deleted = await store.actions.delete("deleted", if_match=None)
        await passed(given, await given.now() + SHORTLY)

        assert () == tuple((await ends(given)).actions)
        for name in ("resumed", "replaced"):
            status = (await given.action(name)).status
            assert (None, None) == (status.reason, status.paused_until)
        assert deleted.action == await given.action("deleted")
        assert None is deleted.action.status.paused_until


class TestEndPauses:
    """`end_pauses`: as if somebody had resumed it then."""

    async def test_it_goes_on_at_its_end(self, store: Store, given: Given) -> None:
        """Not before; then as a new generation of the same series, due as a resume would have it,
        and once."""
        before = await paused(given, "a", until=5 * SHORTLY, reason="the move", due_in=-SECOND)
        await paused(given, "b", until=HOUR)

        (action,) = await ended(given, 1)

        assert before.status.paused_until is not None
        assert before.status.paused_until <= action.meta.updated_at
        assert action == await given.action("a")
        assert action.meta.guid != before.meta.guid
        status = action.status
        assert State.ACTIVE is status.state
        assert (None, None) == (status.reason, status.paused_until)
        assert status.scheduled_at is not None
        assert before.status.paused_until <= status.scheduled_at <= action.meta.updated_at
        assert before.status.occurrence_at == status.occurrence_at
        assert State.PAUSED is (await given.action("b")).status.state
        assert 1 == await given.move()
        begun = await given.begun_once_due("a")
        assert action.meta.guid == begun.guid
        assert () == tuple((await ends(given)).actions)
        assert [] == list(await store.installation.doctor())

    async def test_the_next_occurrence_is_that_of_a_resume(self, given: Given) -> None:
        """Missed ones are passed over where the catch-up rule says so; counters stay."""
        begun = await given.begun("a", policy=every(HOUR), catch_up=CatchUp(mode="none"))
        await given.recorded(begun)
        before = await paused_again(given, "a", until=SHORTLY)

        (action,) = await ended(given, 1)

        due, occurrence_at, expires_at = decide_resume(before, action.meta.updated_at)
        status = action.status
        found = (status.scheduled_at, status.occurrence_at, status.expires_at)
        assert (due, occurrence_at, expires_at) == found
        assert (1, 1) == (status.attempts, status.succeeded)
        assert before.status.occurrence_no == status.occurrence_no

    async def test_the_audit_tells_of_each(self, store: Store, given: Given) -> None:
        """Under a word of its own: nobody called."""
        for name in ("a", "b"):
            await paused(given, name, until=SHORTLY)
        guids = {action.meta.id: action.meta.guid for action in await ended(given, 2)}

        entries = await store.tokens.list_audit(AuditSelection(), limit=100)

        told = {entry.id: entry.guid for entry in entries if entry.verb == "end_pause"}
        assert guids == told

    async def test_a_later_pause_counts(self, given: Given) -> None:
        """Who pauses it again before the end has its own end, or none."""
        for name in ("longer", "for-ever"):
            await paused(given, name, until=5 * SHORTLY)
        first = await paused_again(given, "longer", until=HOUR)
        await paused_again(given, "for-ever")
        await passed(given, first.meta.updated_at + 10 * SHORTLY)

        assert () == tuple((await ends(given)).actions)

    async def test_it_is_done_in_parts(self, store: Store, given: Given) -> None:
        """Each says where the next one goes on; together they are all, each once."""
        names = [f"a-{number}" for number in range(20)]
        for name in names:
            await paused(given, name, until=HOUR)
        await given.execute_raw("UPDATE scheduled_action SET paused_until = created_at")
        found: list[str] = []
        places: Mapping[int, PausePlace] = {}
        async for _ in polls():
            part = await ends(given, limit=1, places=places)
            found += [action.meta.id for action in part.actions]
            places = part.reached
            assert len(part.actions) <= given.installation.shard_count
            if not places:
                break

        assert names == sorted(found, key=lambda name: int(name[2:]))
        assert [] == list(await store.installation.doctor())

    async def test_places_are_kept_to(self, given: Given) -> None:
        """What lies before a place is left for a look from the beginning."""
        action = await paused(given, "a", until=SHORTLY)
        until = action.status.paused_until
        assert until is not None
        await passed(given, until)

        places = {action.meta.shard: PausePlace(until, "a")}
        assert () == tuple((await ends(given, places=places)).actions)
        assert 1 == len((await ends(given)).actions)

    async def test_only_the_owner_may(self, store: Store, given: Given) -> None:
        """A lease that was lost ends no pause; a helper does where nobody was heard of."""
        action = await paused(given, "a", until=SHORTLY)
        await passed(given, action.status.paused_until)
        await given.holdings()
        lost = [HeldShard(shard=shard, lease_guid=given.entropy.token()) for shard in given.shards]

        async def by_others(silent: timedelta | None) -> PauseEnds:
            return await store.work.end_pauses(
                lost, batch=given.entropy.guid(), decide=decide_end, limit=10, silent=silent
            )

        assert () == tuple((await by_others(None)).actions)
        assert () == tuple((await by_others(HOUR)).actions)
        async for _ in polls():
            if (await by_others(SHORTLY)).actions:
                break
        assert State.ACTIVE is (await given.action("a")).status.state

    async def test_a_held_action_costs_itself_alone(self, store: Store, given: Given) -> None:
        """It stays paused, nobody waits for it, and a later look finds it."""
        await paused(given, "x", until=SHORTLY)
        await paused(given, "y", until=SHORTLY)
        async with deleting(store, given, "x") as transaction:
            if transaction is None:
                return
            assert ["y"] == [action.meta.id for action in await ended(given, 1)]
            await transaction.roll_back()

        assert ["x"] == [action.meta.id for action in await ended(given, 1)]

    async def test_an_unreadable_action_costs_itself_alone(self, given: Given) -> None:
        """It goes on, too, and its attempt says what is wrong with it."""
        for name in ("bad", "zone", "good"):
            await paused(given, name, until=SHORTLY, policy=every(HOUR))
        zone = (
            '{"action": {"type": "mock"}, "catch_up": {"mode": "none"}, "policy": '
            '{"type": "cron", "expression": "* * * * *", "timezone": "Mars/Olympus"}}'
        )
        for name, spec in (("bad", "{"), ("zone", zone)):
            await given.execute_raw(
                f"UPDATE scheduled_action SET spec = '{spec}' WHERE id = '{name}'"
            )

        found = {action.meta.id: action for action in await ended(given, 3)}

        assert {"bad", "good", "zone"} == set(found)
        assert isinstance(found["bad"].spec.action, Unreadable)
        for name in ("bad", "zone"):
            due = found[name].status.scheduled_at
            assert due is not None
            assert due <= found[name].meta.updated_at
