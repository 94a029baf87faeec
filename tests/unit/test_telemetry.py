"""Log lines and metrics."""

from __future__ import annotations

import ast
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from gnomon.telemetry.config import LogConfig
from gnomon.telemetry.events import TEXT_CHARS_MAX, EventLog
from gnomon.telemetry.fanout import Fanout
from gnomon.telemetry.log import LineHandler, log_to
from gnomon.telemetry.metrics import LABEL_SETS_MAX, METRICS, OTHER, Metrics, metrics_page
from tests.unit.worker.surroundings import HandClock

ROOT = Path(__file__).parents[2]
KINDS = {"count": "counter", "observe": "histogram", "gauge": "gauge"}


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """As it was before, for whoever comes next."""
    root, ours = logging.getLogger(), logging.getLogger("gnomon")
    before = root.handlers[:], root.level, ours.level
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    ours.setLevel(before[2])


def logged_to(stream: io.StringIO, config: LogConfig | None = None) -> EventLog:
    """An observer whose lines a command would write there."""
    config = config or LogConfig()
    log_to(LineHandler(config, stream=stream), config)
    return EventLog(HandClock())


def test_events_are_json_lines() -> None:
    """One object a line: time, level, name and fields."""
    stream = io.StringIO()
    logged_to(stream).event("leases_lost", shard=3)
    (line,) = lines(stream)
    assert ("leases_lost", "warning", 3) == (line["event"], line["level"], line["shard"])
    assert str(line["at"]).endswith("Z")


def test_levels_are_filtered() -> None:
    stream = io.StringIO()
    log = logged_to(stream, LogConfig(level="warning"))
    log.event("something_ordinary")
    log.event("leases_lost")
    assert ["leases_lost"] == [line["event"] for line in lines(stream)]


@pytest.mark.parametrize("style", ["json", "console"])
@pytest.mark.parametrize("text", ["a\nb", "\x1b[31mred", "\u202eevil", "a\r\nevent=forged", "\x85"])
def test_text_of_users_cannot_forge_a_line(style: str, text: str) -> None:
    """Whatever it holds, an event is one line of printable characters."""
    stream = io.StringIO()
    logged_to(stream, LogConfig(style=style)).event("x", id=text)  # type: ignore[arg-type]
    (line,) = stream.getvalue().splitlines()
    assert line.isprintable()


@pytest.mark.parametrize("style", ["json", "console"])
def test_a_line_is_never_longer_than_it_may_be(style: str) -> None:
    """An error may quote an input of a hundred megabytes: nobody waits until it is escaped."""
    stream = io.StringIO()
    log = logged_to(stream, LogConfig(style=style))  # type: ignore[arg-type]
    log.event("lost", problem="x" * (TEXT_CHARS_MAX + 1))
    shown = "x" * TEXT_CHARS_MAX
    assert f"{shown}… ({TEXT_CHARS_MAX + 1} characters)" in as_written(stream.getvalue())


def as_written(line: str) -> str:
    return line.replace("\\u2026", "…")  # JSON has its own word for it


def test_exceptions_show_no_local_variables() -> None:
    stream = io.StringIO()
    try:
        secret = "can" + "ary"
        raise ValueError(len(secret))
    except ValueError as exc:
        logged_to(stream).event("request_failed", exc_info=exc)
    (line,) = lines(stream)
    assert "ValueError: 6" in str(line["exception"])
    assert "'canary'" not in stream.getvalue()


def test_libraries_warn_into_the_log() -> None:
    stream = io.StringIO()
    logged_to(stream)
    logging.getLogger("somelib").warning("careful %s", "now")
    logging.getLogger("somelib").info("chatter")
    (line,) = lines(stream)
    assert ("library_warning", "careful now") == (line["event"], line["message"])


def test_metrics_count() -> None:
    metrics = Metrics()
    both = Fanout(metrics, Metrics())
    both.count("attempts_ended", queue="q", outcome="failed")
    both.count("attempts_ended", 2, outcome="failed", queue="q")
    both.gauge("shards_held", 5)
    both.observe("lateness_seconds", 0.2, queue="q")
    text = metrics.render().decode()
    assert 'gnomon_attempts_ended_total{outcome="failed",queue="q"} 3.0' in text
    assert "gnomon_shards_held 5.0" in text
    assert 'gnomon_lateness_seconds_count{queue="q"} 1.0' in text


def test_undeclared_metrics_are_counted_and_raise_nothing() -> None:
    """An observer never raises: a wrong name, kind or label is counted as a slip."""
    metrics = Metrics()
    metrics.count("no_such_metric")
    metrics.gauge("attempts_begun", 5, queue="q")
    metrics.observe("lateness_seconds", 1.0, colour="red")
    text = metrics.render().decode()
    for name in ("no_such_metric", "attempts_begun", "lateness_seconds"):
        assert f'gnomon_unknown_metrics_total{{name="{name}"}} 1.0' in text


def test_users_cannot_flood_the_metrics() -> None:
    """Queue names are the users': beyond a number they are counted together."""
    metrics = Metrics()
    for number in range(LABEL_SETS_MAX + 50):
        metrics.count("attempts_begun", queue=f"q{number}")
    text = metrics.render().decode()
    assert f'gnomon_attempts_begun_total{{queue="{OTHER}"}} 50.0' in text
    assert f'"q{LABEL_SETS_MAX + 1}"' not in text


def observed() -> Iterator[tuple[str, tuple[str, str, tuple[str, ...]]]]:
    """Every metric that the source tells an observer: where, and kind, name, labels."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(
                    func=ast.Attribute(
                        attr="count" | "observe" | "gauge" as verb,
                        value=ast.Attribute(attr="observer" | "_observer"),
                    ),
                    args=[ast.Constant(value=str(name)), *_],
                    keywords=labels,
                ):
                    given = tuple(sorted(str(label.arg) for label in labels))
                    yield f"{path.name}:{node.lineno}", (KINDS[verb], name, given)


def test_every_metric_of_the_source_is_declared() -> None:
    """A name that is not in the table, or has another kind or other labels, is a slip."""
    declared = {(metric.kind, metric.name, tuple(sorted(metric.labels))) for metric in METRICS}
    found = list(observed())
    assert found
    assert [] == [(where, told) for where, told in found if told not in declared]


def test_reference_is_in_step() -> None:
    """docs/reference/metrics.md is the table."""
    page = ROOT / "docs" / "reference" / "metrics.md"
    assert metrics_page() == page.read_text(), "run `make docs`"
