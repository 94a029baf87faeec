"""One setting's value: how it is read from TOML, the environment or a flag, and how it is shown."""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from gnomon.model.duration import format_duration, parse_duration
from gnomon.model.errors import ConfigurationError, InvalidSpec
from gnomon.model.secret import HIDDEN, SECRET_PREFIX, Secret, secret_name

_SIZE = re.compile(r"(\d+)\s*(B|KiB|MiB|GiB|kB|MB|GB)?", re.ASCII)
_SIZE_UNITS = {
    "": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30,
}  # fmt: skip
_YES = frozenset({"true", "yes", "on", "1"})
_NO = frozenset({"false", "no", "off", "0"})


@dataclass(frozen=True, slots=True)
class SecretReference:
    """`secret://name`, before it is looked up."""

    name: str

    def __str__(self) -> str:
        return f"{SECRET_PREFIX}{self.name}"


def read_value(owner: type[Any], name: str, raw: object, *, path: str) -> object:
    """The value of a dataclass field out of what was written. Errors: ConfigurationError."""
    return _read(field_type(owner, name), raw, path)


def field_type(owner: type[Any], name: str) -> Any:
    """The type of a field, without `| None`."""
    hint = get_type_hints(owner)[name]
    if get_origin(hint) in (Union, types.UnionType):
        return next(part for part in get_args(hint) if part is not type(None))
    return hint


def _read(kind: Any, raw: object, path: str) -> object:
    origin = get_origin(kind)
    if origin is Literal:
        kind = str
    elif origin is not None and issubclass(origin, Mapping):
        return _read_table(get_args(kind)[1], raw, path)
    elif origin is not None:
        return _read_list(get_args(kind)[0], raw, path)
    return _READERS[kind](raw, path)


def is_secret(kind: Any) -> bool:
    """Whether a field holds secrets: one, or a list of them."""
    return kind is Secret or Secret in get_args(kind)


def _read_bool(raw: object, path: str) -> bool:
    text = str(raw).lower()
    if text not in _YES | _NO:
        raise ConfigurationError(path, f"must be true or false, not {raw!r}")
    return text in _YES


def _read_int(raw: object, path: str) -> int:
    """A whole number, or a size such as `1MiB`."""
    size = None if isinstance(raw, bool) else _SIZE.fullmatch(str(raw).replace("_", ""))
    if size is None:
        raise ConfigurationError(path, f"must be a whole number or a size (1MiB), not {raw!r}")
    return int(size[1]) * _SIZE_UNITS[size[2] or ""]


def _read_float(raw: object, path: str) -> float:
    try:
        return float(str(raw))
    except ValueError:
        raise ConfigurationError(path, f"must be a number, not {raw!r}") from None


def _read_text(raw: object, path: str) -> str:
    if not isinstance(raw, str):
        raise ConfigurationError(path, f"must be text, not {raw!r}")
    return raw


def _read_duration(raw: object, path: str) -> timedelta:
    if isinstance(raw, str) and re.fullmatch(r"\d+(\.\d+)?", raw):
        raw = float(raw)  # the environment has no numbers
    try:
        return parse_duration(raw, path)
    except InvalidSpec as exc:
        raise ConfigurationError(path, exc.problem) from None


def _read_secret(raw: object, path: str) -> Secret | SecretReference:
    """A text that is not shown again, or the name of one. The problem does not show it either."""
    if not isinstance(raw, str):
        raise ConfigurationError(path, "must be text, or secret://name")
    try:
        name = secret_name(raw)
    except ValueError as exc:
        raise ConfigurationError(path, str(exc)) from None
    return Secret(raw) if name is None else SecretReference(name)


def _read_table(kind: Any, raw: object, path: str) -> Mapping[str, object]:
    """`{mail = 5}` in TOML, `mail=5,slow=2` elsewhere."""
    if isinstance(raw, str):
        pairs = [item.partition("=") for item in raw.split(",") if item.strip()]
        raw = {name.strip(): value.strip() for name, _, value in pairs}
    if not isinstance(raw, Mapping):
        raise ConfigurationError(path, "must be a table, or text such as mail=5,slow=2")
    table = {str(name): _read(kind, value, f"{path}.{name}") for name, value in raw.items()}
    return types.MappingProxyType(table)


def _read_list(kind: Any, raw: object, path: str) -> tuple[object, ...]:
    """A list in TOML, `a,b` elsewhere."""
    if isinstance(raw, str):
        raw = [item.strip() for item in raw.split(",") if item.strip()]
    if not isinstance(raw, list | tuple):
        raise ConfigurationError(path, "must be a list, or text such as a,b")
    return tuple(_read(kind, item, path) for item in raw)


_READERS: dict[Any, Callable[[object, str], object]] = {
    bool: _read_bool,
    int: _read_int,
    float: _read_float,
    str: _read_text,
    timedelta: _read_duration,
    Secret: _read_secret,
}


def show_value(value: object) -> str:
    """A value as one would write it."""
    match value:
        case None:
            return ""
        case Secret():
            return HIDDEN
        case bool():
            return str(value).lower()
        case timedelta():
            return format_duration(value)
        case Mapping():
            return ",".join(f"{name}={item}" for name, item in value.items())
        case tuple():
            return ",".join(str(item) for item in value)
        case _:
            return str(value)


def show_kind(kind: Any) -> str:
    """A type as the reference names it."""
    origin = get_origin(kind)
    if origin is Literal:
        return " or ".join(f"`{choice}`" for choice in get_args(kind))
    if origin is not None:
        if issubclass(origin, Mapping):
            return f"name={show_kind(get_args(kind)[1])}, …"
        return "list of secrets" if is_secret(kind) else "list"
    names = {bool: "true or false", int: "number", float: "number", str: "text", Secret: "secret"}
    return names.get(kind, "duration")
