"""Metrics for Prometheus: the table of all names, and the observer that feeds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from gnomon.model.errors import BugError

PREFIX = "gnomon_"
LABEL_SETS_MAX = 500  # users name queues: beyond this many, the rest is counted together
OTHER = "(other)"

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
SIZES = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0)


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the table: the name that the core uses, and what it means."""

    name: str
    kind: Literal["counter", "histogram", "gauge"]
    meaning: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def exported_name(self) -> str:
        """As it is scraped."""
        return f"{PREFIX}{self.name}" + ("_total" if self.kind == "counter" else "")


METRICS: tuple[Metric, ...] = (
    Metric("attempts_begun", "counter", "Attempts begun.", ("queue",)),
    Metric("attempts_ended", "counter", "Attempts ended, by outcome.", ("queue", "outcome")),
    Metric(
        "attempts_abandoned", "counter", "Attempts begun but not sent: it was too late to dare it."
    ),
    Metric(
        "results", "counter", "Results written: applied, repeated or late.", ("recorded",)
    ),
    Metric("actions_moved", "counter", "Actions moved from the incoming to the processing queue."),
    Metric("store_errors", "counter", "Store calls that failed, by operation.", ("operation",)),
    Metric("leases_lost", "counter", "Shards that this worker held and lost."),
    Metric("leases_stolen", "counter", "Shards taken over from a silent worker."),
    Metric("helper_begun", "counter", "Overdue attempts begun in shards whose owner was silent."),
    Metric(
        "lateness_seconds", "histogram", "From the due time of an attempt to its beginning.",
        ("queue",), SECONDS,
    ),
    Metric(
        "attempt_seconds", "histogram", "How long attempts took in the executor.",
        ("queue",), SECONDS,
    ),
    Metric("begin_batch", "histogram", "Attempts begun in one transaction.", (), SIZES),
    Metric("finish_batch", "histogram", "Results written in one transaction.", (), SIZES),
    Metric("shards_held", "gauge", "Shards that this worker holds."),
    Metric("attempts_running", "gauge", "Attempts that are being executed.", ("queue",)),
    Metric("event_loop_lag_seconds", "gauge", "How late the event loop woke up at the last look."),
)  # fmt: skip

_Series = Counter | Histogram | Gauge


class Metrics:
    """The observer that counts; events are not for it."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._table = {metric.name: metric for metric in METRICS}
        self._parents = {metric.name: self._register(metric) for metric in METRICS}
        self._series: dict[tuple[str | tuple[str, str], ...], _Series] = {}
        self._series_counts: dict[str, int] = {}

    def event(self, name: str, /, **fields: object) -> None: ...

    def count(self, name: str, value: int = 1, /, **labels: str) -> None:
        series = self._find(name, labels)
        if not isinstance(series, Counter):
            raise BugError(f"the metric {name} is not a counter")
        series.inc(value)

    def observe(self, name: str, value: float, /, **labels: str) -> None:
        series = self._find(name, labels)
        if not isinstance(series, Histogram):
            raise BugError(f"the metric {name} is not a histogram")
        series.observe(value)

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        series = self._find(name, labels)
        if not isinstance(series, Gauge):
            raise BugError(f"the metric {name} is not a gauge")
        series.set(value)

    def render(self) -> bytes:
        """All of them, as Prometheus reads them."""
        return generate_latest(self._registry)

    def _find(self, name: str, labels: dict[str, str]) -> _Series:
        found = self._series.get((name, *labels.items()))
        return found if found is not None else self._add(name, labels)

    def _add(self, name: str, labels: dict[str, str]) -> _Series:
        metric = self._table.get(name)
        if metric is None or tuple(sorted(labels)) != tuple(sorted(metric.labels)):
            raise BugError(f"there is no metric {name} with the labels {sorted(labels)}")
        parent = self._parents[name]
        count = self._series_counts.get(name, 0)
        if count >= LABEL_SETS_MAX:
            return parent.labels(**dict.fromkeys(labels, OTHER))
        self._series_counts[name] = count + 1
        series = parent.labels(**labels) if labels else parent
        self._series[(name, *labels.items())] = series
        return series

    def _register(self, metric: Metric) -> _Series:
        name, registry = PREFIX + metric.name, self._registry
        match metric.kind:
            case "counter":
                return Counter(name, metric.meaning, metric.labels, registry=registry)
            case "gauge":
                return Gauge(name, metric.meaning, metric.labels, registry=registry)
            case "histogram":
                return Histogram(
                    name, metric.meaning, metric.labels, registry=registry, buckets=metric.buckets
                )


def metrics_page() -> str:
    """docs/reference/metrics.md."""
    lines = [
        "# Metrics",
        "",
        "<!-- Generated by gnomon.telemetry.metrics.metrics_page; see `make docs`. -->",
        "",
        "`GET /metrics` answers in the Prometheus text format. A user's queue name is a label;",
        f"beyond {LABEL_SETS_MAX} of them the rest is counted together as `{OTHER}`.",
        "",
        "| name | kind | labels | meaning |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| `{metric.exported_name}` | {metric.kind} | "
        f"{', '.join(f'`{label}`' for label in metric.labels)} | {metric.meaning} |"
        for metric in METRICS
    ]
    return "\n".join(lines) + "\n"
