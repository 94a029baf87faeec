"""Metrics for Prometheus: the table of all names, and the observer that feeds them.

A name that is not in the table is a slip of the programmer, found by a test that reads the
source. In production it is counted under `unknown_metrics` and nothing else: an observer never
raises, least of all in the middle of a transaction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from gnomon.contracts.observer import SilentObserver
from gnomon.telemetry.histogram import Histogram, HistogramFamily

PREFIX = "gnomon_"
LABEL_SETS_MAX = 500  # users name queues: beyond this many, the rest is counted together
OTHER = "(other)"
LAG = "event_loop_lag_seconds"  # of several processes the worst counts

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
BYTES = (0.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0)
SIZES = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0)


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the table: the name that the core uses, and what it means."""

    name: str
    kind: Literal["counter", "histogram", "gauge"]
    meaning: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    joined: Literal["sum", "max"] = "sum"  # of several processes of one machine

    @property
    def of(self) -> str:
        """Whom it tells about."""
        return "installation" if self.joined == "max" and self.name != LAG else "process"

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
        "attempts_armed",
        "counter",
        "Attempts begun ahead of their time, of bursts and single ones.",
        ("queue",),
    ),
    Metric(
        "attempts_disarmed", "counter",
        "Of those, handed back: the action was changed, or no slot was free in time.", ("queue",),
    ),
    Metric(
        "results",
        "counter",
        "Results: applied, repeated, late; or held, because a user's transaction is in the way.",
        ("recorded",),
    ),
    Metric("actions_moved", "counter", "Actions moved from the incoming to the processing queue."),
    Metric("store_errors", "counter", "Store calls that failed, by operation.", ("operation",)),
    Metric("worker_bugs", "counter", "Rounds of a loop that raised; any is a bug.", ("loop",)),
    Metric("doctor_findings", "counter", "Broken invariants; any is a bug.", ("rule",)),
    Metric("leases_lost", "counter", "Shards that this worker held and lost."),
    Metric("leases_stolen", "counter", "Shards taken over from a silent worker."),
    Metric("helper_begun", "counter", "Overdue attempts begun in shards whose owner was silent."),
    Metric("pauses_ended", "counter", "Paused actions that went on by themselves, at their end."),
    Metric("guest_begun", "counter", "Attempts begun in shards whose owner does not serve them."),
    Metric(
        "lateness_seconds", "histogram",
        "From the due time of an attempt to the call of its executor.",
        ("queue",), SECONDS,
    ),
    Metric(
        "attempt_seconds", "histogram", "How long attempts took in the executor.",
        ("queue",), SECONDS,
    ),
    Metric(
        "reservations_outlived", "counter",
        "Attempts still in hand here whose reservation had run out: it was prolonged.",
    ),
    Metric("begin_batch", "histogram", "Attempts begun in one transaction.", (), SIZES),
    Metric("finish_batch", "histogram", "Results written in one transaction.", (), SIZES),
    Metric(
        "actions_unserved", "gauge", "Due actions whose function, target or queue nobody serves.",
        ("need",), joined="max",
    ),
    Metric(
        "actions_waiting", "gauge", "Actions whose time has not come, up to 10,000 of a queue.",
        ("queue",), joined="max",
    ),
    Metric(
        "actions_overdue", "gauge", "Actions that are due and not begun, up to 10,000 of a queue.",
        ("queue",), joined="max",
    ),
    Metric(
        "actions_overdue_seconds", "gauge",
        "How long the oldest overdue action has been due; 0 if there is none.",
        ("queue",), joined="max",
    ),
    Metric(
        "actions_running", "gauge", "Attempts under way in all workers.", ("queue",), joined="max"
    ),
    Metric(
        "actions_dead", "gauge", "Dead actions that are still kept, up to 10,000 of a queue.",
        ("queue",), joined="max",
    ),
    Metric(
        "stage_overdue", "gauge", "Entities that are ready for a stage and due, up to 10,000.",
        ("stage",), joined="max",
    ),
    Metric(
        "stage_overdue_seconds", "gauge", "How long the oldest of them has been due.",
        ("stage",), joined="max",
    ),
    Metric("stage_parked", "gauge", "Entities parked for a stage.", ("stage",), joined="max"),
    Metric("workers_alive", "gauge", "Workers with a sign of life in 30 s.", joined="max"),
    Metric("shards", "gauge", "Shards of the installation.", joined="max"),
    Metric(
        "shards_unowned", "gauge", "Shards without an owner, or with a silent one.", joined="max"
    ),
    Metric(
        "figures_age_seconds", "gauge",
        "How old the figures of the installation are; -1: they could not be read yet.",
        joined="max",
    ),
    Metric(
        "figures_limit", "gauge", "Where counts of the installation end, and mean: or more.",
        joined="max",
    ),
    Metric(
        "figures_partial", "gauge",
        "1 if there was more to look at than may be looked at: counts are too low.", joined="max",
    ),
    Metric("shards_held", "gauge", "Shards that this worker holds."),
    Metric("attempts_running", "gauge", "Attempts that are being executed.", ("queue",)),
    Metric(
        "limit_granted", "gauge", "Attempts that this worker may have under way by a limit.",
        ("kind", "name"),
    ),
    Metric(
        "limit_waiting", "gauge",
        "Attempts that wait for a limit here; of a queue, 1 if something due may not begin.",
        ("kind", "name"),
    ),
    Metric(
        "limit_handed_back", "counter", "Attempts put off because their target is at its limit.",
        ("name",),
    ),
    Metric(
        LAG, "gauge", "How late the event loop woke up at the last look.",
        joined="max",
    ),
    Metric(
        "event_loop_blocked", "counter",
        "Times that a function, an effect or a stage held the event loop for over a second.",
        ("by",),
    ),
    Metric("http_answer_bytes", "histogram", "Sizes of the answers to HTTP calls.", (), BYTES),
    Metric("store_group_verbs", "histogram", "SQLite: verbs in one transaction.", (), SIZES),
    Metric("store_group_seconds", "histogram", "SQLite: seconds of one transaction.", (), SECONDS),
    Metric("store_unavailable", "counter", "PostgreSQL did not answer a verb.", ("op",)),
    Metric(
        "tasks_finished", "counter", "SQL tasks ended, by state: DONE, FAIL or GONE.",
        ("table", "state"),
    ),
    Metric("tasks_rescued", "counter", "SQL tasks whose backend was gone, set back.", ("table",)),
    Metric("tasks_running", "gauge", "Sessions that perform SQL tasks.", ("table",)),
    Metric("tasks_waiting", "gauge", "Due SQL tasks that the owner knows of.", ("table",)),
    Metric(
        "task_table_waiting", "gauge", "SQL tasks whose plan has not come, up to 500.", ("table",),
        joined="max",
    ),
    Metric(
        "task_table_overdue", "gauge", "SQL tasks that are due and wait, up to 500.", ("table",),
        joined="max",
    ),
    Metric(
        "task_table_overdue_seconds", "gauge",
        "How long the oldest of them has been due; 0 if there is none.", ("table",), joined="max",
    ),
    Metric(
        "task_table_running", "gauge", "SQL tasks that are performed, up to 500.", ("table",),
        joined="max",
    ),
    Metric(
        "task_table_failed", "gauge", "SQL tasks that failed and are still there, up to 500.",
        ("table",), joined="max",
    ),
    Metric(
        "task_lateness_seconds", "histogram", "From the plan of a SQL task to its start.",
        ("table",), SECONDS,
    ),
    Metric("stage_asks", "counter", "`should_process` of a stage, by answer.", ("stage", "answer")),
    Metric("stage_runs", "counter", "Calls of a stage, by their end.", ("stage", "outcome")),
    Metric("stage_call_seconds", "histogram", "How long a call took.", ("stage",), SECONDS),
    Metric("stage_conflicts", "counter", "Entities that changed meanwhile.", ("stage", "solved")),
    Metric("stage_loops", "counter", "Wake-ups parked as a loop, with their proof.", ("stage",)),
    Metric("stage_timers", "counter", "Timers of stages that fired."),
    Metric(
        "stages_unserved", "gauge", "Stages of the register that no worker serves.", joined="max"
    ),
    Metric("stage_bugs", "counter", "Calls that ended in a way nobody expected.", ("stage",)),
    Metric("outbox_sent", "counter", "Saved versions that arrived.", ("sink",)),
    Metric("outbox_put_off", "counter", "Saved versions to be sent again.", ("sink",)),
    Metric(
        "outbox_quarantined", "counter",
        "Saved versions that an `after_save` did not take: for a person.", ("sink",),
    ),
    Metric(
        "outbox_age_seconds", "gauge",
        "Age of the oldest saved version that has not arrived; 0 if there is none.", ("sink",),
        joined="max",
    ),
    Metric(
        "background_held", "gauge",
        "1 while backfills and the background lane wait for the outbox.", joined="max",
    ),
    Metric("python_threads_stuck", "gauge", "Threads whose function outlived its attempt."),
    Metric("unknown_metrics", "counter", "A metric that nobody declared: a slip.", ("name",)),
)  # fmt: skip

