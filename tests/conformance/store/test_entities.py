"""Every engine keeps the contract of `EntityStore`."""

import pytest

from tests.conformance.store.conftest import SHARED_STATEMENTS, Engine, engine_of
from tests.conformance.store.suite.entities.attending import TestAttendance
from tests.conformance.store.suite.entities.auditing import TestEntityAudit
from tests.conformance.store.suite.entities.backfilling import TestBackfills
from tests.conformance.store.suite.entities.committing import TestClaimedRow, TestCommit
from tests.conformance.store.suite.entities.debouncing import TestDebouncing
from tests.conformance.store.suite.entities.deleting import TestDelete
from tests.conformance.store.suite.entities.feeding import TestFeed
from tests.conformance.store.suite.entities.holding import TestHeldEntities
from tests.conformance.store.suite.entities.kinds import TestKinds
from tests.conformance.store.suite.entities.leaving import TestOutbox, TestOutboxSurvey
from tests.conformance.store.suite.entities.offering import TestMerging, TestOffers
from tests.conformance.store.suite.entities.parking import TestParked
from tests.conformance.store.suite.entities.passing import TestPass
from tests.conformance.store.suite.entities.peeking import TestEntitySurvey, TestPeek
from tests.conformance.store.suite.entities.purging import TestEntityDoctor, TestPurgeEntities
from tests.conformance.store.suite.entities.racing import TestEntityRaces
from tests.conformance.store.suite.entities.reading import TestList, TestStates
from tests.conformance.store.suite.entities.registering import TestRegister
from tests.conformance.store.suite.entities.returning import TestSetBack
from tests.conformance.store.suite.entities.ruling import TestMergeRule
from tests.conformance.store.suite.entities.saving import (
    TestCommitOffers,
    TestCommitOutbox,
    TestCommitRepeats,
)
from tests.conformance.store.suite.entities.undelivered import TestUndelivered
from tests.conformance.store.suite.entities.waking import TestTimers
from tests.conformance.store.suite.entities.weighing import TestWeights
from tests.conformance.store.suite.entities.writing import TestWrite


@pytest.fixture(params=SHARED_STATEMENTS)
def engine(request: pytest.FixtureRequest) -> Engine:
    return engine_of(request)


__all__ = [
    "TestAttendance",
    "TestBackfills",
    "TestClaimedRow",
    "TestCommit",
    "TestCommitOffers",
    "TestCommitOutbox",
    "TestCommitRepeats",
    "TestDebouncing",
    "TestDelete",
    "TestEntityAudit",
    "TestEntityDoctor",
    "TestEntityRaces",
    "TestEntitySurvey",
    "TestFeed",
    "TestHeldEntities",
    "TestKinds",
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
    "TestStates",
    "TestTimers",
    "TestUndelivered",
    "TestWeights",
    "TestWrite",
]
