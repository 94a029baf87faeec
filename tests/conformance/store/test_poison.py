"""One bad row costs itself alone, at every verb of every engine.

Each poison is what a hand, a bug or a newer release may leave in a table. Each verb is tried with a
good row beside it, in the same shard, queue and priority, in one call where the verb takes many.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from gnomon.contracts.store import Recorded, Selection, Store
from gnomon.model.outcome import Failed
from gnomon.model.pause import PauseTerms, decide_end
from tests.conformance.store.conftest import STATEMENTS, Engine, configurations, engine_of
from tests.conformance.store.suite.given import NOTHING, OWNER, SECOND, Given, polls

BAD = "bad"
LARGE = 1 << 20

# What is wrong with the action: a change of its row, the same on every engine.
POISONS = {
    "no JSON": "spec = '{'",
    "no spec": "spec = '[1, 2]'",
    "an effect of tomorrow": """spec = '{"action": {"type": "teleport", "to": "Mars"}}'""",
    "a zone that no host knows": (
        """spec = '{"action": {"type": "mock"}, "policy": {"type": "cron","""
        """ "expression": "* * * * *", "timezone": "Mars/Olympus"}}'"""
    ),
    "a megabyte": f'spec = \'{{"action": {{"type": "mock"}}, "x": "{"x" * LARGE}"}}\'',
    "a last attempt that is none": "last_attempt = '{'",
    "a last attempt of tomorrow": """last_attempt = '{"attempt_id": 7}'""",
}
# What no row may have, because arithmetic with it would fail for all rows of a statement.
REFUSED = (
    ("scheduled_action", "timeout_us = 9000000000000000000"),
    ("scheduled_action", "timeout_us = -1"),
    ("scheduled_action", "retention_us = 9000000000000000000"),
    ("scheduled_action", "retention_us = -1"),
    ("scheduled_action", "state = 'waiting'"),
)

Spoil = Callable[[], Awaitable[None]]


@pytest.fixture(params=[*STATEMENTS, *configurations("postgres-in-place")])
def engine(request: pytest.FixtureRequest) -> Engine:
    return engine_of(request)


