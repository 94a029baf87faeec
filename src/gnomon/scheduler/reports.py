"""Reports for people and pages: how it goes, how it went, what failed, what will be due."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from gnomon.contracts.clock import Clock
from gnomon.contracts.store import InstallationFigures, Store
from gnomon.contracts.store.figures import COUNT_MAX
from gnomon.model.errors import InvalidRequest
from gnomon.model.function import FunctionRecord, newest_functions
from gnomon.model.load import LoadUnit
from gnomon.scheduler.attempt_history import BOUNDS, History, points_of, span_of
from gnomon.scheduler.failure_groups import FailureReport, group_failures
from gnomon.scheduler.load_report import LoadReport, read_load

ALIVE_FOR = timedelta(seconds=30)
FUNCTIONS_ALIVE_FOR = timedelta(minutes=1)  # they are published every 15 s
FRESH_FOR_S = 1.0  # however many look at a page, the store is asked once a second
FAILURES_LOOKED_AT = 1_000
GROUPS_MAX = 200
HISTORY_ROWS_MAX = 50_000


class Reports:
    """What is shown and never decided by; each verb costs the store a bounded number of rows."""

    def __init__(self, store: Store, *, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._turn = asyncio.Lock()
        self._figures: InstallationFigures | None = None
        self._asked_at = 0.0
        self._functions: list[FunctionRecord] | None = None
        self._functions_at = 0.0

    async def figures(self) -> InstallationFigures:
        """How much waits, is overdue, runs and has died; at most a second old."""
        async with self._turn:
            age_s = self._clock.monotonic() - self._asked_at
            if self._figures is None or age_s >= FRESH_FOR_S:
                self._figures = await self._store.installation.figures(
                    limit=COUNT_MAX, alive_for=ALIVE_FOR
                )
                self._asked_at = self._clock.monotonic()
            return self._figures

    async def failures(self, *, queue: str | None = None, limit: int = 50) -> FailureReport:
        """Dead and failing actions by what failed, the largest groups first."""
        if not 1 <= limit <= GROUPS_MAX:
            raise InvalidRequest(f"limit: must be between 1 and {GROUPS_MAX} (got {limit})")
        failed = await self._store.reports.failures(queue=queue, limit=FAILURES_LOOKED_AT)
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
        herds in it."""
        start = await self._store.installation.now() if since is None else since
        return await read_load(self._store.reports, start, unit, count)

    async def functions(self) -> list[FunctionRecord]:
        """What living programs serve, by name, as they describe it."""
        now = self._clock.monotonic()
        if self._functions is None or now - self._functions_at >= FRESH_FOR_S:
            sets = await self._store.programs.list_functions(alive_for=FUNCTIONS_ALIVE_FOR)
            self._functions, self._functions_at = newest_functions(sets), now
        return self._functions
