"""Settings: defaults < TOML file < environment < flags, into one frozen value.

Each component owns its dataclass; here they are composed, read and checked. This is the only
module that reads the environment. Every setting remembers where it came from.
"""

from __future__ import annotations

import dataclasses
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from gnomon.config.environment import (
    FILE_VARIABLE,
    FOLDER_VARIABLE,
    given_settings,
    variable_of,
    without_setting,
)
from gnomon.config.secrets import SecretSource, read_secrets
from gnomon.config.targets import TargetTable, read_targets
from gnomon.config.values import read_value, show_value
from gnomon.executors.http import HttpConfig
from gnomon.gateways.config import ConsoleConfig, MetricsConfig, ServerConfig
from gnomon.model.constant import is_setting
from gnomon.model.errors import ConfigurationError
from gnomon.scheduler import SchedulerConfig
from gnomon.stages.config import StagesConfig
from gnomon.stores.config import DatabaseConfig, mask_url
from gnomon.tasks.config import TasksConfig, mask_conf
from gnomon.telemetry.config import LogConfig, TracingConfig
from gnomon.worker.config import WorkerConfig

FILE_DEFAULT = "gnomon.toml"
DEFAULT = "default"  # the source of what nobody has set

__all__ = [
    "ConsoleConfig",
    "DatabaseConfig",
    "HttpConfig",
    "LogConfig",
    "MetricsConfig",
    "SchedulerConfig",
    "ServerConfig",
    "Settings",
    "StagesConfig",
    "TasksConfig",
    "TracingConfig",
    "WorkerConfig",
    "environment_of",
    "fill_in",
    "load_settings",
    "show_settings",
]

