"""Every engine keeps the contract of `WorkStore`."""

from tests.conformance.store.suite.arriving import TestArrive, TestArrived
from tests.conformance.store.suite.beginning import (
    TestBegin,
    TestExtend,
    TestHelping,
    TestRecall,
    TestRefusing,
)
from tests.conformance.store.suite.holding import TestHeld
from tests.conformance.store.suite.lapsing import TestLapsed, TestSettle
from tests.conformance.store.suite.moving import (
    TestClockSetBack,
    TestMove,
    TestMoveSilent,
    TestSurvey,
    TestWaiting,
)
from tests.conformance.store.suite.orphaning import TestInterrupting, TestOrphans, TestWorkers
from tests.conformance.store.suite.recording import TestFinish, TestRepeats, TestTakingBack
from tests.conformance.store.suite.superseding import TestBlockedHead, TestSeries, TestSuperseded

__all__ = [
    "TestArrive",
    "TestArrived",
    "TestBegin",
    "TestBlockedHead",
    "TestClockSetBack",
    "TestExtend",
    "TestFinish",
    "TestHeld",
    "TestHelping",
    "TestInterrupting",
    "TestLapsed",
    "TestMove",
    "TestMoveSilent",
    "TestOrphans",
    "TestRecall",
    "TestRefusing",
    "TestRepeats",
    "TestSeries",
    "TestSettle",
    "TestSuperseded",
    "TestSurvey",
    "TestTakingBack",
    "TestWaiting",
    "TestWorkers",
]
