"""The suite's assertions are rewritten, so that a failure shows its values."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

pytest.register_assert_rewrite("tests.conformance.executor.suite")

from tests.fixtures.receiver import Receiver, receiving  # noqa: E402 - after the registration


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as found:
        yield found
