"""Every engine keeps the contract of `LimitStore`."""

from gnomon.testing.store_suite.sharing import TestLimits, TestShares

__all__ = ["TestLimits", "TestShares"]
