"""What makes actions happen: leases, timeline, attempts, recorder, sweeper."""

from gnomon.worker.config import WorkerConfig
from gnomon.worker.worker import Worker

__all__ = ["Worker", "WorkerConfig"]
