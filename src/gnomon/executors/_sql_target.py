"""Where SQL statements may be performed: the target of kind sql."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal
from urllib.parse import SplitResult, unquote, urlsplit

from gnomon.executors._target import Target
from gnomon.model.errors import ConfigurationError
from gnomon.model.secret import Secret, hide

IN_FLIGHT_MAX = 1_000
INBOX_DEFAULT = "gnomon_inbox"  # in a SQLite file
SQLITE = "sqlite"

_SEARCH_PATH = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(, ?[A-Za-z_][A-Za-z0-9_]*)*", re.ASCII)
_INBOX = re.compile(r"[a-z_][a-z0-9_.]{0,99}", re.ASCII)
_SEARCH_PATH_DEFAULT = "public"


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlTarget(Target):
    """A database on which statements are performed: PostgreSQL with a login, or a SQLite file."""

    dsn: Secret  # postgresql://login:password@host/database, or sqlite:////absolute/file.db
    # `local`: the installation's own database, with a login of its own; `remote`: another one
    place: Literal["local", "remote"] = "remote"
    inbox: str | None = None  # remote: a table that keeps the keys of what is done
    search_path: str = _SEARCH_PATH_DEFAULT  # PostgreSQL
    statement_timeout: timedelta = timedelta(seconds=30)
    lock_timeout: timedelta = timedelta(seconds=5)
    in_flight_max: int = 10  # connections at once; the others wait for their turn

    def __post_init__(self) -> None:
        Target.__post_init__(self)
        if self.place not in ("local", "remote"):
            self.refuse("place", "must be local or remote")
        if self.inbox is not None and self.place == "local":
            self.refuse("inbox", "is for other databases: the own one needs none")
        if self.inbox is not None and not _INBOX.fullmatch(self.inbox):
            self.refuse("inbox", "must be the name of a table, in small letters")
        self.check_in_flight(self.in_flight_max, IN_FLIGHT_MAX)
        self.check_durations(
            statement_timeout=self.statement_timeout, lock_timeout=self.lock_timeout
        )
        if self.is_sqlite:
            self._check_sqlite()
        else:
            self._check_postgres()

    def _check_postgres(self) -> None:
        parts = self.parts
        if parts.scheme not in ("postgresql", "postgres") or not (
            parts.username and parts.hostname and parts.path.strip("/")
        ):
            self.refuse("dsn", "must be postgresql://login:password@host/database or sqlite:////…")
        if not _SEARCH_PATH.fullmatch(self.search_path):
            self.refuse("search_path", "must be plain names of schemas with commas between")

    def _check_sqlite(self) -> None:
        path = file_of(self.dsn.reveal())
        if path is None or not path.is_absolute() or self.parts.netloc:
            self.refuse("dsn", "must name an absolute file: sqlite:////var/lib/shop/shop.db")
        if self.place == "local":
            self.refuse("place", "can be local only on PostgreSQL; a SQLite file is always remote")
        if self.inbox is not None and "." in self.inbox:
            self.refuse("inbox", "must be the name of a table in the file")
        if self.search_path != _SEARCH_PATH_DEFAULT:
            self.refuse("search_path", "is for PostgreSQL")

    @property
    def parts(self) -> SplitResult:
        """The DSN, taken apart."""
        try:
            parts = urlsplit(self.dsn.reveal())
            _ = parts.port
        except ValueError:
            self.refuse("dsn", "must be a URL with a valid host and port")
        return parts

    @property
    def is_sqlite(self) -> bool:
        return self.parts.scheme == SQLITE

    @property
    def file(self) -> Path:
        """The file of a SQLite target."""
        path = file_of(self.dsn.reveal())
        assert path is not None
        return path

    @property
    def inbox_table(self) -> str | None:
        """The table of keys; a SQLite file always has one."""
        return self.inbox or (INBOX_DEFAULT if self.is_sqlite else None)

    @property
    def is_once(self) -> bool:
        """Whether a repeated attempt can see that the effect is there."""
        return self.place == "local" or self.inbox_table is not None

    def hidden(self, text: str) -> str:
        """A text without the login's password."""
        password = self.parts.password
        return hide(text, self.dsn, *([Secret(unquote(password))] if password else []))


def file_of(url: str) -> Path | None:
    """The file of a `sqlite:///…` URL; None if there is none."""
    parts = urlsplit(url)
    path = parts.path.removeprefix("/")
    if parts.scheme != SQLITE or path in ("", ":memory:"):
        return None
    return Path(path)


def check_own(target: SqlTarget, database_url: str) -> None:
    """A statement must not be able to do all that the scheduler can. Errors: ConfigurationError."""
    if target.is_sqlite:
        if is_own_file(target.file, database_url):
            raise ConfigurationError(
                f"targets.{target.name}.dsn", "must not be the installation's own file"
            )
    elif target.place == "local":
        _check_own_login(target, database_url)


def is_own_file(path: Path, database_url: str) -> bool:
    """Whether the path leads to the installation's database, under whatever name."""
    own = file_of(database_url)
    if own is None:
        return False
    parts = [own, *(own.with_name(f"{own.name}-{tail}") for tail in ("wal", "shm", "journal"))]
    return any(path.resolve() == part.resolve() or _is_same_file(path, part) for part in parts)


def _is_same_file(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except OSError:
        return False


def _check_own_login(target: SqlTarget, database_url: str) -> None:
    own = urlsplit(database_url)
    if own.scheme not in ("postgresql", "postgres"):
        raise ConfigurationError(
            f"targets.{target.name}.place", "can be local only if the installation is on PostgreSQL"
        )
    if own.username is not None and target.parts.username == own.username:
        raise ConfigurationError(
            f"targets.{target.name}.dsn", "must have a login of its own, not the scheduler's"
        )
