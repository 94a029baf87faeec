"""Every engine keeps the contract of `InstallationStore`."""

from tests.conformance.store.suite.installing import (
    TestDoctor,
    TestIdentity,
    TestInstallation,
    TestPurge,
)

__all__ = ["TestDoctor", "TestIdentity", "TestInstallation", "TestPurge"]
