"""The worker's settings, and the relations between them that keep the protocol sound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType

from gnomon.model.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """How many attempts at once, and how leases are kept."""

    concurrency: int = 100  # attempts at once, per queue and process
    attempts_max: int = 0  # of all queues at once, per process; 0: ten times worker.concurrency
    queues: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))  # exceptions
    heartbeat: timedelta = timedelta(milliseconds=500)  # how often leases are prolonged
    lease: timedelta = timedelta(seconds=10)  # a shard whose owner was silent for so long is free
    step_down: timedelta = timedelta(seconds=3)  # begin nothing this long before the lease ends
    grace: timedelta = timedelta(seconds=5)  # a reservation outlasts its attempt by this
    window: timedelta = timedelta(seconds=60)  # longest reservation; longer attempts prolong it
    poll: timedelta = timedelta(milliseconds=200)  # of the incoming queue, if no hint came
    sweep: timedelta = timedelta(seconds=15)  # a full look at both queues, marks ignored
    helpers: bool = True  # begin overdue rows of shards whose owner is silent
    silent: timedelta = timedelta(milliseconds=1500)  # an owner without heartbeat is silent
    drain: timedelta = timedelta(seconds=25)  # at shutdown, attempts may take this long to end
    purge: timedelta = timedelta(minutes=5)  # how often finished ones past retention are removed
    doctor: timedelta = timedelta(minutes=1)  # how often the invariants are checked, at most
    begin_batch: int = 2_000
    move_batch: int = 1_000  # rows a shard
    finish_batch: int = 1_000

    def __post_init__(self) -> None:
        _at_least("worker.concurrency", self.concurrency, 1)
        for name, value in self.queues.items():
            _at_least(f"worker.queues.{name}", value, 0)
        _at_least("worker.attempts_max", self.attempts_max, 0)
        if self.heartbeat * 3 > self.lease:
            raise ConfigurationError("worker.heartbeat", "must be at most a third of worker.lease")
        if self.step_down + self.heartbeat * 2 > self.lease:
            raise ConfigurationError(
                "worker.step_down", "plus two heartbeats must be shorter than worker.lease"
            )
        if self.silent < self.heartbeat * 2:
            raise ConfigurationError("worker.silent", "must be at least two heartbeats")
        for name in ("begin_batch", "move_batch", "finish_batch"):
            _at_least(f"worker.{name}", getattr(self, name), 1)

    @property
    def send_within(self) -> timedelta:
        """After its begin an attempt may wait this long for its slot; later it is abandoned."""
        return self.grace * 0.8

    @property
    def attempts_limit(self) -> int:
        """How many attempts this process performs at once, whatever the number of queues."""
        return self.attempts_max or max(10 * self.concurrency, *self.queues.values(), 0)

    def concurrency_of(self, queue: str) -> int:
        """How many attempts of a queue this process performs at once; 0: none of that queue."""
        return self.queues.get(queue, self.concurrency)


def _at_least(path: str, value: int, least: int) -> None:
    if value < least:
        raise ConfigurationError(path, f"must be at least {least}")
