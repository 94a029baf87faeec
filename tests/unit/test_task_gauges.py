"""What Prometheus reads of task tables."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from gnomon.gateways.task_gauges import FRESH_S, TaskGauges
from gnomon.model.errors import StoreUnavailable
from tests.unit.worker.surroundings import HandClock

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PLANS = {
    "PLAN": (timedelta(seconds=-90), timedelta(seconds=-5), timedelta(hours=1)),
    "WORK": (timedelta(0),),
    "FAIL": (timedelta(0), timedelta(0)),
}


class Table:
    """Rows that are there, or do not answer."""

    def __init__(self) -> None:
        self.reads = 0
        self.is_away = False

    async def page(self, *, states: Sequence[str], **_: object) -> Sequence[Any]:
        self.reads += 1
        if self.is_away:
            raise StoreUnavailable("away")
        plans = [plan for state in states for plan in PLANS.get(state, ())]
        return [msgspec.convert({"plan": NOW + plan}, _Row) for plan in plans]


class _Row(msgspec.Struct):
    """The part of a `TaskSummary` that is looked at."""

    plan: datetime


class Gauges:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.shown: dict[str, float] = {}
        self.errors = 0

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        self.shown[f"{name} {labels['table']}"] = value

    def count(self, _name: str, value: int = 1, /, **_labels: str) -> None:
        self.errors += value


async def now() -> datetime:
    return NOW


def gauges_of(table: Table, observer: Gauges, clock: HandClock) -> TaskGauges:
    anything: Any = table
    shown: Any = observer
    return TaskGauges({"shop": anything}, shown, clock, now=now)


async def test_the_figures_of_a_table_are_gauges() -> None:
    """How many wait, are overdue, since when, run and have failed."""
    observer = Gauges()
    await gauges_of(Table(), observer, HandClock()).refresh()
    assert {
        "task_table_waiting shop": 1,
        "task_table_overdue shop": 2,
        "task_table_overdue_seconds shop": 90,
        "task_table_running shop": 1,
        "task_table_failed shop": 2,
    } == observer.shown


async def test_several_scrapers_cost_no_more_than_one() -> None:
    """What was read is shown again for a while."""
    table, clock = Table(), HandClock()
    gauges = gauges_of(table, Gauges(), clock)
    await gauges.refresh()
    reads = table.reads
    await gauges.refresh()
    assert reads == table.reads
    clock.seconds += FRESH_S
    await gauges.refresh()
    assert 2 * reads == table.reads


async def test_a_table_that_does_not_answer_keeps_what_it_had() -> None:
    """And is counted as an error."""
    table, observer, clock = Table(), Gauges(), HandClock()
    gauges = gauges_of(table, observer, clock)
    await gauges.refresh()
    shown = dict(observer.shown)
    table.is_away = True
    clock.seconds += FRESH_S
    await gauges.refresh()
    assert shown == observer.shown
    assert 1 == observer.errors
