"""Every engine keeps the contract of `WorkStore`."""

from gnomon.testing.store_suite.arriving import TestArrive
from gnomon.testing.store_suite.beginning import (
    TestBegin,
    TestExtend,
    TestHelping,
    TestRecall,
    TestRefusing,
)
from gnomon.testing.store_suite.holding import TestHeld
from gnomon.testing.store_suite.lapsing import TestLapsed, TestSettle
from gnomon.testing.store_suite.moving import (
    TestClockSetBack,
    TestMove,
    TestMoveSilent,
    TestSurvey,
    TestWaiting,
)
from gnomon.testing.store_suite.orphaning import TestInterrupting, TestOrphans, TestWorkers
from gnomon.testing.store_suite.recording import TestFinish, TestRepeats, TestTakingBack
from gnomon.testing.store_suite.superseding import TestBlockedHead, TestSeries, TestSuperseded

__all__ = [
    "TestArrive",
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
