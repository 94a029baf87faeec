"""How much is measured: all of it, or just enough to see that it works."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Engine = Literal["postgres", "sqlite"]
ENGINES: tuple[Engine, ...] = ("postgres", "sqlite")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The numbers of all scenarios."""

    rounds: int = 3  # of A and B in turn; the median counts
    repeats: int = 2  # of a round on a disturbed machine
    drained: int = 50_000
    created: int = 10_000  # in one bulk call
    created_singly: int = 2_000
    callers: int = 16  # that create at the same time
    created_by_sql: int = 100_000
    burst: int = 100_000
    burst_ahead_s: float = 5.0  # from the last created to the instant
    idle_count: int = 200
    idle_for_s: float = 20.0
    loaded_rate: int = 1_000
    loaded_for_s: float = 10.0
    pending: int = 1_000_000
    loaded_pending: tuple[int, ...] = (1_000_000,)
    growth: tuple[int, ...] = (10_000, 100_000, 1_000_000)
    growth_batches: int = 15
    steady_for_s: float = 20.0
    snapshot_for_s: float = 60.0
    sustained_rate: int = 1_000
    sustained_for_s: float = 300.0
    campaign: int = 2_000_000  # actions due at one moment, and cancelled before it
    campaign_for_s: float = 40.0
    memory_for_s: float = 15.0
    called: int = 20_000
    tasks: int = 10_000
    tasks_growth: tuple[int, ...] = (10_000, 100_000, 1_000_000)
    tasks_idle: int = 200
    staged: int = 40_000  # entities through stages
    walked: int = 100_000
    staged_bases: tuple[int, ...] = (10_000, 100_000, 1_000_000)
    console: tuple[int, ...] = (1_000_000,)  # pending while its views are asked for
    console_rate: int = 1_000  # actions a second meanwhile
    console_times: int = 100  # each
    sweep: int = 10_000  # actions per setting of a peer that is tried; 0: the known best is taken


FULL = Scale()
QUICK = Scale(
    rounds=1,
    repeats=0,
    drained=4_000,
    created=2_000,
    created_singly=200,
    created_by_sql=2_000,
    burst=5_000,
    burst_ahead_s=1.0,
    idle_count=40,
    idle_for_s=1.5,
    campaign=5_000,
    campaign_for_s=5.0,
    loaded_for_s=1.5,
    pending=50_000,
    loaded_pending=(50_000,),
    growth=(1_000, 10_000, 50_000),
    growth_batches=5,
    steady_for_s=1.5,
    snapshot_for_s=3.0,
    sustained_rate=500,
    sustained_for_s=4.0,
    memory_for_s=1.0,
    called=3_000,
    tasks=500,
    tasks_growth=(500, 5_000),
    tasks_idle=10,
    staged=1_000,
    walked=1_000,
    staged_bases=(500, 2_000),
    console=(100_000,),
    console_rate=200,
    console_times=10,
    sweep=0,
)
