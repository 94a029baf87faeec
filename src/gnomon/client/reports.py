"""Reports over HTTP: the verbs of `gnomon.scheduler.reports.Reports`."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from gnomon.client.entities import Send
from gnomon.contracts.store import InstallationFigures
from gnomon.model.duration import format_duration
from gnomon.model.function import FunctionRecord
from gnomon.model.load import LoadUnit
from gnomon.scheduler.attempt_history import History
from gnomon.scheduler.failure_groups import FailureReport
from gnomon.scheduler.load_report import LoadReport


class _FunctionsAnswer(msgspec.Struct):
    functions: list[FunctionRecord]


class ReportClient:
    """How it goes, how it went, what failed, what will be due."""

    def __init__(self, call: Send) -> None:
        self._call = call

    async def figures(self) -> InstallationFigures:
        """How much waits, is overdue, runs and has died; at most a second old."""
        return await self._call("GET", "/v1/figures", InstallationFigures)

    async def failures(self, *, queue: str | None = None, limit: int = 50) -> FailureReport:
        """Dead and failing actions by what failed, the largest groups first."""
        query = [("limit", str(limit))]
        if queue is not None:
            query.append(("queue", queue))
        return await self._call("GET", "/v1/failures", FailureReport, query=query)

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
        given = {
            "from": None if since is None else since.isoformat(),
            "to": None if until is None else until.isoformat(),
            "step": None if step is None else format_duration(step),
            "queue": queue,
        }
        query = [(name, value) for name, value in given.items() if value is not None]
        return await self._call("GET", "/v1/history", History, query=query)

    async def load(
        self,
        *,
        since: datetime | None = None,
        unit: LoadUnit = LoadUnit.MINUTE,
        count: int = 60,
    ) -> LoadReport:
        """How much will be due in each second, minute, hour or day from now or a moment on, and
        herds in it."""
        query = [("unit", str(unit)), ("count", str(count))]
        if since is not None:
            query.append(("from", since.isoformat()))
        return await self._call("GET", "/v1/load", LoadReport, query=query)

    async def functions(self) -> list[FunctionRecord]:
        """What living programs serve, by name, as they describe it."""
        return (await self._call("GET", "/v1/functions", _FunctionsAnswer)).functions
