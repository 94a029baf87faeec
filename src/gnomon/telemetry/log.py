"""How commands write the log: one event a line, its name and fields, as JSON or for a terminal."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

from gnomon.telemetry.config import LogConfig
from gnomon.telemetry.events import ROOT
from gnomon.telemetry.lines import json_line, terminal_line


class LineHandler(logging.Handler):
    """Writes records as lines. Events of ours keep their fields; what libraries log becomes an
    event."""

    def __init__(self, config: LogConfig | None = None, *, stream: TextIO | None = None) -> None:
        super().__init__()
        config = config or LogConfig()
        self._stream = stream = stream or sys.stderr
        self._as_json = config.style == "json" or (config.style == "auto" and not stream.isatty())

    def emit(self, record: logging.LogRecord) -> None:
        """One line."""
        name: str | None = getattr(record, "event", None)
        fields: dict[str, object] = dict(getattr(record, "fields", {}))
        if name is None:
            name = "library_error" if record.levelno >= logging.ERROR else "library_warning"
            fields = {"library": record.name, "message": record.getMessage()}
        if record.exc_info:
            fields["exc_info"] = record.exc_info
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds")
        level = record.levelname.lower()
        told = {"event": name, **fields, "level": level, "at": at.replace("+00:00", "Z")}
        colors = not self._as_json and self._stream.isatty()
        line = json_line(told) if self._as_json else terminal_line(told, colors=colors)
        self._stream.write(f"{line}\n")
        self._stream.flush()


def log_to(handler: logging.Handler, config: LogConfig) -> None:
    """Let all that is logged go there: of ours what the settings want, of libraries warnings."""
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger(ROOT).setLevel(config.level.upper())
