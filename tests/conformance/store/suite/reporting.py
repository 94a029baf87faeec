"""Part of the suite: how far running attempts are."""

from __future__ import annotations

from gnomon.contracts.store import BegunAttempt, Progress, Store
from tests.conformance.store.suite.given import Given, retrying


def report_of(begun: BegunAttempt, fraction: float = 0.4, text: str = "page 4") -> Progress:
    return Progress(
        shard=begun.shard,
        id=begun.id,
        guid=begun.guid,
        attempt_id=begun.attempt_id,
        fraction=fraction,
        text=text,
    )


async def shown(given: Given, name: str) -> tuple[float | None, str | None]:
    attempt = (await given.action(name)).status.current_attempt
    return (None, None) if attempt is None else (attempt.progress, attempt.progress_text)


class TestReport:
    """`report`: kept beside the work, shown with the attempt under way."""

    async def test_the_last_report_is_shown(self, store: Store, given: Given) -> None:
        """With its time; a text may be missing."""
        first, second = await given.begun("first"), await given.begun("second")

        running = await store.progress.report([report_of(first), report_of(second, 0.1)])
        before = await shown(given, "first")
        await store.progress.report([report_of(first, 1, "")])
        attempt = (await given.action("first")).status.current_attempt

        assert {first.attempt_id, second.attempt_id} == set(running)
        assert (0.4, "page 4") == before
        assert (1.0, None) == await shown(given, "first")
        assert (0.1, "page 4") == await shown(given, "second")
        assert attempt is not None
        assert attempt.progress_at is not None
        assert attempt.began_at <= attempt.progress_at <= await given.now()

    async def test_who_does_not_run_is_not_heard(self, store: Store, given: Given) -> None:
        """An attempt that ended, one of a generation that was replaced, and one before the present
        one: a thread goes on as long as it likes."""
        ended = await given.begun("ended")
        await given.recorded(ended)
        replaced = await given.begun("replaced")
        await given.replaced("replaced")
        old = await given.overrun("again", retry=retrying(3))
        lapsed = await given.lapsed("again")
        await store.work.settle([await given.settlement(lapsed)])
        new = await given.begun_once_due("again")
        await store.progress.report([report_of(new, 0.2)])

        running = await store.progress.report([report_of(one) for one in (ended, replaced, old)])

        assert set() == set(running)
        assert (0.2, "page 4") == await shown(given, "again")

    async def test_the_next_attempt_begins_without_one(self, store: Store, given: Given) -> None:
        """What the attempt before said is not shown with it, whether it was forgotten or not."""
        first = await given.overrun("retried", retry=retrying(3))
        await store.progress.report([report_of(first)])
        lapsed = await given.lapsed("retried")
        await store.work.settle([await given.settlement(lapsed)])
        second = await given.begun_once_due("retried")
        during = await shown(given, "retried")
        await store.progress.report([report_of(second, 0.7)])
        await store.progress.forget_reports([report_of(first)])

        assert first.attempt_id != second.attempt_id
        assert (None, None) == during
        assert (0.7, "page 4") == await shown(given, "retried")

    async def test_what_ended_is_forgotten(self, store: Store, given: Given) -> None:
        """Nothing is left of it; a second time is no harm."""
        begun = await given.begun("ended")
        await store.progress.report([report_of(begun)])
        await given.recorded(begun)

        await store.progress.forget_reports([report_of(begun)])
        await store.progress.forget_reports([report_of(begun)])

        (row,) = await given.execute_raw("SELECT count(*) FROM attempt_progress")
        assert (0,) == tuple(row)
