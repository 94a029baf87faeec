"""What surrounds the core: its clock, its dice, and who watches. A simulation owns all three."""

from __future__ import annotations

from dataclasses import dataclass, field

from gnomon.contracts.clock import Clock, Entropy
from gnomon.contracts.observer import Observer, Silent


@dataclass(frozen=True, slots=True, kw_only=True)
class Env:
    """Injected into every part of the core that needs time, chance or an audience."""

    clock: Clock
    entropy: Entropy
    observer: Observer = field(default_factory=Silent)
