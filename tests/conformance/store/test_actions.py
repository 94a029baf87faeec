"""Every engine keeps the contract of `ActionStore`."""

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
