"""Every engine keeps the contract of `ActionStore`."""

import pytest

from tests.conformance.store.conftest import ALL_WAYS, Engine, engine_of
from tests.conformance.store.suite.cancelling import TestCancelRunning
from tests.conformance.store.suite.changing import TestDelete, TestReplace
from tests.conformance.store.suite.creating import TestCreate
from tests.conformance.store.suite.pausing import TestPause, TestResume, TestRunNow
from tests.conformance.store.suite.seeking import TestSchedules, TestSought, few_looks
from tests.conformance.store.suite.showing import TestAttempts, TestCount, TestGet, TestList

__all__ = [
    "TestAttempts",
    "TestCancelRunning",
    "TestCount",
    "TestCreate",
    "TestDelete",
    "TestGet",
    "TestList",
    "TestPause",
    "TestReplace",
    "TestResume",
    "TestRunNow",
    "TestSchedules",
    "TestSought",
    "few_looks",
]


@pytest.fixture(params=ALL_WAYS)
def engine(request: pytest.FixtureRequest) -> Engine:
    return engine_of(request)
