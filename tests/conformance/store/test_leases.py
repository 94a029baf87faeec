"""Every engine keeps the contract of `LeaseStore`."""

from tests.conformance.store.suite.leasing import TestAcquire, TestHeartbeat, TestLocks, TestRelease

__all__ = ["TestAcquire", "TestHeartbeat", "TestLocks", "TestRelease"]
