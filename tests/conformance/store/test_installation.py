"""Every engine keeps the contract of `InstallationStore`."""

from tests.conformance.store.suite.counting import TestFigures
from tests.conformance.store.suite.installing import (
    TestDoctor,
    TestIdentity,
    TestInstallation,
    TestMeasure,
    TestPurge,
)

__all__ = [
    "TestDoctor",
    "TestFigures",
    "TestIdentity",
    "TestInstallation",
    "TestMeasure",
    "TestPurge",
]
