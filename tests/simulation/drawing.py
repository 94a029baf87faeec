"""What a seed draws: the world's size, its faults, and the actions that users ask for."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime, timedelta

from gnomon.model.spec import (
    CatchUp,
    Cron,
    Effect,
    Http,
    Mock,
    Once,
    Periodic,
    Policy,
    Python,
    Retry,
    Spec,
)
from gnomon.testing.faulty import Misfortune
from gnomon.worker import WorkerConfig

QUEUES = ("default", "default", "default", "bulk")
SKEW_S = (180.0, 300.0)  # beyond the world's length, so that it shows in any column


def seconds(value: float) -> timedelta:
    return timedelta(microseconds=round(value * 1_000_000))


@dataclass(slots=True, kw_only=True)
class Weather:
    """How bad it is. Rates are per call of a verb that matters, or per second."""

    store: Misfortune
    crash_at_call: float = 0.0
    freeze_at_call: float = 0.0
    crash_per_s: float = 0.0
    freeze_per_s: float = 0.0
    stall_per_s: float = 0.0
    restart_per_s: float = 0.0
    freeze_max_s: float = 25.0

    @property
    def is_calm(self) -> bool:
        return not (
            self.store.refused
            or self.store.unanswered
            or self.store.hint_lost
            or self.crash_at_call
            or self.freeze_at_call
            or self.crash_per_s
            or self.freeze_per_s
            or self.stall_per_s
            or self.restart_per_s
        )


def draw_weather(dice: random.Random) -> Weather:
    """Each kind of fault is on in some seeds and off in others, at a rate of the seed's own."""
    if dice.random() < 0.06:
        return Weather(store=Misfortune(delay_s=dice.choice((0.02, 0.2))))

    def rate(most: float) -> float:
        return 0.0 if dice.random() < 0.4 else most * dice.random() ** 2

    store = Misfortune(
        delay_s=dice.choice((0.002, 0.02, 0.2)),
        refused=rate(0.10),
        unanswered=rate(0.10),
        hint_lost=dice.choice((0.0, 0.2, 1.0)),
    )
    return Weather(
        store=store,
        crash_at_call=rate(0.03),
        freeze_at_call=rate(0.03),
        crash_per_s=rate(0.06),
        freeze_per_s=rate(0.06),
        stall_per_s=rate(0.03),
        restart_per_s=rate(0.03),
    )


def draw_config(dice: random.Random) -> WorkerConfig:
    """Leases and reservations as in production; fewer polls, for the sake of speed."""
    return WorkerConfig(
        concurrency=dice.choice((1, 3, 20)),
        heartbeat=seconds(2),
        lease=seconds(10),
        step_down=seconds(3),
        grace=seconds(dice.choice((2.0, 5.0))),
        window=seconds(dice.choice((6.0, 30.0))),
        poll=seconds(2),
        sweep=seconds(dice.choice((5.0, 15.0))),
        helpers=dice.random() < 0.8,
        silent=seconds(4),
        drain=seconds(dice.choice((0.5, 8.0))),
        purge=seconds(20),
    )


def draw_spec(dice: random.Random, now: datetime, *, dense: bool = False) -> Spec:
    """What a user asks for. `dense`: all in one lane, and often, so that they meet."""
    policy = _draw_policy(dice)
    is_once = isinstance(policy, Once)
    start_at = now + seconds(dice.uniform(-3, 25)) if dice.random() < 0.6 else None
    deadline = now + seconds(dice.uniform(28, 120)) if dice.random() < 0.2 else None
    return Spec(
        action=_draw_effect(dice),
        policy=policy,
        start_at=start_at,
        deadline=deadline,
        retry=_draw_retry(dice),
        timeout=seconds(dice.choice((0.5, 2.0, 5.0, 5.0, 15.0, 40.0))),
        active=seconds(dice.uniform(1, 12)) if dice.random() < 0.2 else None,
        drift=not is_once and dice.random() < 0.15,
        catch_up=CatchUp(mode=dice.choice(("none", "one", "all")), max=dice.choice((2, 5, 100))),
        jitter=seconds(dice.uniform(0, 3)) if dice.random() < 0.15 else timedelta(0),
        occurrences_max=dice.randint(1, 8) if dice.random() < 0.1 else None,
        successes_max=dice.randint(1, 5) if dice.random() < 0.1 else None,
        consecutive_failures_max=dice.randint(2, 5) if dice.random() < 0.1 else None,
        interruptions_max=dice.choice((0, 1, 5, 5, 5)),
        retention=_draw_retention(dice),
        queue="default" if dense else dice.choice(QUEUES),
        priority=5 if dense else dice.choice((5, 5, 5, 0, 9)),
    )


def _draw_policy(dice: random.Random) -> Policy:
    drawn = dice.random()
    if drawn < 0.5:
        return Once()
    if drawn < 0.97:
        return Periodic(period=seconds(dice.choice((1, 2, 5, 7.5, 10, 20))))
    return Cron(expression="* * * * *")


def _draw_retry(dice: random.Random) -> Retry:
    if dice.random() < 0.4:
        return Retry()
    return Retry(
        max=dice.choice((1, 2, 5)),
        min_period=seconds(dice.choice((1, 2))),
        max_period=seconds(dice.choice((2, 10))),
        scale=dice.choice((0.0, 1.0)),
        back_off=2.0,
    )


def _draw_effect(dice: random.Random) -> Effect:
    return dice.choice(
        (
            Mock(),
            Python(function="work"),
            Http(method="POST", url="https://receiver.test/hook"),
        )
    )


def _draw_retention(dice: random.Random) -> timedelta | None:
    drawn = dice.random()
    if drawn < 0.08:
        return timedelta(0)
    return seconds(dice.uniform(5, 60)) if drawn < 0.3 else None
