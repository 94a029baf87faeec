"""Every engine keeps the contract of `LeaseStore`."""

import pytest

from tests.conformance.store.conftest import ALL_WAYS, Engine, engine_of
from tests.conformance.store.suite.leasing import TestAcquire, TestHeartbeat, TestLocks, TestRelease

__all__ = ["TestAcquire", "TestHeartbeat", "TestLocks", "TestRelease"]


@pytest.fixture(params=ALL_WAYS)
def engine(request: pytest.FixtureRequest) -> Engine:
    return engine_of(request)
