"""Reports for people and pages: how it goes, how it went, what failed, what will be due."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from gnomon.contracts.clock import Clock
from gnomon.contracts.store import FailedActions, InstallationFigures, Store
from gnomon.contracts.store.figures import COUNT_MAX
from gnomon.model.errors import InvalidRequest
from gnomon.model.function import FunctionRecord, newest_functions
from gnomon.model.load import LoadUnit
from gnomon.scheduler.attempt_history import BOUNDS, History, points_of, span_of
from gnomon.scheduler.failure_groups import FailureReport, group_failures
from gnomon.scheduler.load_report import LoadReport, read_load

ALIVE_FOR = timedelta(seconds=30)
FUNCTIONS_ALIVE_FOR = timedelta(minutes=1)  # they are published every 15 s
FRESH_FOR_S = 1.0
ANSWERS_MAX = 20  # kept for that time
FAILURES_LOOKED_AT = 500
GROUPS_MAX = 200
HISTORY_ROWS_MAX = 50_000

K = TypeVar("K")
V = TypeVar("V")


class Fresh(Generic[K, V]):
    """Answers that are the same for all who ask within a second: however many look at a page, the
    store is asked once, and by one at a time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._turn = asyncio.Lock()
        self._answers: dict[K, tuple[float, V]] = {}

    async def get(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        async with self._turn:
            known = self._answers.get(key)
            if known is not None and self._clock.monotonic() - known[0] < FRESH_FOR_S:
                return known[1]
            answer = await ask()
            now = self._clock.monotonic()
            self._answers = {
                other: kept
                for other, kept in self._answers.items()
                if now - kept[0] < FRESH_FOR_S and len(self._answers) < ANSWERS_MAX
            }
            self._answers[key] = now, answer
            return answer


class Reports:
    """What is shown and never decided by; each verb costs the store a bounded number of rows."""

    def __init__(self, store: Store, *, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._figures: Fresh[None, InstallationFigures] = Fresh(clock)
        self._failures: Fresh[str | None, FailedActions] = Fresh(clock)
        self._loads: Fresh[tuple[LoadUnit, int], LoadReport] = Fresh(clock)
        self._functions: Fresh[None, list[FunctionRecord]] = Fresh(clock)

    async def figures(self) -> InstallationFigures:
        """How much waits, is overdue, runs and has died; at most a second old."""
        installation = self._store.installation
        return await self._figures.get(
            None, lambda: installation.figures(limit=COUNT_MAX, alive_for=ALIVE_FOR)
        )

    async def failures(self, *, queue: str | None = None, limit: int = 50) -> FailureReport:
        """Dead and failing actions by what failed, the largest groups first; at most a second
        old."""
        if not 1 <= limit <= GROUPS_MAX:
            raise InvalidRequest(f"limit: must be between 1 and {GROUPS_MAX} (got {limit})")
        reports = self._store.reports
        failed = await self._failures.get(
            queue, lambda: reports.failures(queue=queue, limit=FAILURES_LOOKED_AT)
        )
        return FailureReport(
            at=failed.at,
            groups=group_failures(failed.actions, limit=limit),
            looked_at=len(failed.actions),
            partial=failed.partial,
        )

    async def history(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        step: timedelta | None = None,
        queue: str | None = None,
    ) -> History:
        """What workers have counted of attempts, by minute for two days and by hour for thirty; the
        last minute is not in it yet."""
        span = span_of(since, until, step, now=await self._store.installation.now())
        rows = await self._store.reports.list_history(
            queue or "", since=span.since, until=span.until, limit=HISTORY_ROWS_MAX
        )
        return History(queue=queue, step=span.step, bounds=BOUNDS, points=points_of(rows, span))

    async def load(
        self,
        *,
        since: datetime | None = None,
        unit: LoadUnit = LoadUnit.MINUTE,
        count: int = 60,
    ) -> LoadReport:
        """How much will be due in each second, minute, hour or day from now or a moment on, and
        herds in it; from now on it is at most a second old."""
        if since is not None:
            return await read_load(self._store.reports, since, unit, count)
        return await self._loads.get((unit, count), lambda: self._load_from_now(unit, count))

    async def _load_from_now(self, unit: LoadUnit, count: int) -> LoadReport:
        return await read_load(
            self._store.reports, await self._store.installation.now(), unit, count
        )

    async def functions(self) -> list[FunctionRecord]:
        """What living programs serve, by name, as they describe it; at most a second old."""
        return await self._functions.get(None, self._read_functions)

    async def _read_functions(self) -> list[FunctionRecord]:
        sets = await self._store.programs.list_functions(alive_for=FUNCTIONS_ALIVE_FOR)
        return newest_functions(sets)
