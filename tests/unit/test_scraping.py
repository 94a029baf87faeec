"""What Prometheus reads: figures of the installation, several processes as one, the listener."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gnomon.config import MetricsConfig
from gnomon.contracts.store import InstallationFigures, QueueFigures, StageFigures
from gnomon.gateways.metrics import HEAD_BYTES_MAX, MetricsListener, bind_metrics
from gnomon.model.errors import ConfigurationError, StoreUnavailable
from gnomon.telemetry.figures import FRESH_S, FiguresTeller
from gnomon.telemetry.metrics import METRICS, Metrics
from gnomon.telemetry.page import ChildMetrics, MetricsPage, tell_parent
from gnomon.telemetry.total import join_metrics
from tests.unit.worker.surroundings import HandClock

MAIL = QueueFigures(
    queue="mail", waiting=7, overdue=3, running=2, dead=1, overdue_for=timedelta(seconds=90)
)
LOOK = StageFigures(stage="look", overdue=4, parked=5, overdue_for=timedelta(seconds=8))


def figures(*queues: QueueFigures) -> InstallationFigures:
    return InstallationFigures(
        at=datetime(2026, 1, 1, tzinfo=UTC), limit=10_000, queues=queues, stages=[LOOK],
        workers_alive=3, shards=64, shards_unowned=2, partial=True,
    )  # fmt: skip


def value_of(page: bytes, series: str) -> float | None:
    found = re.search(rf"^gnomon_{re.escape(series)} (\S+)$", page.decode(), re.MULTILINE)
    return None if found is None else float(found[1])


class Figures:
    """A store that answers, or does not."""

    def __init__(self) -> None:
        self.answer: InstallationFigures | None = figures(MAIL)
        self.reads = 0

    async def read(self) -> InstallationFigures:
        self.reads += 1
        if self.answer is None:
            raise StoreUnavailable("away")
        return self.answer


# -- figures --


async def test_the_figures_are_gauges() -> None:
    """By queue and by stage; all of those that the reference names."""
    metrics, clock = Metrics(), HandClock()
    await FiguresTeller(Figures().read, metrics, clock).refresh()
    page = metrics.render()
    wanted = {
        'actions_waiting{queue="mail"}': 7.0, 'actions_overdue{queue="mail"}': 3.0,
        'actions_overdue_seconds{queue="mail"}': 90.0, 'actions_running{queue="mail"}': 2.0,
        'actions_dead{queue="mail"}': 1.0, 'stage_overdue{stage="look"}': 4.0,
        'stage_overdue_seconds{stage="look"}': 8.0, 'stage_parked{stage="look"}': 5.0,
        "workers_alive": 3.0, "shards": 64.0, "shards_unowned": 2.0, "figures_partial": 1.0,
        "figures_limit": 10_000.0,
        "figures_age_seconds": 0.0,
    }  # fmt: skip
    assert wanted == {series: value_of(page, series) for series in wanted}


async def test_figures_are_read_once_for_many_scrapers() -> None:
    """And again when they are old."""
    store, clock = Figures(), HandClock()
    teller = FiguresTeller(store.read, Metrics(), clock)
    await asyncio.gather(*(teller.refresh() for _ in range(5)))
    assert 1 == store.reads
    clock.seconds += FRESH_S + 1
    await teller.refresh()
    assert 2 == store.reads


async def test_a_queue_that_is_empty_again_is_nought() -> None:
    """An alarm on it ends."""
    store, clock, metrics = Figures(), HandClock(), Metrics()
    teller = FiguresTeller(store.read, metrics, clock)
    await teller.refresh()
    store.answer = figures()
    clock.seconds += FRESH_S + 1
    await teller.refresh()
    assert 0.0 == value_of(metrics.render(), 'actions_overdue{queue="mail"}')


async def test_a_database_that_is_away_makes_figures_old_and_no_error() -> None:
    """Their age says so; before the first answer it is -1."""
    store, clock, metrics = Figures(), HandClock(), Metrics()
    store.answer, known = None, store.answer
    teller = FiguresTeller(store.read, metrics, clock)
    await teller.refresh()
    assert -1.0 == value_of(metrics.render(), "figures_age_seconds")
    store.answer = known
    await teller.refresh()
    store.answer = None
    clock.seconds += 300.0
    await teller.refresh()
    page = metrics.render()
    assert 300.0 == value_of(page, "figures_age_seconds")
    assert 3.0 == value_of(page, 'actions_overdue{queue="mail"}')


# -- several processes --


def counted(attempts: int, *, lag_s: float = 0.0, held: int = 0) -> Metrics:
    metrics = Metrics()
    metrics.count("attempts_begun", attempts, queue="mail")
    metrics.observe("lateness_seconds", 0.2, queue="mail")
    metrics.gauge("event_loop_lag_seconds", lag_s)
    metrics.gauge("shards_held", held)
    return metrics


def test_processes_are_added_up() -> None:
    """Counters, histograms and gauges; of what is no amount the highest counts."""
    page = join_metrics([counted(3, lag_s=0.5, held=10).render(), counted(4, held=11).render()])
    assert 7.0 == value_of(page, 'attempts_begun_total{queue="mail"}')
    assert 2.0 == value_of(page, 'lateness_seconds_count{queue="mail"}')
    assert 2.0 == value_of(page, 'lateness_seconds_bucket{le="0.25",queue="mail"}')
    assert 21.0 == value_of(page, "shards_held")
    assert 0.5 == value_of(page, "event_loop_lag_seconds")
    assert join_metrics([page]) == page


def test_what_is_of_the_installation_is_not_added_up() -> None:
    """Each process would tell the same."""
    of_all = [metric for metric in METRICS if metric.of == "installation"]
    assert of_all
    assert {"max"} == {metric.joined for metric in of_all}


async def test_what_a_process_counted_stays_when_it_is_started_anew(tmp_path: Path) -> None:
    """Its gauges do not; nor does a child that is away fail the page."""
    path = tmp_path / "0.sock"
    page = MetricsPage(Metrics(), children=[ChildMetrics(path)])
    assert value_of(await page.render(), 'attempts_begun_total{queue="mail"}') is None
    seen = b""
    for lives, attempts in enumerate((3, 4), start=1):
        async with told_by(path, counted(attempts, held=10), life=str(lives)):
            seen = await page.render()
        assert 10.0 == value_of(seen, "shards_held")
    assert 7.0 == value_of(seen, 'attempts_begun_total{queue="mail"}')
    left = await page.render()
    assert 7.0 == value_of(left, 'attempts_begun_total{queue="mail"}')
    assert 0.0 == value_of(left, "shards_held")


@asynccontextmanager
async def told_by(path: Path, metrics: Metrics, *, life: str) -> AsyncIterator[None]:
    """A child process that lives here: only its number is another's."""
    stop = asyncio.Event()
    telling = asyncio.create_task(tell_parent(path, MetricsPage(metrics), stop))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "getpid", lambda: int(life))
        while not path.exists():
            await asyncio.sleep(0)
        yield
    stop.set()
    await telling
    path.unlink(missing_ok=True)


