"""Part of the suite: finish."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from gnomon.contracts.store import Recorded, Store
from gnomon.model.action import State
from gnomon.model.outcome import Abandoned, Cancelled, Failed, Interrupted, Succeeded
from tests.conformance.store.suite.given import HOUR, NOTHING, OWNER, SECOND, Given, every, retrying


class TestFinish:
    """`finish`: what follows from a result."""

    async def test_a_success_ends_a_one_shot(self, given: Given) -> None:
        """It moves to the finished ones, and no queue row stays."""
        begun = await given.begun("once")

        assert Recorded.APPLIED is await given.recorded(begun)

        status = (await given.action("once")).status
        assert State.DONE is status.state
        assert (1, 1, 0, 0) == (
            status.attempts, status.succeeded, status.failed, status.interrupted,
        )  # fmt: skip
        assert 0 == await given.queue_row_count()

    async def test_a_success_of_a_periodic_action_plans_the_next(
        self, store: Store, given: Given
    ) -> None:
        """Counters, occurrence and due time are as the verdict says."""
        begun = await given.begun("beat", policy=every(HOUR))
        finish = await given.finish_of(begun)

        assert [Recorded.APPLIED] == list(await store.work.finish([finish], owner=OWNER))

        status = (await given.action("beat")).status
        assert State.ACTIVE is status.state
        assert 2 == status.occurrence_no
        assert finish.verdict.occurrence_at == status.occurrence_at
        assert finish.verdict.scheduled_at == status.scheduled_at
        assert (1, 1) == (status.attempts, status.succeeded)
        assert status.last_attempt is not None
        assert "succeeded" == status.last_attempt.outcome

    async def test_a_failure_is_retried(self, store: Store, given: Given) -> None:
        """The same occurrence again, later; the failure is counted and logged."""
        begun = await given.begun("try", retry=retrying(2))
        finish = await given.finish_of(begun, Failed(error="refused", answer="503"))
        await store.work.finish([finish], owner=OWNER)

        status = (await given.action("try")).status
        (logged,) = await store.actions.list_attempts("try", limit=10)
        assert State.ACTIVE is status.state
        assert 1 == status.occurrence_no
        assert (1, 1, 1, 1) == (
            status.attempts, status.failed, status.consecutive_failures,
            status.occurrence_failures,
        )  # fmt: skip
        assert finish.verdict.scheduled_at == status.scheduled_at
        assert ("failed", "refused", "503", OWNER) == (
            logged.outcome, logged.error, logged.answer, logged.owner,
        )  # fmt: skip

    async def test_the_recorded_wait_is_the_one_that_was_decided(
        self, store: Store, given: Given
    ) -> None:
        """The end of an attempt and its retry are of one clock: the gap is never below the wait."""
        begun = await given.begun("try", retry=retrying(2))
        finish = await given.finish_of(begun, Failed(error="no"))
        ended_at = begun.began_at + timedelta(microseconds=1)
        retry_at = ended_at + SECOND
        verdict = msgspec.structs.replace(finish.verdict, scheduled_at=retry_at)
        finish = msgspec.structs.replace(finish, ended_at=ended_at, verdict=verdict)
        await store.work.finish([finish], owner=OWNER)

        (logged,) = await store.actions.list_attempts("try", limit=10)
        status = (await given.action("try")).status
        assert status.last_attempt is not None
        assert {ended_at} == {logged.ended_at, status.last_attempt.ended_at}
        assert retry_at == status.scheduled_at

    async def test_no_attempt_ends_after_it_was_recorded(self, store: Store, given: Given) -> None:
        """A worker reckons the end from when it asked to begin: a little late, never in the log."""
        begun = await given.begun("try", retry=retrying(2))
        finish = await given.finish_of(begun, Failed(error="no"))
        finish = msgspec.structs.replace(finish, ended_at=begun.began_at + HOUR)
        await store.work.finish([finish], owner=OWNER)

        (logged,) = await store.actions.list_attempts("try", limit=10)
        assert logged.ended_at is not None
        assert begun.began_at <= logged.ended_at <= await given.now()

    async def test_a_final_failure_is_dead_and_stays_visible(self, given: Given) -> None:
        """Retries used up: parked with its reason, not lost."""
        begun = await given.begun("try")

        assert Recorded.APPLIED is await given.recorded(begun, Failed(error="no"))

        status = (await given.action("try")).status
        assert State.DEAD is status.state
        assert "retries used up" == status.reason
        assert status.last_attempt is not None
        assert "no" == status.last_attempt.error
        assert 0 == await given.queue_row_count()

    async def test_a_cancellation_ends_the_action(self, given: Given) -> None:
        """The called function asked for it."""
        begun = await given.begun("stop", policy=every(HOUR))

        await given.recorded(begun, Cancelled(reason="enough"))

        status = (await given.action("stop")).status
        assert State.CANCELLED is status.state
        assert "enough" == status.reason

    async def test_an_interruption_and_an_abandonment_are_due_again(
        self, store: Store, given: Given
    ) -> None:
        """Counted as interrupted; the next attempt has the next number."""
        for name, outcome in (("cut", Interrupted()), ("late", Abandoned())):
            begun = await given.begun(name)
            await given.recorded(begun, outcome)

            again = await given.begun_once_due(name)

            assert 2 == again.status.attempts
            assert 1 == again.status.interrupted
            await given.recorded(again)
        assert [] == list(await store.installation.doctor())

    async def test_answers_come_in_the_order_of_the_results(
        self, store: Store, given: Given
    ) -> None:
        """A batch of successes, repeats, failures and late ones, one answer each."""
        done = await given.begun("done")
        await given.recorded(done)
        gone = await given.begun("gone")
        await store.actions.delete("gone", if_match=None)
        fresh = await given.begun("fresh")
        failing = await given.begun("failing", retry=retrying(1))
        finishes = [
            await given.finish_of(gone),
            await given.finish_of(fresh),
            await given.finish_of(done),
            await given.finish_of(failing, Failed(error="no")),
        ]

        recorded = await store.work.finish(finishes, owner=OWNER)

        assert [
            Recorded.LATE, Recorded.APPLIED, Recorded.REPEATED, Recorded.APPLIED,
        ] == list(recorded)  # fmt: skip
        assert State.DONE is (await given.action("fresh")).status.state
        assert [] == list(await store.installation.doctor())

    async def test_nothing_to_finish_is_no_error(self, store: Store) -> None:
        """An empty batch has an empty answer."""
        assert [] == list(await store.work.finish([], owner=OWNER))

    async def test_the_lease_plays_no_part(self, given: Given) -> None:
        """A valid result is accepted though the shard moved on."""
        begun = await given.begun("moved-on")
        await given.released()
        await given.holdings()

        assert Recorded.APPLIED is await given.recorded(begun)

    async def test_without_retention_nothing_stays(self, store: Store, given: Given) -> None:
        """A retention of zero removes the action."""
        begun = await given.begun("gone", retention=NOTHING)

        assert Recorded.APPLIED is await given.recorded(begun)
        assert None is await store.actions.get("gone")
        assert 0 == await given.queue_row_count()
        for table in ("scheduled_action", "finished_action"):
            assert 0 == (await given.execute_raw(f"SELECT count(*) FROM {table}"))[0][0]


class TestRepeats:
    """`finish` again: the answer was lost."""

    async def test_a_repeated_success_of_a_one_shot(self, store: Store, given: Given) -> None:
        """The answer was lost: it is recognised, and counted once."""
        begun = await given.begun("once")
        finish = await given.finish_of(begun)

        first = await store.work.finish([finish], owner=OWNER)
        second = await store.work.finish([finish], owner=OWNER)

        assert [Recorded.APPLIED, Recorded.REPEATED] == [*first, *second]
        assert 1 == (await given.action("once")).status.succeeded
        assert 1 == len(await store.actions.list_attempts("once", limit=10))

    async def test_a_repeated_success_of_a_periodic_action(
        self, store: Store, given: Given
    ) -> None:
        """The action went on; the repeat changes nothing."""
        finish = await given.finish_of(await given.begun("beat", policy=every(HOUR)))
        await store.work.finish([finish], owner=OWNER)
        before = await given.action("beat")

        again = await store.work.finish([finish], owner=OWNER)

        assert [Recorded.REPEATED] == list(again)
        assert before == await given.action("beat")

    async def test_a_repeated_failure(self, store: Store, given: Given) -> None:
        """Counted once, logged once."""
        begun = await given.begun("try", retry=retrying(3))
        finish = await given.finish_of(begun, Failed(error="no"))
        await store.work.finish([finish], owner=OWNER)

        assert [Recorded.REPEATED] == list(await store.work.finish([finish], owner=OWNER))
        assert 1 == (await given.action("try")).status.failed
        assert 1 == len(await store.actions.list_attempts("try", limit=10))

    async def test_a_repeat_after_the_next_attempt_began(self, store: Store, given: Given) -> None:
        """The newer attempt runs on undisturbed."""
        begun = await given.begun("cut")
        finish = await given.finish_of(begun, Abandoned())
        await store.work.finish([finish], owner=OWNER)
        again = await given.begun_once_due("cut")

        assert [Recorded.REPEATED] == list(await store.work.finish([finish], owner=OWNER))
        assert Recorded.APPLIED is await given.recorded(again)

    async def test_a_repeated_late_result(self, store: Store, given: Given) -> None:
        """Late twice is logged once."""
        begun = await given.begun("plan")
        await given.replaced("plan", due_in=HOUR)
        await given.recorded(begun)

        assert Recorded.APPLIED is not await given.recorded(begun)
        assert 1 == len(await store.actions.list_attempts("plan", limit=10))


class TestTakingBack:
    """`finish` after the sweep, and too late."""

    async def test_a_result_after_the_sweep_takes_the_interruption_back(
        self, store: Store, given: Given
    ) -> None:
        """The attempt was not lost after all: it counts as what it was."""
        begun = await given.swept("slow")
        assert 1 == (await given.action("slow")).status.interrupted

        assert Recorded.APPLIED is await given.recorded(begun, Succeeded(answer="yes"))

        status = (await given.action("slow")).status
        (logged,) = await store.actions.list_attempts("slow", limit=10)
        assert State.DONE is status.state
        assert (1, 1, 0) == (status.attempts, status.succeeded, status.interrupted)
        assert "succeeded" == logged.outcome
        assert [] == list(await store.installation.doctor())

    async def test_a_plain_success_after_the_sweep_too(self, store: Store, given: Given) -> None:
        """With nothing to say it is counted and logged all the same."""
        begun = await given.swept("slow")

        assert Recorded.APPLIED is await given.recorded(begun)

        status = (await given.action("slow")).status
        (logged,) = await store.actions.list_attempts("slow", limit=10)
        assert (1, 1, 0) == (status.attempts, status.succeeded, status.interrupted)
        assert "succeeded" == logged.outcome

    async def test_a_failure_after_the_sweep_counts_as_a_failure(
        self, store: Store, given: Given
    ) -> None:
        """Instead of the interruption, and the action goes on."""
        begun = await given.swept("slow", retry=retrying(3))

        assert Recorded.APPLIED is await given.recorded(begun, Failed(error="no"))

        status = (await given.action("slow")).status
        assert (1, 1, 0, 0) == (
            status.attempts, status.failed, status.interrupted,
            status.consecutive_interruptions,
        )  # fmt: skip
        assert [] == list(await store.installation.doctor())

    async def test_what_was_taken_back_is_not_taken_back_again(
        self, store: Store, given: Given
    ) -> None:
        """A repeat of the late result is a repeat."""
        begun = await given.swept("slow", retry=retrying(3))
        finish = await given.finish_of(begun, Failed(error="no"))
        await store.work.finish([finish], owner=OWNER)

        assert [Recorded.REPEATED] == list(await store.work.finish([finish], owner=OWNER))
        assert 1 == (await given.action("slow")).status.failed
        assert [] == list(await store.installation.doctor())

    async def test_after_a_newer_attempt_began_the_result_is_late(
        self, store: Store, given: Given
    ) -> None:
        """It is kept in the log as late and changes nothing else."""
        begun = await given.swept("slow")
        newer = await given.begun_once_due("slow")
        before = await given.action("slow")

        assert Recorded.LATE is await given.recorded(begun)

        (logged,) = await store.actions.list_attempts("slow", limit=10)
        assert "late_succeeded" == logged.outcome
        assert before == await given.action("slow")
        assert Recorded.APPLIED is await given.recorded(newer)

    async def test_the_result_of_an_attempt_that_was_never_begun_is_late(
        self, store: Store, given: Given
    ) -> None:
        """An unknown attempt id changes nothing, whatever it claims."""
        begun = await given.begun("once")
        finish = await given.finish_of(begun)
        forged = type(finish)(
            shard=finish.shard, id=finish.id, guid=finish.guid,
            attempt_id=given.entropy.token(), attempt_no=1, occurrence_no=1,
            began_at=finish.began_at, outcome="succeeded", verdict=finish.verdict,
        )  # fmt: skip

        assert [Recorded.LATE] == list(await store.work.finish([forged], owner=OWNER))
        assert 0 == (await given.action("once")).status.succeeded
