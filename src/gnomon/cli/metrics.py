"""What a lasting command does for those who scrape it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnomon.cli.output import say
from gnomon.cli.process import Telemetry
from gnomon.clock import SystemClock
from gnomon.config import Settings
from gnomon.contracts.store import Store
from gnomon.extras import require

if TYPE_CHECKING:
    from gnomon.telemetry.page import MetricsPage  # its library loads long


def page_of(telemetry: Telemetry, store: Store | None, sockets: Sequence[Path] = ()) -> MetricsPage:
    """The metrics of this process and of its children; with a store, those of the installation."""
    from gnomon.telemetry.page import ChildMetrics, MetricsPage

    assert telemetry.metrics is not None, "their extra was required"
    children = [ChildMetrics(path) for path in sockets]
    if store is None:
        return MetricsPage(telemetry.metrics, children=children)
    from gnomon.telemetry.figures import FiguresTeller, reader_of

    teller = FiguresTeller(reader_of(store), telemetry.metrics, SystemClock())
    return MetricsPage(telemetry.metrics, refresh=teller.refresh, children=children)


def require_scraping(settings: Settings) -> None:
    """Errors: MissingExtra, before anything is opened."""
    if settings.metrics.listen is not None:
        require("metrics")


def scraped(
    settings: Settings,
    telemetry: Telemetry,
    store: Store | None,
    stop: asyncio.Event,
    sockets: Sequence[Path] = (),
) -> list[Coroutine[Any, Any, None]]:
    """What a command without a server does for it: nothing, if nobody wants to."""
    if settings.metrics.listen is None:
        return []
    return listening(settings, page_of(telemetry, store, sockets), stop)


def listening(
    settings: Settings, page: MetricsPage, stop: asyncio.Event
) -> list[Coroutine[Any, Any, None]]:
    """The listener of `--metrics` as a part of the process; none, if none is wanted."""
    from gnomon.gateways.metrics import MetricsListener, bind_metrics

    taken = bind_metrics(settings.metrics)
    if taken is None:
        return []
    listener = MetricsListener(taken, page, settings.metrics)
    say(f"metrics on {listener.url}")
    return [listener.serve(stop)]


def telling(path: Path, telemetry: Telemetry, stop: asyncio.Event) -> Coroutine[Any, Any, None]:
    """A worker process tells the one that started it."""
    from gnomon.telemetry.page import tell_parent

    return tell_parent(path, page_of(telemetry, None), stop)


@contextmanager
def sockets_for(count: int) -> Iterator[list[Path]]:
    """A place for each child to tell its metrics, that nobody else can reach."""
    with tempfile.TemporaryDirectory(prefix="gnomon-") as folder:
        yield [Path(folder) / f"{number}.sock" for number in range(count)]
