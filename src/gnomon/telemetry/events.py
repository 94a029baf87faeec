"""Events become records of the standard `logging` tree, `gnomon.*`.

A library adds no handlers: where an application configures logging, its handlers get the records
(and so do Sentry and its kin); where it does not, Python itself writes warnings and errors to
standard error. The commands add one handler, see `gnomon.telemetry.log`.

However bad it gets, what is written is bounded: lines that repeat are counted after the first few
of a minute, and what fails because the database is away is one line at its start, one a minute, and
one at its end.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from gnomon.contracts.clock import Clock
from gnomon.contracts.observer import SilentObserver

ROOT = "gnomon"
LINES_MAX = 20  # of one kind in a window; the rest is counted
WINDOW_S = 60.0
LOOK_EVERY_S = 0.5
KINDS_MAX = 1_000  # users name functions and queues: beyond this many they are limited together
AWAY_EVERY_S = 60.0
QUIET_S = 20.0  # so long nothing fails for want of the database: it is back; more than a time-out
TEXT_CHARS_MAX = 10_000  # of one field: an error may quote a text of any length

ERROR, WARNING, INFO = logging.ERROR, logging.WARNING, logging.INFO
# What deserves another level than `info`. An event that is not named here is ordinary.
LEVELS: Mapping[str, int] = MappingProxyType(
    {
        "action_dead": ERROR,
        "action_undecidable": ERROR,
        "doctor_finding": ERROR,
        "event_loop_blocked": ERROR,
        "executor_raised": ERROR,
        "identity_mismatch": ERROR,
        "library_error": ERROR,
        "loop_failed": ERROR,
        "outbox_late": ERROR,
        "request_failed": ERROR,
        "result_dropped": ERROR,
        "stage_bug": ERROR,
        "task_broke_sessions": ERROR,
        "task_row_refused": ERROR,
        "task_table_refused": ERROR,
        "tasks_conf_refused": ERROR,
        "worker_bug": ERROR,
        "worker_crashed": ERROR,
        "actions_unserved": WARNING,
        "attempt_failed": WARNING,
        "attempt_lost": WARNING,
        "background_held": WARNING,
        "drain_timed_out": WARNING,
        "entity_held": WARNING,
        "frozen_sessions_ended": WARNING,
        "heartbeat_withheld": WARNING,
        "leases_lost": WARNING,
        "leases_stolen": WARNING,
        "library_warning": WARNING,
        "lines_left_out": WARNING,
        "outbox_away": WARNING,
        "outbox_quarantined": WARNING,
        "python.thread_stuck": WARNING,
        "relay_not_configured": WARNING,
        "result_held": WARNING,
        "stage_away": WARNING,
        "stage_quarantined": WARNING,
        "stages_unserved": WARNING,
        "store_away": WARNING,
        "store_back": WARNING,
        "store_checkpoint_failed": WARNING,
        "task_session_lost": WARNING,
        "task_session_unavailable": WARNING,
        "task_table_lost": WARNING,
        "task_table_unavailable": WARNING,
        "worker_buried": WARNING,
    }
)
# What fails because the store does not answer: told together as `store_away`.
AWAY = frozenset(
    {
        "backfill_failed",
        "finish_failed",
        "heartbeat_failed",
        "reconcile_failed",
        "relay_failed",
        "round_failed",
        "share_failed",
        "store_group_lost",
        "store_hint_lost",
        "store_listener_lost",
    }
)
BACK = "heartbeat_resumed"  # the store has answered again
# The fields by which lines of one event are told apart when they are counted.
KIND_FIELDS = ("effect", "loop", "stage", "table", "sink", "by", "library")
_AREAS: Mapping[str, str] = MappingProxyType(
    {
        "action": "actions",
        "actions": "actions",
        "attempt": "actions",
        "backfill": "stages",
        "background": "stages",
        "entity": "stages",
        "executor": "actions",
        "outbox": "stages",
        "reconcile": "stages",
        "relay": "stages",
        "request": "server",
        "result": "actions",
        "slow": "stages",
        "stage": "stages",
        "stages": "stages",
        "store": "store",
        "task": "tasks",
        "tasks": "tasks",
    }
)


def area_of(name: str) -> str:
    """Which logger below `gnomon` an event belongs to."""
    kind, dotted, _ = name.partition(".")
    return f"executors.{kind}" if dotted else _AREAS.get(name.partition("_")[0], "worker")


class Kind(NamedTuple):
    """Lines that are counted together."""

    event: str
    of: str


class LineLimit:
    """Lets the first lines of a kind through, in each window, and counts the rest."""

    def __init__(self) -> None:
        self._windows: dict[Kind, tuple[float, int]] = {}  # its start, and how many lines came

    def admits(self, kind: Kind, now: float) -> bool:
        """Whether this line is to be written."""
        if kind not in self._windows and len(self._windows) >= KINDS_MAX:
            kind = Kind(kind.event, "(other)")
        start, count = self._windows.get(kind, (now, 0))
        self._windows[kind] = (start, count + 1)
        return count < LINES_MAX

    def over(self, now: float) -> Iterator[tuple[Kind, int]]:
        """The kinds whose window is over and of which lines were left out, with how many."""
        for kind, (start, count) in list(self._windows.items()):
            if now - start >= WINDOW_S:
                del self._windows[kind]
                if count > LINES_MAX:
                    yield kind, count - LINES_MAX


class Outage:
    """One line when the store goes away, one a minute, one when it is back."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._last = 0.0
        self._tell_at = 0.0
        self._failures = 0
        self._back_at = -QUIET_S

    def fail(self, name: str, now: float) -> bool:
        """Something failed for want of it; whether that is to be told now."""
        if self._since is None:
            # Stragglers: what was asked before it came back may fail for a while.
            if now - self._back_at < QUIET_S and name != "heartbeat_failed":
                return False
            self._since, self._failures, self._tell_at = now, 0, now
        self._last = now
        self._failures += 1
        if now < self._tell_at:
            return False
        self._tell_at = now + AWAY_EVERY_S
        return True

    def told(self, now: float) -> dict[str, object]:
        """The fields of the line."""
        assert self._since is not None
        return {"for_s": round(now - self._since, 1), "failures": self._failures}

    def end(self, now: float, *, is_sure: bool) -> dict[str, object] | None:
        """It answers again, for sure or because nothing failed for a while: what is to be told."""
        if self._since is None or (not is_sure and now - self._last < QUIET_S):
            return None
        told = self.told(now if is_sure else self._last)
        self._since, self._back_at = None, now
        return told


