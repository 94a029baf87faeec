"""What surrounds the core: its clock, its randomness, who watches, and the processes beside it. A
simulation owns all four."""

from __future__ import annotations

from dataclasses import dataclass, field

from gnomon.contracts.clock import Clock, Entropy
from gnomon.contracts.observer import Observer, SilentObserver
from gnomon.contracts.processes import NoProcesses, Processes
from gnomon.contracts.traces import Tracing
from gnomon.model.redaction import Redaction


@dataclass(frozen=True, slots=True, kw_only=True)
class Env:
    """Injected into every part of the core that needs time, chance or an audience."""

    clock: Clock
    entropy: Entropy
    observer: Observer = field(default_factory=SilentObserver)
    processes: Processes = field(default_factory=NoProcesses)
    tracing: Tracing | None = None  # None: off
    redaction: Redaction = field(default_factory=lambda: Redaction(()))  # of what is logged
