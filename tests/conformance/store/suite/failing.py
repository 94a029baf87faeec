"""Part of the suite: what failed."""

from __future__ import annotations

from gnomon.contracts.store import FailedAction, Store
from gnomon.model.outcome import Failed
from gnomon.model.spec import Kafka, Python, Retry
from tests.conformance.store.suite.given import HOUR, Given

LIMIT = 100


async def failures(
    store: Store, *, queue: str | None = None, limit: int = LIMIT
) -> dict[str, FailedAction]:
    found = await store.reports.failures(queue=queue, limit=limit)
    return {one.id: one for one in found.actions}


async def dead(given: Given, name: str, error: str = "no", **fields: object) -> None:
    begun = await given.begun(name, **fields)
    await given.recorded(begun, Failed(error=error, retryable=False))


class TestFailures:
    """`failures`: dead actions, and those that will be tried again."""

    async def test_nothing_failed(self, store: Store, given: Given) -> None:
        """What waits, is done or was cancelled is none of them."""
        await given.finished()
        await given.created(due_in=HOUR)
        deleted = await given.created()
        await store.actions.delete(deleted.meta.id, if_match=None)
        found = await store.reports.failures(queue=None, limit=LIMIT)
        assert ([], False) == (list(found.actions), found.partial)

    async def test_a_dead_one_says_what_it_did_and_what_went_wrong(
        self, store: Store, given: Given
    ) -> None:
        """With the time of its end."""
        await dead(given, "a", "boom", queue="mail", action=Python(function="welcome"))
        one = (await failures(store))["a"]
        assert ("mail", True, "function welcome", "boom") == (
            one.queue,
            one.is_dead,
            one.need,
            one.error,
        )
        assert (await given.action("a")).status.finished_at == one.at

    async def test_a_failing_one_lives(self, store: Store, given: Given) -> None:
        """Until it succeeds."""
        retry = Retry(max=3, min_period=HOUR, max_period=HOUR)
        begun = await given.begun("a", retry=retry, action=Kafka(target="hub", topic="t"))
        await given.recorded(begun, Failed(error="not now"))
        one = (await failures(store))["a"]
        assert (False, "kafka target hub", "not now") == (one.is_dead, one.need, one.error)
        attempt = (await given.action("a")).status.last_attempt
        assert attempt is not None
        assert attempt.ended_at == one.at

    async def test_only_what_is_dead_now_counts(self, store: Store, given: Given) -> None:
        """Not the earlier generations of what lives again, succeeded later or died once more."""
        for name in ("lives", "done", "twice", "still"):
            await dead(given, name, "first")
        await given.created("lives", due_in=HOUR)
        await given.finished("done")
        await dead(given, "twice", "second")

        found = await store.reports.failures(queue=None, limit=LIMIT)

        assert [("still", "first"), ("twice", "second")] == sorted(
            (one.id, one.error) for one in found.actions
        )
        await store.actions.delete("lives", if_match=None)
        assert {"still", "twice"} == set(await failures(store))

    async def test_of_one_queue_only(self, store: Store, given: Given) -> None:
        """Dead and failing ones alike."""
        await dead(given, "a", queue="mail")
        await dead(given, "b", queue="other")
        retry = Retry(max=3, min_period=HOUR, max_period=HOUR)
        begun = await given.begun("c", queue="other", retry=retry)
        await given.recorded(begun, Failed(error="not now"))
        assert {"a", "b", "c"} == set(await failures(store))
        assert {"a"} == set(await failures(store, queue="mail"))
        assert {"b", "c"} == set(await failures(store, queue="other"))
        assert {} == await failures(store, queue="nobody's")

    async def test_no_more_are_looked_at_than_may_be(self, store: Store, given: Given) -> None:
        """It is said that there are more; a busy queue does not hide another."""
        for number in range(25):
            await dead(given, f"a{number}", queue="busy")
        await dead(given, "b", queue="quiet")
        found = await store.reports.failures(queue=None, limit=20)
        assert found.partial
        queues = [one.queue for one in found.actions]
        assert (20, 1) == (queues.count("busy"), queues.count("quiet"))

    async def test_the_newest_are_looked_at(self, store: Store, given: Given) -> None:
        """Those that will be kept the longest."""
        await dead(given, "old", queue="mail", retention=HOUR)
        for number in range(20):
            await dead(given, f"new{number}", queue="mail", retention=2 * HOUR)
        assert "old" not in await failures(store, queue="mail", limit=20)
        assert "old" in await failures(store, queue="mail", limit=21)

    async def test_a_spoilt_spec_hides_nothing(self, store: Store, given: Given) -> None:
        """A hand may have written into the table."""
        await dead(given, "a", "boom")
        await given.execute_raw("UPDATE finished_action SET spec = '{' WHERE id = 'a'")
        one = (await failures(store))["a"]
        assert ("unreadable", "boom") == (one.need, one.error)