class EventLog(SilentObserver):
    """The observer that logs events; it leaves counting to others."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loggers: dict[str, logging.Logger] = {}
        self._limit = LineLimit()
        self._outage = Outage()
        self._lock = threading.Lock()  # the heartbeat has a thread of its own
        self._look_at = 0.0

    def event(self, name: str, /, **fields: object) -> None:
        """Log it, unless there were too many of its kind or it is part of an outage."""
        now = self._clock.monotonic()
        if name in AWAY:
            self._fail(name, fields, now)
        elif name == BACK:
            self._tell_what_ended(now, is_back=True)
        else:
            self._log_limited(name, fields, now)

    def gauge(self, _name: str, _value: float, /, **_labels: str) -> None:
        """A worker sets gauges all the time: the occasion to tell what is over."""
        self._tell_what_ended(self._clock.monotonic(), is_back=False)

    def _fail(self, name: str, fields: dict[str, object], now: float) -> None:
        self._write(name, fields, logging.DEBUG)
        with self._lock:
            told = self._outage.told(now) if self._outage.fail(name, now) else None
        if told is not None:
            self._write("store_away", {**told, "error": fields.get("error", fields.get("cause"))})

    def _tell_what_ended(self, now: float, *, is_back: bool) -> None:
        """Write that an outage is over, and how many lines of a kind were left out; about once in
        LOOK_EVERY_S, or at once if the store is known to be back."""
        if now < self._look_at and not is_back:
            return
        self._look_at = now + LOOK_EVERY_S
        with self._lock:
            told = self._outage.end(now, is_sure=is_back)
            over = list(self._limit.over(now))
        if told is not None:
            self._write("store_back", told)
        for kind, count in over:
            self._write("lines_left_out", {"event_name": kind.event, "of": kind.of, "count": count})

    def _log_limited(self, name: str, fields: dict[str, object], now: float) -> None:
        level = LEVELS.get(name, INFO)
        if not self._logger(name).isEnabledFor(level):
            return
        if level >= WARNING or "." in name:
            self._tell_what_ended(now, is_back=False)
            of = next((str(fields[field]) for field in KIND_FIELDS if field in fields), "")
            with self._lock:
                if not self._limit.admits(Kind(name, of), now):
                    return
        self._write(name, fields, level)

    def _write(self, name: str, fields: dict[str, object], level: int | None = None) -> None:
        level = LEVELS.get(name, INFO) if level is None else level
        logger = self._logger(name)
        if not logger.isEnabledFor(level):
            return
        raised = fields.pop("exc_info", None)
        error = raised if isinstance(raised, BaseException) else None
        # The text is the same for all of one event, so that they are one in whatever groups them.
        logger.log(
            level,
            f"{name}%s",  # noqa: G004 - a constant of its event
            FieldsText(fields),
            exc_info=error,
            extra={"event": name, "fields": fields},
        )

    def _logger(self, name: str) -> logging.Logger:
        logger = self._loggers.get(name)
        if logger is None:
            logger = self._loggers[name] = logging.getLogger(f"{ROOT}.{area_of(name)}")
        return logger


class FieldsText:
    """Fields as text, made when a handler wants it; on one line, whatever users wrote."""

    __slots__ = ("_fields",)

    def __init__(self, fields: Mapping[str, object]) -> None:
        self._fields = fields

    def __str__(self) -> str:
        shown = (f" {key}={_shown(value)}" for key, value in self._fields.items())
        return "".join(shown)


def _shown(value: object) -> str:
    if not isinstance(value, str):
        return str(value)
    text = value if len(value) <= TEXT_CHARS_MAX else f"{value[:TEXT_CHARS_MAX]}…"
    return repr(text) if not text.isprintable() or " " in text else text
