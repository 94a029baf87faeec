"""Every engine: races, wake-ups, sizes, callers' transactions, refusals."""

from gnomon.testing.store_suite.limits import TestJoining, TestRefusals, TestSizes
from gnomon.testing.store_suite.races import TestRaces, TestWakeups
from gnomon.testing.store_suite.spoiling import TestUnreadable
from gnomon.testing.store_suite.storming import TestStorm

__all__ = [
    "TestJoining",
    "TestRaces",
    "TestRefusals",
    "TestSizes",
    "TestStorm",
    "TestUnreadable",
    "TestWakeups",
]
