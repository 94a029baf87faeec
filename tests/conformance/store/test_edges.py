"""Every engine: races, wake-ups, sizes, callers' transactions, refusals."""

from tests.conformance.store.suite.limits import TestJoining, TestRefusals, TestSizes
from tests.conformance.store.suite.races import TestRaces, TestWakeups
from tests.conformance.store.suite.spoiling import TestUnreadable
from tests.conformance.store.suite.storming import TestStorm

__all__ = [
    "TestJoining",
    "TestRaces",
    "TestRefusals",
    "TestSizes",
    "TestStorm",
    "TestUnreadable",
    "TestWakeups",
]