UNKNOWN = "unknown_metrics"

_Series = Counter | Histogram | Gauge


class Metrics(SilentObserver):
    """The observer that counts; events are not for it."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._table = {metric.name: metric for metric in METRICS}
        self._parents = {metric.name: self._register(metric) for metric in METRICS}
        self._series: dict[tuple[str | tuple[str, str], ...], _Series] = {}
        self._series_counts: dict[str, int] = {}

    def count(self, name: str, value: int = 1, /, **labels: str) -> None:
        series = self._find(name, labels)
        if isinstance(series, Counter):
            series.inc(value)
        else:
            self._note_unknown(name)

    def observe(self, name: str, value: float, /, **labels: str) -> None:
        series = self._find(name, labels)
        if isinstance(series, Histogram):
            series.observe(value)
        else:
            self._note_unknown(name)

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        series = self._find(name, labels)
        if isinstance(series, Gauge):
            series.set(value)
        else:
            self._note_unknown(name)

    def render(self) -> bytes:
        """All of them, as Prometheus reads them."""
        return generate_latest(self._registry)

    def _note_unknown(self, name: str) -> None:
        series = self._find(UNKNOWN, {"name": name})
        assert isinstance(series, Counter)
        series.inc()

    def _find(self, name: str, labels: dict[str, str]) -> _Series | None:
        series = self._series.get((name, *labels.items()))
        return series if series is not None else self._add(name, labels)

    def _add(self, name: str, labels: dict[str, str]) -> _Series | None:
        metric = self._table.get(name)
        if metric is None or sorted(labels) != sorted(metric.labels):
            return None
        parent = self._parents[name]
        count = self._series_counts.get(name, 0)
        if count >= LABEL_SETS_MAX:
            return parent.labels(**dict.fromkeys(labels, OTHER))
        self._series_counts[name] = count + 1
        series: _Series
        if isinstance(parent, HistogramFamily):
            series = parent.labels(**labels)
        else:
            series = parent.labels(**labels) if labels else parent
        self._series[(name, *labels.items())] = series
        return series

    def _register(self, metric: Metric) -> Counter | Gauge | HistogramFamily:
        name, registry = PREFIX + metric.name, self._registry
        match metric.kind:
            case "counter":
                return Counter(name, metric.meaning, metric.labels, registry=registry)
            case "gauge":
                return Gauge(name, metric.meaning, metric.labels, registry=registry)
            case "histogram":
                family = HistogramFamily(name, metric.meaning, metric.labels, metric.buckets)
                registry.register(family)
                return family


def metrics_page() -> str:
    """docs/reference/metrics.md."""
    lines = [
        "# Metrics",
        "",
        "<!-- Generated by gnomon.telemetry.metrics.metrics_page; see `make docs`. -->",
        "",
        "`GET /metrics` of the server answers in the Prometheus text format, and so does the",
        "listener of `--metrics 127.0.0.1:9321` (`gnomon worker`, `up`, `server`, `tasks`), which",
        "adds the processes of `--processes` up. A user's queue name is a label;",
        f"beyond {LABEL_SETS_MAX} of them the rest is counted together as `{OTHER}`.",
        "",
        "Gauges of the *installation* are the same wherever they are scraped: take `max`, never",
        "`sum`. They are read when somebody looks, at most every 10 seconds, by steps from lane to",
        "lane in the indexes; counts end at `gnomon_figures_limit` (10,000 of a queue, 1,000 if",
        "there are many queues) and then mean *or more*. See [alerts](../operate/alerts.md).",
        "",
        "| name | kind | labels | of | meaning |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| `{metric.exported_name}` | {metric.kind} | "
        f"{', '.join(f'`{label}`' for label in metric.labels)} | "
        f"{metric.of} | {metric.meaning} |"
        for metric in METRICS
    ]
    return "\n".join(lines) + "\n"
