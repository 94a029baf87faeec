"""Every engine keeps the contract of `ProgramStore`."""

import pytest

from tests.conformance.store.conftest import SHARED_STATEMENTS, Engine, engine_of
from tests.conformance.store.suite.declaring import (
    TestDeclareAction,
    TestDeclareSet,
    TestRemoveDeclared,
)
from tests.conformance.store.suite.serving import TestServing

__all__ = ["TestDeclareAction", "TestDeclareSet", "TestRemoveDeclared", "TestServing"]


@pytest.fixture(params=SHARED_STATEMENTS)
def engine(request: pytest.FixtureRequest) -> Engine:
    return engine_of(request)
