"""Every engine keeps the contract of `InstallationStore`."""

from gnomon.testing.store_suite.installing import (
    TestDoctor,
    TestIdentity,
    TestInstallation,
    TestPurge,
)

__all__ = ["TestDoctor", "TestIdentity", "TestInstallation", "TestPurge"]
