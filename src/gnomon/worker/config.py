"""The worker's settings, and the relations between them that keep the protocol sound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType

from gnomon.lease import LeaseTerms
from gnomon.model.constant import CONSTANT
from gnomon.model.errors import ConfigurationError, short
from gnomon.model.ids import NAME_PATTERN, NAME_RULE
from gnomon.model.offer import Offer

ONLY_QUEUES = "worker.only_queues"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """How many attempts at once, and how leases are kept."""

    concurrency: int = 100  # attempts at once, per queue and process
    attempts_max: int = 0  # of all queues at once, per process; 0: ten times worker.concurrency
    queues: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))  # exceptions
    only_queues: tuple[str, ...] = ()  # the queues that it serves; none named: all
    heartbeat: timedelta = timedelta(milliseconds=500)  # how often leases are prolonged
    lease: timedelta = timedelta(seconds=10)  # a shard whose owner was silent for so long is free
    grace: timedelta = timedelta(seconds=5)  # a reservation outlasts its attempt by this
    poll: timedelta = timedelta(milliseconds=200)  # of the incoming queue, if no hint came
    drain: timedelta = timedelta(seconds=25)  # at shutdown, attempts may take this long to end
    purge: timedelta = timedelta(minutes=5)  # how often finished ones past retention are removed
    doctor: timedelta = timedelta(minutes=1)  # how often the invariants are checked, at most

    # Begin nothing this long before the lease ends: a begin that is on its way then arrives before
    # somebody else may take the shard.
    step_down: timedelta = field(default=timedelta(seconds=3), metadata=CONSTANT)
    # The longest reservation; a longer attempt prolongs it. So nobody waits longer for the attempts
    # of a dead worker, and a minute is few enough writes.
    window: timedelta = field(default=timedelta(seconds=60), metadata=CONSTANT)
    # A full look at both queues, marks ignored: it finds what no hint, poll or survey told of.
    sweep: timedelta = field(default=timedelta(seconds=15), metadata=CONSTANT)
    # Begin overdue rows of shards whose owner is silent. It is always right: the row is the fence.
    helpers: bool = field(default=True, metadata=CONSTANT)
    # An owner without a heartbeat for so long is silent: three of the default ones.
    silent: timedelta = field(default=timedelta(milliseconds=1500), metadata=CONSTANT)
    # Bounds of one statement: of its time, its locks and its memory.
    begin_batch: int = field(default=2_000, metadata=CONSTANT)
    move_batch: int = field(default=2_000, metadata=CONSTANT)
    finish_batch: int = field(default=2_000, metadata=CONSTANT)
    # So many rows due at one instant are a burst, and armed: what one begin cannot take.
    burst_least: int = field(default=2_000, metadata=CONSTANT)
    # What is due so soon is armed, too: its begin is written when its time comes. 0: it is not.
    soon: timedelta = field(default=timedelta(milliseconds=12), metadata=CONSTANT)

    def __post_init__(self) -> None:
        _at_least("worker.concurrency", self.concurrency, 1)
        for name, value in self.queues.items():
            _at_least(f"worker.queues.{name}", value, 0)
        _at_least("worker.attempts_max", self.attempts_max, 0)
        self._check_only_queues()
        if self.heartbeat * 3 > self.lease:
            raise ConfigurationError("worker.heartbeat", "must be at most a third of worker.lease")
        if self.step_down + self.heartbeat * 2 > self.lease:
            least = f"{self.step_down.total_seconds():g} s and two heartbeats"
            raise ConfigurationError("worker.lease", f"must be at least {least}")
        if self.silent < self.heartbeat * 2:
            most = f"{self.silent.total_seconds() / 2:g} s"
            raise ConfigurationError("worker.heartbeat", f"must be at most {most}")

    def _check_only_queues(self) -> None:
        for name in self.only_queues:
            if not NAME_PATTERN.fullmatch(name):
                raise ConfigurationError(ONLY_QUEUES, f"{short(name)}: a name {NAME_RULE}")
            if self.queues.get(name) == 0:
                raise ConfigurationError(ONLY_QUEUES, f"has {name}, and worker.queues.{name} is 0")

    @property
    def lease_terms(self) -> LeaseTerms:
        return LeaseTerms(lease=self.lease, beat=self.heartbeat, step_down=self.step_down)

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
        if self.only_queues and queue not in self.only_queues:
            return 0
        return self.queues.get(queue, self.concurrency)

    @property
    def offer(self) -> Offer:
        """The queues that it serves, for the others."""
        never = tuple(sorted(name for name, slots in self.queues.items() if not slots))
        return Offer(only=self.only_queues, never=never)


def _at_least(path: str, value: int, least: int) -> None:
    if value < least:
        raise ConfigurationError(path, f"must be at least {least}")
