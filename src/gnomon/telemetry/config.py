"""The settings of the log and of traces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from gnomon.model.errors import ConfigurationError

Level = Literal["debug", "info", "warning", "error"]
Style = Literal["auto", "json", "console"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """What is written to standard error, and how."""

    level: Level = "info"  # debug, info, warning or error
    style: Style = "auto"  # json: one object a line; console: for people; auto: by the terminal

    def __post_init__(self) -> None:
        for name, known in (("level", get_args(Level)), ("style", get_args(Style))):
            if getattr(self, name) not in known:
                raise ConfigurationError(f"log.{name}", f"must be one of {', '.join(known)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TracingConfig:
    """Spans by OpenTelemetry; where they go to is set up by your program."""

    enabled: bool = False  # needs `gnomon-scheduler[otel]`, and an SDK to be seen
