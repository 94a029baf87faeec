"""The settings of SQL tasks."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import timedelta

from gnomon.lease import LeaseTerms
from gnomon.model.errors import ConfigurationError

SCHEMES = ("postgres", "postgresql", "sqlite")
_PASSWORD = re.compile(r'("password"\s*:\s*)"(?:[^"\\]|\\.)*"')


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksConfig:
    """SQL tasks: rows of `task` tables that are performed. Off unless a `dsn` is given."""

    # postgresql://user@host/database, or sqlite:///tasks.db
    dsn: str | None = field(default=None, repr=False)
    # the JSON list of tables; without it, `task` in the dsn's own database
    conf: str | None = field(default=None, repr=False)
    conf_file: str | None = None  # the same list in a file, read again on SIGHUP
    lease: timedelta = timedelta(seconds=5)  # a table whose owner was silent for so long is free
    beat: timedelta = timedelta(seconds=1)  # how often an owner says that it lives
    drain: timedelta = timedelta(seconds=25)  # at shutdown, tasks may take this long to end
    result_bytes_max: int = 64 * 1024 * 1024  # of one task; a larger result makes it FAIL

    def __post_init__(self) -> None:
        if self.dsn is not None and self.dsn.partition("://")[0] not in SCHEMES:
            raise ConfigurationError("tasks.dsn", "must be postgresql://… or sqlite:///file")
        if self.conf is not None and self.conf_file is not None:
            raise ConfigurationError("tasks.conf", "and tasks.conf_file exclude each other")
        if self.beat * 3 > self.lease:
            raise ConfigurationError("tasks.beat", "must be at most a third of tasks.lease")
        if self.result_bytes_max < 1:
            raise ConfigurationError("tasks.result_bytes_max", "must be at least 1")

    @property
    def lease_terms(self) -> LeaseTerms:
        """Trusted for a beat less than the lease: who cannot beat finds out before the others."""
        return LeaseTerms(lease=self.lease, beat=self.beat, step_down=self.beat)

    @property
    def engine(self) -> str:
        """`sqlite` or `postgres`."""
        return "sqlite" if (self.dsn or "").startswith("sqlite:") else "postgres"


def mask_conf(text: str) -> str:
    """A list that may be shown: its passwords are masked."""
    return _PASSWORD.sub(r'\1"***"', text)
