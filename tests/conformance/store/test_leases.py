"""Every engine keeps the contract of `LeaseStore`."""

from gnomon.testing.store_suite.leasing import TestAcquire, TestHeartbeat, TestLocks, TestRelease

__all__ = ["TestAcquire", "TestHeartbeat", "TestLocks", "TestRelease"]
