"""The log: one event a line, a constant name and fields, as JSON or for a terminal.

Text that came from users is never written raw: JSON escapes it, and the console form escapes
whatever is not printable, so that no id can forge a line or colour a terminal.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any, TextIO

import structlog

from gnomon.contracts.observer import SilentObserver
from gnomon.telemetry.config import LogConfig

# What deserves another level than `info`. An event that is not named here is ordinary.
LEVELS: Mapping[str, str] = {
    "request_failed": "error",
    "worker_crashed": "error",
    "loop_failed": "error",
    "identity_mismatch": "error",
    "executor_raised": "error",
    "worker_bug": "error",
    "result_dropped": "error",
    "action_undecidable": "error",
    "round_failed": "warning",
    "relay_not_configured": "warning",
    "heartbeat_failed": "warning",
    "heartbeat_withheld": "warning",
    "finish_failed": "warning",
    "event_loop_blocked": "error",
    "result_held": "warning",
    "lease_lost": "warning",
    "lease_stolen": "warning",
    "worker_buried": "warning",
    "attempt_lost": "warning",
    "drain_timed_out": "warning",
    "task_table_refused": "error",
    "task_table_unavailable": "warning",
    "task_table_lost": "warning",
    "task_session_unavailable": "warning",
    "task_session_lost": "warning",
    "task_broke_sessions": "error",
    "task_row_refused": "error",
    "tasks_conf_refused": "error",
    "outbox_late": "error",
    "background_held": "warning",
    "library_warning": "warning",
    "library_error": "error",
    "stage_bug": "error",
}
TEXT_CHARS_MAX = 10_000  # of one field: an error may quote a text of any length
_ORDER = {"debug": 10, "info": 20, "warning": 30, "error": 40}

Fields = MutableMapping[str, Any]


class Log(SilentObserver):
    """The observer that writes events; it leaves counting to others."""

    def __init__(self, config: LogConfig | None = None, *, stream: TextIO | None = None) -> None:
        config = config or LogConfig()
        stream = stream or sys.stderr
        self._least = _ORDER[config.level]
        as_json = config.style == "json" or (config.style == "auto" and not stream.isatty())
        self._logger = structlog.wrap_logger(
            structlog.WriteLogger(stream),
            processors=[*_processors(as_json=as_json, colors=stream.isatty())],
            wrapper_class=structlog.BoundLogger,
        )

    def event(self, name: str, /, **fields: object) -> None:
        """Write one line, if its level is wanted."""
        level = LEVELS.get(name, "info")
        if _ORDER[level] >= self._least:
            getattr(self._logger, level)(name, **fields)


def _processors(*, as_json: bool, colors: bool) -> Iterable[Any]:
    yield structlog.processors.add_log_level
    yield structlog.processors.TimeStamper(fmt="iso", utc=True, key="at")
    yield structlog.processors.format_exc_info  # without local variables: they may hold secrets
    yield _shorten
    if as_json:
        yield structlog.processors.EventRenamer("event")
        yield structlog.processors.JSONRenderer(default=str)
    else:
        yield _escape
        yield structlog.dev.ConsoleRenderer(colors=colors, timestamp_key="at")


def _shorten(_logger: object, _method: str, fields: Fields) -> Fields:
    for key, value in fields.items():
        if isinstance(value, str) and len(value) > TEXT_CHARS_MAX:
            fields[key] = f"{value[:TEXT_CHARS_MAX]}… ({len(value)} characters)"
    return fields


def _escape(_logger: object, _method: str, fields: Fields) -> Fields:
    for key, value in fields.items():
        if key != "exception" and not isinstance(value, int | float | bool | None):
            fields[key] = printable(str(value))
    return fields


def printable(text: str) -> str:
    """The text with everything that a terminal might obey written as an escape."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


class _Forwarder(logging.Handler):
    """Hands what libraries log to the log, as events."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        name = "library_error" if record.levelno >= logging.ERROR else "library_warning"
        fields: dict[str, object] = {"library": record.name, "message": record.getMessage()}
        if record.exc_info:
            fields["exc_info"] = record.exc_info
        self._log.event(name, **fields)


def capture_libraries(log: Log) -> None:
    """Let what libraries warn of appear in the log, and nothing of theirs elsewhere."""
    logging.basicConfig(level=logging.WARNING, handlers=[_Forwarder(log)], force=True)
