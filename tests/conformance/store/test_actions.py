"""Every engine keeps the contract of `ActionStore`."""

from pathlib import Path

import pytest

from tests.conformance.store.conftest import ALL_WAYS, Engine, engine_of
from tests.conformance.store.suite.changing import TestDelete, TestReplace
from tests.conformance.store.suite.creating import TestCreate
from tests.conformance.store.suite.pausing import TestPause, TestResume, TestRunNow
from tests.conformance.store.suite.showing import TestAttempts, TestCount, TestGet, TestList

__all__ = [
    "TestAttempts",
    "TestCount",
    "TestCreate",
    "TestDelete",
    "TestGet",
    "TestList",
    "TestPause",
    "TestReplace",
    "TestResume",
    "TestRunNow",
]


@pytest.fixture(params=ALL_WAYS)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    return engine_of(request, tmp_path)
