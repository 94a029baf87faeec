"""The figures of the task tables as gauges, read when somebody looks at them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime

from gnomon.contracts.clock import Clock
from gnomon.contracts.observer import Observer
from gnomon.contracts.status import TaskTableStatus
from gnomon.contracts.task_rows import TaskRows
from gnomon.gateways.overview import table_statuses
from gnomon.model.errors import Unavailable

FRESH_S = 10.0  # so long they are shown again: several scrapers cost no more than one


class TaskGauges:
    """Keeps the gauges of task tables fresh. One that does not answer keeps what it had."""

    def __init__(
        self,
        tables: Mapping[str, TaskRows],
        observer: Observer,
        clock: Clock,
        *,
        now: Callable[[], Awaitable[datetime]],  # the database's
    ) -> None:
        self._tables = tables
        self._observer = observer
        self._clock = clock
        self._now = now
        self._fresh_until = 0.0
        self._reading = asyncio.Lock()

    async def refresh(self) -> None:
        """Read them again, unless they are fresh."""
        async with self._reading:
            if self._tables and self._clock.monotonic() >= self._fresh_until:
                await self._read_again()

    async def _read_again(self) -> None:
        try:
            statuses = await table_statuses(self._tables, await self._now())
        except Unavailable:
            return  # the figures of the installation tell of it
        self._fresh_until = self._clock.monotonic() + FRESH_S
        for status in statuses:
            if status.problem is None:
                self._show(status)
            else:
                self._observer.count("store_errors", operation="task_tables")

    def _show(self, status: TaskTableStatus) -> None:
        overdue_s = status.overdue_for.total_seconds()
        self._observer.gauge("task_table_waiting", status.waiting, table=status.table)
        self._observer.gauge("task_table_overdue", status.overdue, table=status.table)
        self._observer.gauge("task_table_overdue_seconds", overdue_s, table=status.table)
        self._observer.gauge("task_table_running", status.running, table=status.table)
        self._observer.gauge("task_table_failed", status.failed, table=status.table)
