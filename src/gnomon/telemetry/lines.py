"""An event as one line: JSON for machines, or words for a terminal.

Text that came from users is never written raw: JSON escapes it, and the terminal's form escapes
whatever is not printable, so that no id can forge a line or colour a terminal.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping
from typing import Any

from gnomon.telemetry.events import TEXT_CHARS_MAX

_COLORS = {"debug": "2", "info": "32", "warning": "33", "error": "31", "critical": "31"}


def json_line(fields: Mapping[str, Any]) -> str:
    """One object; what JSON has no form for is written as its text."""
    return json.dumps(_told(fields), default=str, skipkeys=True)


def terminal_line(fields: Mapping[str, Any], *, colors: bool) -> str:
    """`at [level] event name=value …`, and a traceback below."""
    told = _told(fields)
    at, level, event, exception = (told.pop(name, "") for name in _OWN)
    shown = f"\x1b[{_COLORS[level]}m{level:<7}\x1b[0m" if colors else f"{level:<7}"
    values = " ".join(f"{name}={_word(value)}" for name, value in told.items())
    head = f"{at} [{shown}] {printable(str(event))} {values}".rstrip()
    return f"{head}\n{exception}" if exception else head


_OWN = ("at", "level", "event", "exception")


def printable(text: str) -> str:
    """The text with everything that a terminal might obey written as an escape."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def _word(value: object) -> str:
    text = printable(str(value))
    return repr(text) if " " in text or not text else text


def _told(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Long texts cut, and an exception as its traceback: without local variables, which may hold
    secrets."""
    told = {name: _short(value) for name, value in fields.items() if name != "exc_info"}
    raised = fields.get("exc_info")
    if raised:
        error = raised[1] if isinstance(raised, tuple) else raised
        told["exception"] = _short("".join(traceback.format_exception(error)).rstrip())
    return told


def _short(value: object) -> object:
    if isinstance(value, str) and len(value) > TEXT_CHARS_MAX:
        return f"{value[:TEXT_CHARS_MAX]}… ({len(value)} characters)"
    return value
