"""Every engine keeps the contract of `ActionStore`."""

from gnomon.testing.store_suite.changing import TestDelete, TestReplace
from gnomon.testing.store_suite.creating import TestCreate
from gnomon.testing.store_suite.pausing import TestPause, TestResume, TestRunNow
from gnomon.testing.store_suite.showing import TestAttempts, TestCount, TestGet, TestList

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
