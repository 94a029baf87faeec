"""Where the store is."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import timedelta

from gnomon.model.errors import ConfigurationError
from gnomon.model.ids import SHARD_COUNT_DEFAULT, SHARD_COUNT_MAX

SCHEMES = ("sqlite", "postgres", "postgresql")
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,47}", re.ASCII)
_PASSWORD = re.compile(r"(?<=://)([^/@\s:]*):[^/\s]*(?=@)")
_PASSWORD_FIELD = re.compile(r"(?i)(password=)[^&\s]*")
MASK = "***"
ATTEMPTS_KEPT_FOR = timedelta(days=7)
AUDIT_KEPT_FOR = timedelta(days=90)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseConfig:
    """Which database holds the actions."""

    url: str = field(default="sqlite:///gnomon.db", repr=False)  # sqlite:///file or postgresql://…
    password_file: str | None = None  # holds the password, so that the URL need not
    schema: str = "gnomon"  # of PostgreSQL
    shard_count: int = SHARD_COUNT_DEFAULT  # counts when the store is installed, never after
    pool_size: int = 10  # connections to PostgreSQL for attempts, and as many for callers' verbs
    prepared_statements: bool = True  # false behind a pooler in transaction mode, as PgBouncer
    attempt_retention: timedelta = ATTEMPTS_KEPT_FOR  # how long the log of attempts is kept
    audit_retention: timedelta = AUDIT_KEPT_FOR  # how long it is kept who changed what

    def __post_init__(self) -> None:
        scheme, marked, _ = self.url.partition("://")
        if not marked or scheme not in SCHEMES:
            raise ConfigurationError(
                "database.url", f"must be sqlite:///file or postgresql://…, not {self.url_shown!r}"
            )
        if not _SCHEMA.fullmatch(self.schema):
            raise ConfigurationError("database.schema", "must be lower case letters, digits and _")
        if not 1 <= self.shard_count <= SHARD_COUNT_MAX:
            raise ConfigurationError(
                "database.shard_count", f"must be between 1 and {SHARD_COUNT_MAX}"
            )
        if self.pool_size < 1:
            raise ConfigurationError("database.pool_size", "must be at least 1")
        if self.attempt_retention < timedelta(minutes=1):
            raise ConfigurationError("database.attempt_retention", "must be at least 1m")
        if self.audit_retention < timedelta(days=1):
            raise ConfigurationError("database.audit_retention", "must be at least 1d")
        if not self.prepared_statements and self.engine == "sqlite":
            raise ConfigurationError("database.prepared_statements", "is for PostgreSQL only")
        if self.password_file is not None and self.engine == "sqlite":
            raise ConfigurationError("database.password_file", "is for PostgreSQL only")

    @property
    def engine(self) -> str:
        """`sqlite` or `postgres`."""
        return "sqlite" if self.url.startswith("sqlite://") else "postgres"

    @property
    def is_memory(self) -> bool:
        return self.url in ("sqlite:///:memory:", "sqlite://")

    @property
    def url_shown(self) -> str:
        """The URL without its password."""
        return mask_url(self.url)


def mask_url(url: str) -> str:
    """A URL that may be shown: the password, wherever it stands, is masked."""
    return _PASSWORD_FIELD.sub(rf"\g<1>{MASK}", _PASSWORD.sub(rf"\g<1>:{MASK}", url))
