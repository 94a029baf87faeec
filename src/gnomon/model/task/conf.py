"""The JSON list that says which task tables are served: pg_task's keys, and a few of ours.

`[{"data": "shop"}, {"data": "shop", "user": "billing", "table": "nightly", "sleep": 100}]`:
anything may be left out. A missing database is that of the user, a missing user that of the
database, and where both are missing those of the connection that was given.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Literal

import msgspec

from gnomon.model.errors import ConfigurationError, InvalidSpec
from gnomon.model.ids import NAME_PATTERN
from gnomon.model.secret import Secret
from gnomon.model.task.interval import parse_interval
from gnomon.model.task.remote import RemoteTarget

NAME_BYTES_MAX = 63  # of PostgreSQL's names; longer ones it would cut silently
SLEEP_MS_MAX = 3_600_000
RUN_MAX = 10_000
PATH = "tasks.conf"

RemotePolicy = Literal["off", "free"] | tuple[str, ...]


class TaskEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One table that is served, with everything that was left out filled in."""

    data: str
    user: str
    schema: str = "public"
    table: str = "task"
    sleep: timedelta = timedelta(seconds=1)  # the longest wait between two looks
    reset: timedelta = timedelta(hours=1)  # how often rows stuck in TAKE go back to PLAN
    run: int = 50  # tasks performed at once, over all groups
    name: str = ""  # in the API and in scopes; `data.schema.table` if empty
    password: Secret | None = None
    superuser: bool = False  # whether the user may be one
    remote: RemotePolicy = "off"  # where the column `remote` may lead to

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """What makes it another table, and not another setting of the same."""
        return self.data, self.user, self.schema, self.table

    @property
    def title(self) -> str:
        """How people and the API call it."""
        return self.name or f"{self.data}.{self.schema}.{self.table}"


class _Written(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry as it is written."""

    data: str | None = None
    user: str | None = None
    schema: str = "public"
    table: str = "task"
    sleep: int = 1000  # milliseconds
    reset: str | int | float = "1 hour"
    run: int = 50
    spi: bool = False
    name: str = ""
    password: str | None = None
    superuser: bool = False
    remote: str | list[str] = "off"


def read_entries(text: str | bytes, *, data: str, user: str) -> tuple[TaskEntry, ...]:
    """The tables of a JSON list; `data` and `user` are those of the connection.

    Errors: ConfigurationError, which never shows a password.
    """
    try:
        written = msgspec.json.decode(text, type=list[_Written])
    except msgspec.ValidationError as exc:
        raise ConfigurationError(PATH, str(exc)) from None
    except msgspec.DecodeError as exc:
        raise ConfigurationError(PATH, f"is not a JSON list: {exc}") from None
    entries = [_entry(item, f"{PATH}[{number}]", data, user) for number, item in enumerate(written)]
    return _distinct(entries)


def _entry(written: _Written, path: str, data: str, user: str) -> TaskEntry:
    entry = TaskEntry(
        data=written.data or written.user or data,
        user=written.user or written.data or user,
        schema=written.schema,
        table=written.table,
        sleep=timedelta(milliseconds=_between(written.sleep, 1, SLEEP_MS_MAX, f"{path}.sleep")),
        reset=_reset(written.reset, f"{path}.reset"),
        run=_between(written.run, 1, RUN_MAX, f"{path}.run"),
        name=written.name,
        password=None if written.password is None else Secret(written.password),
        superuser=written.superuser,
        remote=_remote(written.remote, f"{path}.remote"),
    )
    if written.spi:
        raise ConfigurationError(f"{path}.spi", "is not there: tasks are performed by connections")
    if entry.name and not NAME_PATTERN.fullmatch(entry.name):
        raise ConfigurationError(f"{path}.name", f"must match {NAME_PATTERN.pattern}")
    for key in ("data", "user", "schema", "table"):
        _check_name(getattr(entry, key), f"{path}.{key}")
    return entry


def _check_name(name: str, path: str) -> None:
    if not 1 <= len(name.encode()) <= NAME_BYTES_MAX or "\x00" in name:
        raise ConfigurationError(path, f"must be 1 to {NAME_BYTES_MAX} bytes long, without NUL")


def _between(value: int, least: int, most: int, path: str) -> int:
    if not least <= value <= most:
        raise ConfigurationError(path, f"must be between {least} and {most}")
    return value


def _reset(value: str | float, path: str) -> timedelta:
    try:
        interval = parse_interval(value)
    except InvalidSpec as exc:
        raise ConfigurationError(path, exc.problem) from None
    if interval <= timedelta(0):
        raise ConfigurationError(path, "must be above 0")
    return interval


def _remote(value: str | list[str], path: str) -> RemotePolicy:
    match value:
        case "off":
            return "off"
        case "free":
            return "free"
        case list():
            return _listed(tuple(value), path)
    raise ConfigurationError(path, 'must be "off", "free" or a list of host[:port][/database]')


def _listed(patterns: tuple[str, ...], path: str) -> tuple[str, ...]:
    for pattern in patterns:
        try:
            RemoteTarget.read(pattern)
        except ValueError as exc:
            raise ConfigurationError(path, str(exc)) from None
    return patterns


def _distinct(entries: Sequence[TaskEntry]) -> tuple[TaskEntry, ...]:
    """One entry for each table: of those that are alike in it, the last."""
    distinct = {entry.identity: entry for entry in entries}
    tables: dict[tuple[str, str, str], TaskEntry] = {}
    titles: dict[str, TaskEntry] = {}
    for entry in distinct.values():
        other = tables.setdefault((entry.data, entry.schema, entry.table), entry)
        if other is not entry:
            raise ConfigurationError(
                PATH, f"{entry.title} is named for two users, {other.user} and {entry.user}"
            )
        if titles.setdefault(entry.title, entry) is not entry:
            raise ConfigurationError(PATH, f"two tables are called {entry.title!r}")
    return tuple(distinct.values())
