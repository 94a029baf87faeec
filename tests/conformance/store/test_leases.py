"""Every engine keeps the contract of `LeaseStore`."""

import pytest

from tests.conformance.store.conftest import SENT_STATEMENTS, Engine, engine_of
from tests.conformance.store.suite.leasing import TestAcquire, TestHeartbeat, TestLocks, TestRelease

__all__ = ["TestAcquire", "TestHeartbeat", "TestLocks", "TestRelease"]


@pytest.fixture(params=SENT_STATEMENTS)
def engine(request: pytest.FixtureRequest) -> Engine:
    return engine_of(request)
