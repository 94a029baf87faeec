"""Every engine keeps the contract of `ProgressStore`."""

from tests.conformance.store.suite.reporting import TestReport

__all__ = ["TestReport"]
