"""Every engine keeps the contract of `WorkStore`."""

from tests.conformance.store.suite.arming import TestArm, TestConfirm, TestDisarm
from tests.conformance.store.suite.arriving import TestArrive, TestArrived, TestNewest
from tests.conformance.store.suite.beginning import (
    TestBegin,
    TestExtend,
    TestHelping,
    TestRecall,
    TestRefusing,
)
from tests.conformance.store.suite.ending_pauses import TestEndPauses, TestPauseTerms
from tests.conformance.store.suite.holding import TestHeld
from tests.conformance.store.suite.lapsing import TestLapsed, TestSettle
from tests.conformance.store.suite.moving import (
    TestClockSetBack,
    TestMove,
    TestMoveSilent,
    TestSurvey,
    TestWaiting,
)
from tests.conformance.store.suite.needing import (
    TestGuests,
    TestHandedBack,
    TestNeeds,
    TestNeedsLater,
    TestUnserved,
)
from tests.conformance.store.suite.orphaning import TestInterrupting, TestOrphans, TestWorkers
from tests.conformance.store.suite.recording import TestFinish, TestRepeats, TestTakingBack
from tests.conformance.store.suite.superseding import TestBlockedHead, TestSeries, TestSuperseded

__all__ = [
    "TestArm",
    "TestArrive",
    "TestArrived",
    "TestBegin",
    "TestBlockedHead",
    "TestClockSetBack",
    "TestConfirm",
    "TestDisarm",
    "TestEndPauses",
    "TestExtend",
    "TestFinish",
    "TestGuests",
    "TestHandedBack",
    "TestHeld",
    "TestHelping",
    "TestInterrupting",
    "TestLapsed",
    "TestMove",
    "TestMoveSilent",
    "TestNeeds",
    "TestNeedsLater",
    "TestNewest",
    "TestOrphans",
    "TestPauseTerms",
    "TestRecall",
    "TestRefusing",
    "TestRepeats",
    "TestSeries",
    "TestSettle",
    "TestSuperseded",
    "TestSurvey",
    "TestTakingBack",
    "TestUnserved",
    "TestWaiting",
    "TestWorkers",
]