SECTIONS: Mapping[str, type[Any]] = MappingProxyType(
    {
        "database": DatabaseConfig,
        "worker": WorkerConfig,
        "scheduler": SchedulerConfig,
        "server": ServerConfig,
        "console": ConsoleConfig,
        "http": HttpConfig,
        "tasks": TasksConfig,
        "stages": StagesConfig,
        "log": LogConfig,
        "metrics": MetricsConfig,
        "tracing": TracingConfig,
    }
)
MASKS: Mapping[str, Callable[[str], str]] = MappingProxyType(
    {"database.url": mask_url, "tasks.dsn": mask_url, "tasks.conf": mask_conf}
)
NAMED_TABLES = ("targets", "secrets")  # tables of tables, with names of the operator's own


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of a process."""

    database: DatabaseConfig = field(default_factory=DatabaseConfig)
    worker: WorkerConfig = field(default_factory=WorkerConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    server: ServerConfig = field(default_factory=ServerConfig)
    console: ConsoleConfig = field(default_factory=ConsoleConfig)
    http: HttpConfig = field(default_factory=HttpConfig)
    tasks: TasksConfig = field(default_factory=TasksConfig)
    stages: StagesConfig = field(default_factory=StagesConfig)
    log: LogConfig = field(default_factory=LogConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    tracing: TracingConfig = field(default_factory=TracingConfig)
    targets: Mapping[str, TargetTable] = field(default_factory=lambda: MappingProxyType({}))
    secrets: Mapping[str, SecretSource] = field(default_factory=lambda: MappingProxyType({}))
    sources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)

    def source_of(self, path: str) -> str:
        """Where `worker.lease` and the like got their value from."""
        return self.sources.get(path, DEFAULT)


@dataclass(frozen=True, slots=True)
class Shown:
    """A setting as `gnomon config show` prints it."""

    path: str
    value: str
    source: str


def load_settings(
    *,
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
    by: str = "flag",
) -> Settings:
    """Read all sources. `flags` are given by path (`server.port`), `by` whom says their source;
    None means not given."""
    environ = os.environ if environ is None else environ
    values: dict[str, dict[str, object]] = {name: {} for name in SECTIONS}
    sources: dict[str, str] = {}
    place, tables = _read_file(file, environ)
    named = {name: _table(tables.pop(name, {}), name, place) for name in NAMED_TABLES}
    sources |= {name: f"file {place}" for name, table in named.items() if table}
    secrets = read_secrets(named["secrets"], environ)
    given = (
        *_from_file(place, tables),
        *_from_environment(environ, secrets),
        *_from_flags(flags or {}, by),
    )
    for path, raw, source in given:  # what wins comes later
        section, _, name = path.partition(".")
        values[section][name] = read_value(SECTIONS[section], name, raw, path=path)
        sources[path] = source
    _place_default_file(values["database"], sources, environ)
    _add_password(values["database"], sources)
    parts = {name: cls(**values[name]) for name, cls in SECTIONS.items()}
    return Settings(
        **parts,
        targets=MappingProxyType(read_targets(named["targets"], secrets)),
        secrets=MappingProxyType(secrets),
        sources=MappingProxyType(sources),
    )


def show_settings(settings: Settings) -> list[Shown]:
    """Every setting with its value and source, secrets masked."""
    settings_shown = []
    for section, name in _names():
        value = getattr(getattr(settings, section), name)
        path = f"{section}.{name}"
        shown = MASKS.get(path, str)(show_value(value))
        settings_shown.append(Shown(path, shown, settings.source_of(path)))
    named = (("targets", settings.targets), ("secrets", settings.secrets))
    for section, tables in named:
        for name, table in tables.items():
            for option, shown in table.shown():
                path = f"{section}.{name}.{option}"
                settings_shown.append(Shown(path, shown, settings.source_of(section)))
    return settings_shown


def fill_in(settings: Settings, other: Settings) -> Settings:
    """Settings, and where nobody has set anything those of another: of the App that a command
    imported."""
    parts: dict[str, Any] = {}
    sources = dict(settings.sources)
    for section, name in _names():
        path = f"{section}.{name}"
        if settings.source_of(path) == DEFAULT:
            parts.setdefault(section, {})[name] = getattr(getattr(other, section), name)
            sources[path] = other.source_of(path)
    changed: dict[str, Any] = {
        section: dataclasses.replace(getattr(settings, section), **values)
        for section, values in parts.items()
    }
    for name in NAMED_TABLES:
        if not getattr(settings, name):
            changed[name] = getattr(other, name)
    return dataclasses.replace(settings, **changed, sources=MappingProxyType(sources))


def environment_of(settings: Settings) -> dict[str, str]:
    """The environment of a child process on the same database.

    By environment and not by argument, which would show the password to everybody.
    """
    return {
        **without_setting(without_setting(os.environ, "database.url"), "database.schema"),
        variable_of("database.url"): settings.database.url,
        variable_of("database.schema"): settings.database.schema,
    }


# -- sources --------------------------------------------------------------------------------------


def _read_file(file: Path | None, environ: Mapping[str, str]) -> tuple[Path, dict[str, Any]]:
    """The file that counts, and what is in it; nothing, if none was named and none is there."""
    wanted = file or (Path(environ[FILE_VARIABLE]) if environ.get(FILE_VARIABLE) else None)
    place = wanted or Path(FILE_DEFAULT)
    if wanted is None and not place.exists():
        return place, {}
    return place, _read_toml(place)


def _from_file(place: Path, tables: Mapping[str, object]) -> Iterator[tuple[str, object, str]]:
    for section, values in tables.items():
        if section not in SECTIONS:
            known = [*SECTIONS, *NAMED_TABLES]
            raise ConfigurationError(section, _unknown(section, known, f"in {place}"))
        for name, value in _table(values, section, place).items():
            _check_known(f"{section}.{name}", f"in {place}")
            yield f"{section}.{name}", value, f"file {place}"


def _table(values: object, section: str, place: Path) -> dict[str, object]:
    if not isinstance(values, dict):
        raise ConfigurationError(section, f"must be a table ([{section}]) in {place}")
    return values


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigurationError(
            str(path), f"there is no such file: name one by --config or {FILE_VARIABLE}, or neither"
        ) from None
    except OSError as exc:
        raise ConfigurationError(str(path), f"cannot be read: {exc.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ConfigurationError(str(path), f"is not TOML: {exc}") from None


def _from_environment(
    environ: Mapping[str, str], secrets: Mapping[str, SecretSource]
) -> Iterator[tuple[str, object, str]]:
    paths = [f"{section}.{name}" for section, name in _names()]
    held = {source.env for source in secrets.values() if source.env}
    for path, text, variable in given_settings(
        environ, paths, file_only=NAMED_TABLES, secrets=held
    ):
        yield path, text, f"environment {variable}"


def _from_flags(flags: Mapping[str, object], by: str) -> Iterator[tuple[str, object, str]]:
    for path, value in flags.items():
        if value is not None:
            _check_known(path, f"--{path}")
            yield path, value, by


def _check_known(path: str, where: str) -> None:
    known = [f"{section}.{name}" for section, name in _names()]
    if path not in known:
        raise ConfigurationError(path, _unknown(path, known, where))


def _unknown(given: str, known: Any, where: str) -> str:
    close = get_close_matches(given, list(known), n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"there is no such setting {where}".rstrip() + hint


def _names() -> Iterator[tuple[str, str]]:
    for section, cls in SECTIONS.items():
        for item in filter(is_setting, dataclasses.fields(cls)):
            yield section, item.name


# -- what follows from other settings -------------------------------------------------------------


def _place_default_file(
    values: dict[str, object], sources: dict[str, str], environ: Mapping[str, str]
) -> None:
    """The default SQLite file is in the data folder, if there is one."""
    folder = environ.get(FOLDER_VARIABLE)
    if folder and "url" not in values:
        values["url"] = f"sqlite:///{Path(folder).absolute() / 'gnomon.db'}"
        sources["database.url"] = f"environment {FOLDER_VARIABLE}"


def _add_password(values: dict[str, object], sources: dict[str, str]) -> None:
    """Put the password of `database.password_file` into the URL."""
    name, url = values.get("password_file"), values.get("url")
    if name is None or not isinstance(url, str):
        return
    try:
        password = Path(str(name)).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise ConfigurationError("database.password_file", f"{name} cannot be read") from None
    parts = urlsplit(url)
    user, _, rest = parts.netloc.rpartition("@")
    user = user.partition(":")[0]
    netloc = f"{user}:{quote(password, safe='')}@{rest}"
    values["url"] = urlunsplit(parts._replace(netloc=netloc))
    sources["database.url"] = sources.get("database.url", DEFAULT) + " and password_file"
