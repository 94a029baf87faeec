"""The figures of the installation as gauges, read when somebody looks at them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from gnomon.contracts.clock import Clock
from gnomon.contracts.observer import Observer
from gnomon.contracts.store import InstallationFigures, Store
from gnomon.contracts.store.figures import ALIVE_FOR, COUNT_MAX
from gnomon.model.errors import Unavailable

FRESH_S = 10.0  # so long they are shown again: several scrapers cost no more than one
PATIENCE_S = 5.0  # less than a scraper has

Series = tuple[str, tuple[tuple[str, str], ...]]


def reader_of(store: Store) -> Callable[[], Awaitable[InstallationFigures]]:
    """How to read them from a store."""
    return lambda: store.installation.figures(limit=COUNT_MAX, alive_for=ALIVE_FOR)


class FiguresTeller:
    """Keeps the gauges of the installation fresh. If the database does not answer, they stay as
    they are, and their age says so."""

    def __init__(
        self,
        read: Callable[[], Awaitable[InstallationFigures]],
        observer: Observer,
        clock: Clock,
    ) -> None:
        self._read = read
        self._observer = observer
        self._clock = clock
        self._read_at: float | None = None
        self._reading = asyncio.Lock()
        self._shown: set[Series] = set()

    async def refresh(self) -> None:
        """Read them again, unless they are fresh."""
        async with self._reading:
            if self._read_at is None or self._clock.monotonic() - self._read_at > FRESH_S:
                await self._read_again()
        since = self._read_at
        age_s = -1.0 if since is None else self._clock.monotonic() - since
        self._observer.gauge("figures_age_seconds", age_s)

    async def _read_again(self) -> None:
        try:
            figures = await asyncio.wait_for(self._read(), PATIENCE_S)
        except (Unavailable, TimeoutError):
            self._observer.count("store_errors", operation="figures")
            return
        self._read_at = self._clock.monotonic()
        self._show(figures)

    def _show(self, figures: InstallationFigures) -> None:
        present = dict(_series_of(figures))
        for name, labels in self._shown - present.keys():  # what is gone is nought, not unknown
            self._observer.gauge(name, 0.0, **dict(labels))
        for (name, labels), value in present.items():
            self._observer.gauge(name, value, **dict(labels))
        self._shown = set(present)


def _series_of(figures: InstallationFigures) -> list[tuple[Series, float]]:
    series: list[tuple[Series, float]] = [
        (("workers_alive", ()), figures.workers_alive),
        (("shards", ()), figures.shards),
        (("shards_unowned", ()), figures.shards_unowned),
        (("figures_limit", ()), figures.limit),
        (("figures_partial", ()), float(figures.partial)),
    ]
    for queue in figures.queues:
        label = (("queue", queue.queue),)
        series += [
            (("actions_waiting", label), queue.waiting),
            (("actions_overdue", label), queue.overdue),
            (("actions_overdue_seconds", label), queue.overdue_for.total_seconds()),
            (("actions_running", label), queue.running),
            (("actions_dead", label), queue.dead),
        ]
    for stage in figures.stages:
        label = (("stage", stage.stage),)
        series += [
            (("stage_overdue", label), stage.overdue),
            (("stage_overdue_seconds", label), stage.overdue_for.total_seconds()),
            (("stage_parked", label), stage.parked),
        ]
    return series