class TestPoison:
    """A good row and a bad one: the good one is served, whatever the verb."""

    @pytest.fixture(params=POISONS)
    def spoil(self, request: pytest.FixtureRequest, given: Given) -> Spoil:
        change = POISONS[request.param]

        async def spoil() -> None:
            await given.execute_raw(f"UPDATE scheduled_action SET {change} WHERE id = '{BAD}'")

        return spoil

    async def test_move(self, store: Store, given: Given, spoil: Spoil) -> None:
        """Both come into the processing queue."""
        await _both_created(given)
        await spoil()
        moved = await store.work.move(await given.holdings(), limit=100)
        assert 2 == moved.count

    async def test_arrive(self, store: Store, given: Given, spoil: Spoil) -> None:
        """The good one begins on arrival."""
        good = await _both_created(given)
        await spoil()
        arrived = await store.work.move_and_begin(
            await given.holdings(),
            limit=100,
            room={"default": 100},
            batch=given.entropy.token(),
            owner=OWNER,
            grace=SECOND,
            window=SECOND,
        )
        assert good in {begun.id for begun in arrived.begun}

    async def test_begin_and_recall(self, store: Store, given: Given, spoil: Spoil) -> None:
        """The good one begins, and is recalled."""
        good = await _both_created(given)
        await given.move()
        await spoil()
        demands, batch = await given.demands(), given.entropy.token()
        result = await given.begin(demands, batch=batch)
        assert good in {begun.id for begun in result.begun}
        assert good in {
            begun.id for begun in await store.work.find_begun(given.shards, batch=batch)
        }

    async def test_extend_and_finish(self, store: Store, given: Given, spoil: Spoil) -> None:
        """The good one is prolonged and recorded, in one call with the bad one; this is recorded,
        too, for what it was when it began is known."""
        await _both_created(given)
        await given.move()
        begun = (await given.begin()).begun
        await spoil()
        kept = await store.work.extend(begun, window=SECOND, grace=SECOND)
        assert {each.attempt_id for each in begun} == set(kept)
        finishes = [await given.finish_of(each, Failed(error="no")) for each in begun]
        assert [Recorded.APPLIED] * 2 == list(await store.work.finish(finishes, owner=OWNER))

    async def test_lapsed_and_settle(self, store: Store, given: Given, spoil: Spoil) -> None:
        """The interruption of the good one is found and written down."""
        good = await _both_created(given)
        await given.move()
        await given.begin(grace=NOTHING, window=NOTHING)
        await spoil()
        found = await given.lapsed(good)
        assert 1 == await store.work.settle([await given.settlement(found)])

    async def test_expired(self, store: Store, given: Given, spoil: Spoil) -> None:
        """An occurrence that was missed is found beside one that cannot be read."""
        good = await _both_created(given, expires_in=-SECOND)
        await given.move()
        await spoil()
        found = await given.lapsed(good)
        assert 1 == await store.work.settle([await given.settlement(found)])

    async def test_end_pauses(self, store: Store, given: Given, spoil: Spoil) -> None:
        """Both go on: the bad one's attempt says what is wrong with it."""
        good = await _both_created(given)
        terms = PauseTerms(until=timedelta(hours=1))
        for name in (good, BAD):
            await store.actions.pause(name, given.entropy.guid(), terms=terms, if_match=None)
        await given.execute_raw("UPDATE scheduled_action SET paused_until = created_at")
        await spoil()
        ends = await store.work.end_pauses(
            await given.holdings(), batch=given.entropy.guid(), decide=decide_end, limit=100
        )
        assert [BAD, good] == sorted(action.meta.id for action in ends.actions)

    async def test_looking(self, store: Store, given: Given, spoil: Spoil) -> None:
        """Whoever lists, counts or reads sees both."""
        good = await _both_created(given)
        await given.move()
        await spoil()
        page = await store.actions.list(Selection(), after=None, limit=10)
        assert [BAD, good] == sorted(action.meta.id for action in page.actions)
        found = await store.actions.get_many([good, BAD])
        assert [good, BAD] == [action.meta.id for action in found if action is not None]
        assert 2 == sum((await store.actions.count()).values())
        await store.actions.list_attempts(BAD, limit=10)
        await store.installation.doctor()

    @pytest.mark.parametrize("verb", ["pause", "run_now", "replace", "delete"])
    async def test_changing(self, store: Store, given: Given, spoil: Spoil, verb: str) -> None:
        """A user can act on the good one as ever, and get rid of the bad one."""
        good = await _both_created(given)
        await given.move()
        await spoil()
        for name in (good, BAD):
            await _changed(store, given, name, verb)
        if verb != "delete":
            await store.actions.delete(BAD, if_match=None)
        assert BAD not in {begun.id for begun in (await given.begin()).begun}

    async def test_purge(self, store: Store, given: Given) -> None:
        """Finished actions go at their time, whatever became of their text."""
        await given.finished_shortly(BAD, retention=SECOND / 1000)
        await given.execute_raw("UPDATE finished_action SET spec = '{', last_attempt = '{'")
        await given.finished_shortly("good", retention=SECOND / 1000)
        async for _ in polls():
            await store.installation.purge(limit=100)
            if [None, None] == list(await store.actions.get_many(["good", BAD])):
                return
        raise AssertionError("they are still there")

    @pytest.mark.parametrize(("table", "change"), REFUSED)
    async def test_what_would_fail_for_all_is_refused(
        self, given: Given, table: str, change: str
    ) -> None:
        """The table itself does not take it."""
        await given.created()
        with pytest.raises(Exception, match=r"(?i)constraint"):
            await given.execute_raw(f"UPDATE {table} SET {change}")


async def _both_created(given: Given, **fields: Any) -> str:
    """The bad one first, then the good one in the same shard; the name of the good one."""
    await given.created(BAD, **fields)
    good = given.name_in(given.shard_of(BAD), "good")
    await given.created(good, **fields)
    return good


async def _changed(store: Store, given: Given, name: str, verb: str) -> None:
    guid = given.entropy.guid()
    match verb:
        case "pause":
            await store.actions.pause(name, guid, if_match=None)
        case "run_now":
            await store.actions.run_now(name, guid, if_match=None)
        case "replace":
            await given.replaced(name)
        case "delete":
            await store.actions.delete(name, if_match=None)
