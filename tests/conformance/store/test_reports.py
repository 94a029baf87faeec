"""Every engine keeps the contract of `ReportStore`."""

from tests.conformance.store.suite.failing import TestFailures
from tests.conformance.store.suite.foreseeing import TestLoad
from tests.conformance.store.suite.keeping import TestHistory
from tests.conformance.store.suite.waiting import TestWhy

__all__ = ["TestFailures", "TestHistory", "TestLoad", "TestWhy"]
