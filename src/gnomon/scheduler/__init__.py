"""How actions get in: admission, and one verb per call."""

from gnomon.scheduler.admission import Request
from gnomon.scheduler.scheduler import Scheduler, SchedulerConfig

__all__ = ["Request", "Scheduler", "SchedulerConfig"]
