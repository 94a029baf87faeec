"""`[targets.NAME]`: read and checked in every process, filled with secrets in workers only."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gnomon.config.secrets import SecretSource, check_option
from gnomon.config.values import SecretReference, field_type, is_secret, read_value, show_value
from gnomon.executors.targets import Targets, target_class
from gnomon.model.errors import ConfigurationError, short
from gnomon.model.ids import NAME_PATTERN, NAME_RULE
from gnomon.model.secret import SECRET_PREFIX


@dataclass(frozen=True, slots=True)
class TargetTable:
    """A target as it is written: secrets are still names."""

    name: str
    kind: str
    options: Mapping[str, object]

    def shown(self) -> list[tuple[str, str]]:
        """Its options as `gnomon config show` prints them."""
        shown = [(name, show_value(value)) for name, value in self.options.items()]
        return [("kind", self.kind), *shown]


def read_targets(
    tables: Mapping[str, object], secrets: Mapping[str, SecretSource]
) -> Mapping[str, TargetTable]:
    """`[targets.*]` as they are written. Errors: ConfigurationError."""
    return {name: _read_target(name, table, secrets) for name, table in tables.items()}


def build_targets(
    tables: Mapping[str, TargetTable], secrets: Mapping[str, SecretSource]
) -> Targets:
    """The targets of a worker. Errors: ConfigurationError, also for a secret that is not there."""
    built = []
    for table in tables.values():
        cls = target_class(table.kind, path=f"targets.{table.name}.kind")
        options = {name: _filled(value, secrets) for name, value in table.options.items()}
        built.append(cls(name=table.name, **options))
    return Targets(built)


def target_options(cls: type[Any]) -> tuple[str, ...]:
    """What may be written in the table of a kind, beside `kind`; what is needed comes first."""
    options = [item for item in dataclasses.fields(cls) if item.init and item.name != "name"]
    return tuple(item.name for item in sorted(options, key=_is_needed, reverse=True))


def _is_needed(item: dataclasses.Field[Any]) -> bool:
    return item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING


def _read_target(name: str, table: object, secrets: Mapping[str, SecretSource]) -> TargetTable:
    path = f"targets.{name}"
    if not NAME_PATTERN.fullmatch(name):
        raise ConfigurationError(f"targets.{short(name)}", NAME_RULE)
    if not isinstance(table, dict):
        raise ConfigurationError(path, f"must be a table ([{path}])")
    if "kind" not in table:
        raise ConfigurationError(path, 'needs a kind, for example kind = "http"')
    cls = target_class(table["kind"], path=f"{path}.kind")
    known = target_options(cls)
    options = {}
    for option, raw in table.items():
        if option == "kind":
            continue
        check_option(option, known, path)
        _check_openness(cls, option, raw, path)
        value = read_value(cls, option, raw, path=f"{path}.{option}")
        _check_named(value, secrets, f"{path}.{option}")
        options[option] = value
    _check_complete(cls, options, path)
    return TargetTable(name, str(table["kind"]), options)


def _check_openness(cls: type[Any], option: str, raw: object, path: str) -> None:
    """A secret may stand only where it stays one: other options appear in messages and `repr`."""
    if is_secret(field_type(cls, option)):
        return
    parts = raw if isinstance(raw, list) else [raw]
    if any(isinstance(part, str) and part.startswith(SECRET_PREFIX) for part in parts):
        fit = [name for name in target_options(cls) if is_secret(field_type(cls, name))]
        hint = f"use {', '.join(fit)}" if fit else "this kind has no secret options"
        raise ConfigurationError(f"{path}.{option}", f"is shown openly, so holds no secret; {hint}")


def _check_named(value: object, secrets: Mapping[str, SecretSource], path: str) -> None:
    for part in value if isinstance(value, tuple) else (value,):
        if isinstance(part, SecretReference) and part.name not in secrets:
            raise ConfigurationError(path, f"there is no [secrets.{part.name}]")


def _check_complete(cls: type[Any], options: Mapping[str, object], path: str) -> None:
    for item in dataclasses.fields(cls):
        is_given = item.name == "name" or item.name in options
        if item.init and _is_needed(item) and not is_given:
            raise ConfigurationError(f"{path}.{item.name}", "is missing")


def _filled(value: object, secrets: Mapping[str, SecretSource]) -> object:
    if isinstance(value, SecretReference):
        return secrets[value.name].read()
    if isinstance(value, tuple):
        return tuple(_filled(part, secrets) for part in value)
    return value
