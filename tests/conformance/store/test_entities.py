"""Every engine keeps the contract of `EntityStore`."""

from pathlib import Path

import pytest

from gnomon.testing.store_suite.entities.attending import TestAttendance
from gnomon.testing.store_suite.entities.auditing import TestEntityAudit
from gnomon.testing.store_suite.entities.committing import TestClaimedRow, TestCommit
from gnomon.testing.store_suite.entities.deleting import TestDelete
from gnomon.testing.store_suite.entities.feeding import TestFeed
from gnomon.testing.store_suite.entities.leaving import TestOutbox, TestOutboxSurvey
from gnomon.testing.store_suite.entities.offering import TestMerging, TestOffers
from gnomon.testing.store_suite.entities.parking import TestParked
from gnomon.testing.store_suite.entities.passing import TestPass
from gnomon.testing.store_suite.entities.peeking import TestEntitySurvey, TestPeek
from gnomon.testing.store_suite.entities.purging import TestEntityDoctor, TestPurgeEntities
from gnomon.testing.store_suite.entities.racing import TestEntityRaces
from gnomon.testing.store_suite.entities.reading import TestList, TestStates
from gnomon.testing.store_suite.entities.registering import TestRegister
from gnomon.testing.store_suite.entities.returning import TestSetBack
from gnomon.testing.store_suite.entities.ruling import TestMergeRule
from gnomon.testing.store_suite.entities.saving import (
    TestCommitOffers,
    TestCommitOutbox,
    TestCommitRepeats,
)
from gnomon.testing.store_suite.entities.settling import TestSettling
from gnomon.testing.store_suite.entities.sweeping import TestSweeps
from gnomon.testing.store_suite.entities.undelivered import TestUndelivered
from gnomon.testing.store_suite.entities.waking import TestTimers
from gnomon.testing.store_suite.entities.weighing import TestWeights
from gnomon.testing.store_suite.entities.writing import TestWrite
from tests.conformance.store.conftest import SHARED_STATEMENTS, Engine, engine_of


@pytest.fixture(params=SHARED_STATEMENTS)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    return engine_of(request, tmp_path)


__all__ = [
    "TestAttendance",
    "TestClaimedRow",
    "TestCommit",
    "TestCommitOffers",
    "TestCommitOutbox",
    "TestCommitRepeats",
    "TestDelete",
    "TestEntityAudit",
    "TestEntityDoctor",
    "TestEntityRaces",
    "TestEntitySurvey",
    "TestFeed",
    "TestList",
    "TestMergeRule",
    "TestMerging",
    "TestOffers",
    "TestOutbox",
    "TestOutboxSurvey",
    "TestParked",
    "TestPass",
    "TestPeek",
    "TestPurgeEntities",
    "TestRegister",
    "TestSetBack",
    "TestSettling",
    "TestStates",
    "TestSweeps",
    "TestTimers",
    "TestUndelivered",
    "TestWeights",
    "TestWrite",
]
