"""Replace and delete race with the worker that is about to begin."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from gnomon.app import App
from gnomon.contracts.store import ChangeResult
from gnomon.model.action import Attempt, State
from gnomon.model.errors import NotFound
from tests.fault.history import Run, check
from tests.fault.program import note
from tests.fault.stage import (
    Stage,
    all_attempts,
    all_done,
    create_all,
    request,
    shown,
    stop_all,
    until,
)

TRIES = 1_000
AT_ONCE = 50
DELAY_S_MAX = 0.1  # longer than an idle worker needs to begin what arrived
OLD, NEW = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A replace or delete that was answered."""

    id: str
    answer: ChangeResult | None  # None: there was nothing left to delete
    answered_at: datetime


@pytest.mark.slow
async def test_no_old_generation_begins_after_the_answer(stage: Stage) -> None:
    """After a replace or delete is answered, the only attempt of the old generation that the
    receiver may still see is the one that the answer named."""
    async with stage.app() as app:
        worker = await stage.worker()
        await create_all(app, [request("warm-up", note(NEW, 0.0))])
        await all_done(app, 1)
        gate = asyncio.Semaphore(AT_ONCE)
        changes = await asyncio.gather(*(_race(app, n, gate) for n in range(TRIES)))
        await _all_ended(app)
        runs = stage.runs()
        named = {
            str(c.answer.in_flight.attempt_id) for c in changes if c.answer and c.answer.in_flight
        }
        problems = await _problems(app, changes, runs)
        print(f"\n  {TRIES} races, {sum(run.n == OLD for run in runs)} old ones executed,", end="")
        print(f" {len(named)} of them in flight when the answer came")
        assert [] == problems
        assert 0 < len(named), "no race was close: the test shows nothing"
        assert TRIES > sum(run.n == OLD for run in runs), "the worker won every race"
        ids = [change.id for change in changes]
        history = await stage.history(app, ["warm-up"], unknown=ids, changed=ids)
        shown(check(history))
        assert [0] == await stop_all(worker)


async def _race(app: App, n: int, gate: asyncio.Semaphore) -> Change:
    """Create an action that is due at once, and change it a moment later."""
    name = f"r-{n}"
    chooser = random.Random()
    async with gate:
        await create_all(app, [request(name, note(OLD, 0.005))])
        await asyncio.sleep(chooser.random() * DELAY_S_MAX)
        try:
            if n % 2:
                answer = await app.scheduler.replace(request(name, note(NEW, 0.0)))
            else:
                answer = await app.scheduler.delete(name)
        except NotFound:  # it was done before: there was nothing to delete
            return Change(id=name, answer=None, answered_at=datetime.now(UTC))
        return Change(id=name, answer=answer, answered_at=datetime.now(UTC))


async def _all_ended(app: App) -> None:
    async def ended() -> bool:
        counts = await app.store.actions.count()
        return not counts[State.ACTIVE]

    await until(ended, "end of all actions")


async def _problems(app: App, changes: list[Change], runs: list[Run]) -> list[str]:
    logs = await all_attempts(app, [change.id for change in changes])
    old_runs: dict[str, list[Run]] = {}
    for run in runs:
        if run.n == OLD:
            old_runs.setdefault(run.id, []).append(run)
    return [
        problem
        for change in changes
        for run in old_runs.get(change.id, ())
        if (problem := _problem(change, run, {str(a.attempt_id): a for a in logs[change.id]}))
    ]


def _problem(change: Change, run: Run, log: dict[str, Attempt]) -> str | None:
    """What is wrong with an attempt of the old generation, if anything."""
    answer = change.answer
    if answer is None or (answer.in_flight and str(answer.in_flight.attempt_id) == run.attempt_id):
        return None
    recorded = log.get(run.attempt_id)
    if recorded is None:
        return f"{run.id}: attempt {run.attempt_id} is in no record"
    if recorded.began_at > answer.action.meta.updated_at + timedelta(microseconds=1):
        return f"{run.id}: began {recorded.began_at}, changed {answer.action.meta.updated_at}"
    if recorded.outcome == "superseded" or recorded.outcome.startswith("late_"):
        return f"{run.id}: was in flight ({recorded.outcome}), but the answer did not name it"
    if run.started_at > change.answered_at:
        return f"{run.id}: started {run.started_at}, answered {change.answered_at}"
    return None
