"""Every engine keeps the contract of `LimitStore`."""

import pytest

from tests.conformance.store.conftest import NO_SHARDS, Engine, engine_of
from tests.conformance.store.suite.sharing import TestLimits, TestShares

__all__ = ["TestLimits", "TestShares"]


@pytest.fixture(params=NO_SHARDS)
def engine(request: pytest.FixtureRequest) -> Engine:
    return engine_of(request)
