"""The mock executor: the suite, and what is its own."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from gnomon.contracts.executor import AttemptRequest
from gnomon.executors.mock import MockExecutor
from gnomon.model.outcome import Failed, Interrupted, Outcome, Succeeded
from gnomon.model.spec import Effect, Mock
from tests.conformance.executor.suite import ExecutorSuite, order_of


class CountingMock(MockExecutor):
    def __init__(self) -> None:
        super().__init__(killer=lambda: None)
        self.sent_count = 0

    async def execute(self, order: AttemptRequest) -> Outcome:
        self.sent_count += 1
        return await super().execute(order)


class MockStand:
    def __init__(self) -> None:
        self.executor = CountingMock()

    @property
    def sent_count(self) -> int:
        return self.executor.sent_count

    def succeeding(self) -> Effect:
        return Mock()

    def failing(self) -> Effect:
        return Mock(fail=1)

    def hanging(self) -> Effect:
        return Mock(hang=timedelta(days=1))

    def talkative(self) -> Effect:
        return Mock(answer="a\x00" * 100_000)

    def broken(self) -> Sequence[Effect]:
        return [Mock(fail=2**31)]


class TestMock(ExecutorSuite):
    @pytest.fixture
    def stand(self) -> MockStand:
        return MockStand()


async def test_only_the_first_attempts_fail() -> None:
    """`fail=2` fails attempts 1 and 2; the third succeeds with its answer."""
    executor, effect = MockExecutor(), Mock(fail=2, answer="at last")
    outcomes = [await executor.execute(order_of(effect, attempt_no=no)) for no in (1, 2, 3)]
    assert [
        Failed(error="mock failure 1 of 2"),
        Failed(error="mock failure 2 of 2"),
        Succeeded(answer="at last"),
    ] == outcomes


async def test_the_first_attempts_kill_the_process() -> None:
    """`kill=1` kills in attempt 1, before anything else, and not in attempt 2."""
    kills: list[str] = []
    executor = MockExecutor(killer=lambda: kills.append("killed"))
    effect = Mock(kill=1, fail=1)
    first = await executor.execute(order_of(effect, attempt_no=1))
    second = await executor.execute(order_of(effect, attempt_no=2))
    assert ["killed"] == kills
    assert isinstance(first, Interrupted)
    assert isinstance(second, Succeeded)
