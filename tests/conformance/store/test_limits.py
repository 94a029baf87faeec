"""Every engine keeps the contract of `LimitStore`."""

from tests.conformance.store.suite.sharing import TestLimits, TestShares

__all__ = ["TestLimits", "TestShares"]
