"""Every engine keeps the contract of `TokenStore`, and writes the audit."""

import pytest

from tests.conformance.store.conftest import NO_SHARDS, Engine, engine_of
from tests.conformance.store.suite.tokens import TestAudit, TestTokens

__all__ = ["TestAudit", "TestTokens"]


@pytest.fixture(params=NO_SHARDS)
def engine(request: pytest.FixtureRequest) -> Engine:
    return engine_of(request)
