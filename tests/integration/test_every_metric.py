"""Every metric that the reference names is fed: here by a day of one worker, else where it says."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from gnomon.app import App
from gnomon.config import Settings
from gnomon.executors.python import AttemptContext
from gnomon.model.limits import Limit, LimitKind
from gnomon.model.spec import Python
from gnomon.stages import EntityView, Stage, Stages, Update
from gnomon.telemetry.metrics import METRICS
from gnomon.worker import WorkerConfig
from tests.architecture.sources import ROOT

WITHIN_S = 60.0
HERE = frozenset(
    {
        "attempts_begun",
        "attempts_ended",
        "attempts_running",
        "attempt_seconds",
        "results",
        "lateness_seconds",
        "begin_batch",
        "finish_batch",
        "actions_moved",
        "shards_held",
        "event_loop_lag_seconds",
        "limit_granted",
        "limit_waiting",
        "python_threads_stuck",
        "store_group_verbs",
        "store_group_seconds",
        "stage_asks",
        "stage_runs",
        "stage_call_seconds",
    }
)
# What needs a situation of its own, and the tests in which it comes about.
ELSEWHERE = {
    "attempts_abandoned": "tests/simulation/test_counting.py",
    "attempts_armed": "tests/simulation/test_bursts.py",
    "attempts_disarmed": "tests/simulation/test_bursts.py",
    **dict.fromkeys(
        (
            "actions_waiting",
            "actions_overdue",
            "actions_overdue_seconds",
            "actions_running",
            "actions_dead",
            "stage_overdue",
            "stage_overdue_seconds",
            "stage_parked",
            "workers_alive",
            "shards",
            "shards_unowned",
            "figures_age_seconds",
            "figures_limit",
            "figures_partial",
        ),
        "tests/unit/test_scraping.py",
    ),
    "event_loop_blocked": "tests/unit/test_watchdog.py",
    "store_errors": "tests/unit/worker/test_recorder.py",
    "worker_bugs": "tests/unit/worker/test_recorder.py",
    "doctor_findings": "tests/simulation/test_counting.py",
    "leases_lost": "tests/unit/worker/test_leases.py",
    "leases_stolen": "tests/simulation/test_counting.py",
    "helper_begun": "tests/simulation/test_counting.py",
    "guest_begun": "tests/simulation/test_counting.py",
    "pauses_ended": "tests/simulation/test_counting.py",
    "actions_unserved": "tests/simulation/test_counting.py",
    "reservations_outlived": "tests/unit/worker/test_reservations.py",
    "limit_handed_back": "tests/simulation/test_counting.py",
    "http_answer_bytes": "tests/conformance/executor/test_http.py",
    "store_unavailable": "tests/fault/test_cuts.py",
    **dict.fromkeys(
        (
            "task_table_waiting",
            "task_table_overdue",
            "task_table_overdue_seconds",
            "task_table_running",
            "task_table_failed",
        ),
        "tests/unit/test_task_gauges.py",
    ),
    "tasks_finished": "tests/conformance/tasks",
    "tasks_rescued": "tests/conformance/tasks",
    "tasks_running": "tests/conformance/tasks",
    "tasks_waiting": "tests/conformance/tasks",
    "task_lateness_seconds": "tests/conformance/tasks",
    "stage_conflicts": "tests/conformance/stages",
    "stage_loops": "tests/conformance/stages",
    "stage_timers": "tests/conformance/stages",
    "stage_bugs": "tests/conformance/stages",
    "stages_unserved": "tests/conformance/stages",
    "outbox_sent": "tests/conformance/stages/test_outbox.py",
    "outbox_put_off": "tests/conformance/stages/test_outbox.py",
    "outbox_quarantined": "tests/integration/stages/test_outbox.py",
    "outbox_age_seconds": "tests/integration/stages/test_outbox.py",
    "background_held": "tests/integration/stages/test_outbox.py",
    "unknown_metrics": "tests/unit/test_telemetry.py",
}


class Moved:
    """Which metrics were told anything at all."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def event(self, name: str, /, **_fields: object) -> None: ...

    def count(self, name: str, value: int = 1, /, **_labels: str) -> None:
        if value:
            self.names.add(name)

    def observe(self, name: str, _value: float, /, **_labels: str) -> None:
        self.names.add(name)

    def gauge(self, name: str, value: float, /, **_labels: str) -> None:
        if value:
            self.names.add(name)


def test_every_documented_metric_has_its_test() -> None:
    """A new metric is named here, or in the table with the test that moves it."""
    assert {metric.name for metric in METRICS} == HERE | ELSEWHERE.keys()
    assert set() == HERE & ELSEWHERE.keys()
    assert [] == [place for place in ELSEWHERE.values() if not (ROOT / place).exists()]


def app_at(path: Path, moved: Moved) -> App:
    config = WorkerConfig(concurrency=4, heartbeat=timedelta(milliseconds=100))
    app = App(f"sqlite:///{path}", settings=Settings(worker=config), observer=moved)

    @app.action
    async def quick(attempt: AttemptContext) -> None:
        await asyncio.sleep(0.01)

    @app.action
    def stuck(attempt: AttemptContext) -> None:
        time.sleep(0.3)  # a blocking function, in its thread, beyond its time-out

    return app


class Look(Stage[Any, Any]):
    """Whatever there is, is seen."""

    name = "look"
    writes = ("seen",)

    def should_process(self, it: EntityView[Any, Any]) -> bool:
        return "seen" not in it.entity

    async def process(self, it: EntityView[Any, Any]) -> Update[Any]:
        return Update({"seen": True})


async def test_a_day_of_a_worker_moves_its_metrics(tmp_path: Path) -> None:
    """What a worker on SQLite with functions, limits and a stage has to tell, it tells."""
    moved = Moved()
    app = app_at(tmp_path / "day.db", moved)
    Stages(app, "ad").add(Look())
    async with app:
        await app.scheduler.set_limit(Limit(kind=LimitKind.QUEUE, name="default", parallel=2))
        stop = asyncio.Event()
        working = asyncio.create_task(app.work(stop))
        await app.entities.put("ad", "one", {"name": "one"})
        async with asyncio.timeout(WITHIN_S):
            while HERE - moved.names:
                later = await app.store.installation.now() + timedelta(milliseconds=50)
                await app.schedule(Python(function="quick"), at=later)
                await app.schedule(Python(function="quick"))
                await app.schedule(Python(function="stuck"), timeout=timedelta(milliseconds=100))
                await asyncio.sleep(0.1)
        stop.set()
        await working
    assert set() == HERE - moved.names