# -- the listener --


@asynccontextmanager
async def listening(config: MetricsConfig) -> AsyncIterator[int]:
    taken = bind_metrics(config)
    assert taken is not None
    port = int(taken.getsockname()[1])
    stop = asyncio.Event()
    listener = MetricsListener(taken, MetricsPage(counted(3)), config)
    assert f"http://127.0.0.1:{port}/metrics" == listener.url
    serving = asyncio.create_task(listener.serve(stop))
    yield port
    stop.set()
    await serving


async def asked(port: int, request: str) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request.encode())
    answer = (await reader.read()).decode()
    writer.close()
    return answer


GET = "GET /metrics HTTP/1.1\r\nHost: x\r\n"


async def test_the_listener_answers_for_metrics_and_nothing_else() -> None:
    """Whatever is sent, it goes on."""
    async with listening(MetricsConfig(listen="127.0.0.1:0")) as port:
        page = await asked(port, f"{GET}\r\n")
        assert page.startswith("HTTP/1.1 200 OK\r\n")
        assert 'gnomon_attempts_begun_total{queue="mail"} 3.0' in page
        assert " 404 " in await asked(port, "GET /v1/actions HTTP/1.1\r\n\r\n")
        assert " 405 " in await asked(port, "POST /metrics HTTP/1.1\r\n\r\n")
        assert " 400 " in await asked(port, "hello\r\n\r\n")
        assert "" == await asked(port, "GET /" + "x" * (2 * HEAD_BYTES_MAX) + "\r\n\r\n")
        assert (await asked(port, f"{GET}\r\n")).startswith("HTTP/1.1 200 OK\r\n")


async def test_with_a_token_only_who_knows_it_is_answered(tmp_path: Path) -> None:
    """It is read from a file."""
    (tmp_path / "token").write_text("s3cret\n")
    config = MetricsConfig(listen="127.0.0.1:0", token_file=str(tmp_path / "token"))
    async with listening(config) as port:
        assert " 401 " in await asked(port, f"{GET}\r\n")
        assert " 401 " in await asked(port, f"{GET}Authorization: Bearer wrong\r\n\r\n")
        assert " 200 " in await asked(port, f"{GET}Authorization: Bearer s3cret\r\n\r\n")


@pytest.mark.parametrize(
    ("listen", "words"),
    [
        ("9321", "write HOST:PORT, 127.0.0.1:9321"),
        (":9321", "write HOST:PORT"),
        ("127.0.0.1:http", "write HOST:PORT"),
        ("127.0.0.1:70000", "write HOST:PORT"),
        ("0.0.0.0:9321", "not a loopback address: name a metrics.token_file, or set"),
        ("[::]:9321", "not a loopback address"),
        ("db.example.org:9321", "not a loopback address"),
    ],
)
def test_an_address_that_is_wrong_or_open_is_refused(listen: str, words: str) -> None:
    """Nobody listens off loopback by accident."""
    with pytest.raises(ConfigurationError, match=re.escape(words)):
        MetricsConfig(listen=listen)


def test_off_loopback_by_a_token_or_by_saying_so() -> None:
    """And a token that cannot be read is told at the start."""
    assert ("0.0.0.0", 9321) == MetricsConfig(listen="0.0.0.0:9321", open=True).address
    assert ("::1", 9321) == MetricsConfig(listen="[::1]:9321").address
    config = MetricsConfig(listen="0.0.0.0:0", token_file="nowhere")
    taken = bind_metrics(config)
    assert taken is not None
    with taken, pytest.raises(ConfigurationError, match="nowhere cannot be read"):
        MetricsListener(taken, MetricsPage(Metrics()), config)


def test_a_port_that_is_taken_is_told() -> None:
    """With what to do."""
    taken = bind_metrics(MetricsConfig(listen="127.0.0.1:0"))
    assert taken is not None
    with taken, pytest.raises(ConfigurationError, match="choose another"):
        bind_metrics(MetricsConfig(listen=f"127.0.0.1:{taken.getsockname()[1]}"))
