"""What every executor promises, as tests.

    class TestHttp(ExecutorSuite):
        @pytest.fixture
        async def stand(self): ...  # yields a Stand

No test library is imported here: a test module registers this one for assertion rewriting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Protocol
from uuid import UUID

from gnomon.contracts.executor import AttemptRequest, Executor
from gnomon.model.need import need_of
from gnomon.model.outcome import TEXT_CHARS_MAX, Failed, Outcome, Succeeded, Unserved
from gnomon.model.spec import Effect

SCHEDULED_AT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SOON_S = 5.0  # for what must happen at once, on a busy machine


class Stand(Protocol):
    """An executor under test, and effects that end in known ways."""

    @property
    def executor(self) -> Executor: ...

    @property
    def sent_count(self) -> int:
        """How often anything was done outside."""
        ...

    def succeeding(self) -> Effect: ...

    def failing(self) -> Effect:
        """Fails in its first attempt."""
        ...

    def hanging(self) -> Effect:
        """Takes longer than any test waits."""
        ...

    def talkative(self) -> Effect:
        """Succeeds, with a very long answer; with NUL in it, where that can be."""
        ...

    def broken(self) -> Sequence[Effect]:
        """Effects that admission or the outside world should not have let through."""
        ...


def order_of(
    effect: Effect,
    *,
    attempt_no: int = 1,
    timeout_s: float = 30.0,
    key: str = "act_aaaaaaaaaaaaaaaaaaaaaaaaaa",
) -> AttemptRequest:
    """An order for one attempt, with everything else fixed."""
    return AttemptRequest(
        id="greet-ann",
        guid=UUID(int=1),
        key_of=lambda: key,
        attempt_id=UUID(int=2),
        attempt_no=attempt_no,
        occurrence_no=1,
        scheduled_at=SCHEDULED_AT,
        deadline=SCHEDULED_AT + timedelta(seconds=timeout_s),
        timeout_s=timeout_s,
        effect=effect,
    )


class ExecutorSuite:
    """Inherit, and add a fixture `stand`."""

    async def test_a_good_effect_succeeds(self, stand: Stand) -> None:
        """What was done is reported as done."""
        outcome = await stand.executor.execute(order_of(stand.succeeding()))
        assert isinstance(outcome, Succeeded)

    async def test_a_failing_effect_is_a_value(self, stand: Stand) -> None:
        """A failure is returned, with a text that can be stored, and may be tried again."""
        outcome = await stand.executor.execute(order_of(stand.failing()))
        assert isinstance(outcome, Failed)
        assert outcome.retryable
        assert is_storable(outcome.error)

    async def test_nothing_is_retried_by_itself(self, stand: Stand) -> None:
        """One order is one try: the worker counts them."""
        before = stand.sent_count
        await stand.executor.execute(order_of(stand.failing()))
        assert 1 == stand.sent_count - before

    async def test_broken_effects_never_raise(self, stand: Stand) -> None:
        """Whatever is wrong with an effect, the executor says so in an outcome; what it does not
        serve it hands back, and nothing else."""
        for effect in stand.broken():
            outcome = await stand.executor.execute(order_of(effect))
            if stand.executor.serves(need_of(effect)):
                assert isinstance(outcome, Failed), effect
                assert is_storable(outcome.error), effect
            else:
                assert Unserved(need_of(effect)) == outcome

    async def test_it_serves_what_it_can_do(self, stand: Stand) -> None:
        """By the needs of its effects, and by no others."""
        assert stand.executor.serves(need_of(stand.succeeding()))
        for need in ("", "function no-such", "kafka target no-such", "kind no-such", "no-such"):
            assert not stand.executor.serves(need)

    async def test_a_long_answer_is_cut(self, stand: Stand) -> None:
        """An answer is stored up to its bound, without what a database cannot hold."""
        outcome = await stand.executor.execute(order_of(stand.talkative()))
        assert isinstance(outcome, Succeeded)
        assert outcome.answer is not None
        assert is_storable(outcome.answer)
        assert TEXT_CHARS_MAX // 2 < len(outcome.answer)

    async def test_cancellation_comes_through_at_once(self, stand: Stand) -> None:
        """A cancelled attempt ends with CancelledError, and the executor works on."""
        executing = asyncio.ensure_future(stand.executor.execute(order_of(stand.hanging())))
        await asyncio.sleep(0.05)
        assert not executing.done()
        executing.cancel()
        done, _ = await asyncio.wait([executing], timeout=SOON_S)
        assert done
        assert executing.cancelled()
        await self.test_a_good_effect_succeeds(stand)

    async def test_an_attempt_ends_with_its_time(self, stand: Stand) -> None:
        """Under the worker's limit a hanging effect ends as a time-out, one way or the other."""
        outcome = await executed_within(stand.executor, stand.hanging(), timeout_s=0.1)
        assert isinstance(outcome, Failed)
        assert "timed out" in outcome.error
        await self.test_a_good_effect_succeeds(stand)

    async def test_many_at_once_do_not_disturb_each_other(self, stand: Stand) -> None:
        """Good effects succeed beside failing and cancelled ones."""
        hanging = asyncio.ensure_future(stand.executor.execute(order_of(stand.hanging())))
        good = [stand.executor.execute(order_of(stand.succeeding())) for _ in range(40)]
        bad = [stand.executor.execute(order_of(stand.failing())) for _ in range(10)]
        together = asyncio.gather(*good, *bad)
        await asyncio.sleep(0)
        hanging.cancel()
        outcomes = await asyncio.wait_for(together, SOON_S)
        assert 40 == sum(isinstance(outcome, Succeeded) for outcome in outcomes)
        assert 10 == sum(isinstance(outcome, Failed) for outcome in outcomes)
        await asyncio.wait([hanging], timeout=SOON_S)

    async def test_closing_twice_is_harmless(self, stand: Stand) -> None:
        """Shutdown paths may meet: the second close finds nothing to do."""
        await self.test_a_good_effect_succeeds(stand)
        await stand.executor.close()
        await stand.executor.close()
        assert 1 <= stand.sent_count


async def executed_within(executor: Executor, effect: Effect, *, timeout_s: float) -> Outcome:
    """Execute as the worker does: with a limit of its own around the executor's."""
    try:
        async with asyncio.timeout(timeout_s * 1.5):
            return await executor.execute(order_of(effect, timeout_s=timeout_s))
    except TimeoutError:
        return Failed(error=f"timed out after {timeout_s:g} s")


def is_storable(text: str) -> bool:
    """Not empty, within the bound, and fit for every database."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return 0 < len(text) <= TEXT_CHARS_MAX and "\x00" not in text
