"""Secrets by name: `[secrets.NAME]` says where the value is, never what it is.

A value is read when a worker starts; other processes need to know no more than that it exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from gnomon.config.values import read_value, show_value
from gnomon.executors.http import HeaderSecret
from gnomon.executors.http.config import host_of
from gnomon.model.errors import ConfigurationError, short
from gnomon.model.ids import NAME_PATTERN, NAME_RULE
from gnomon.model.secret import Secret

SECRET_BYTES_MAX = 64 * 1024
OPTIONS = ("file", "env", "headers_for")


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretSource:
    """Where a secret comes from: a file or an environment variable, and who may get it."""

    name: str
    file: str | None = None  # its content, without the line's end
    env: str | None = None  # the name of an environment variable
    # Hosts that HTTP actions may send it to in a header, as `"authorization": "secret://NAME"`.
    headers_for: tuple[str, ...] = ()
    given: Secret | None = field(default=None, repr=False)  # what the variable held

    def __post_init__(self) -> None:
        path = f"secrets.{self.name}"
        if not NAME_PATTERN.fullmatch(self.name):
            raise ConfigurationError(f"secrets.{short(self.name)}", NAME_RULE)
        if (self.file is None) == (self.env is None):
            raise ConfigurationError(path, "needs either file or env")
        for host in self.headers_for:
            try:
                host_of(host)
            except ValueError:
                raise ConfigurationError(f"{path}.headers_for", f"{host!r} is not a host") from None

    def shown(self) -> list[tuple[str, str]]:
        """Its options as `gnomon config show` prints them."""
        values = [(name, show_value(getattr(self, name))) for name in OPTIONS]
        return [(name, text) for name, text in values if text]

    def read(self) -> Secret:
        """The value. Errors: ConfigurationError, which does not show it."""
        value = self.given if self.file is None else self._read_file(self.file)
        where = "env" if self.file is None else "file"
        if not value:
            raise ConfigurationError(
                f"secrets.{self.name}.{where}", f"{self.env or self.file} is empty or not set"
            )
        if "\x00" in value.reveal():
            raise ConfigurationError(f"secrets.{self.name}.{where}", "must not hold NUL")
        return value

    def _read_file(self, name: str) -> Secret:
        try:
            with Path(name).open("rb") as stream:
                text = stream.read(SECRET_BYTES_MAX + 1).decode()
        except (OSError, UnicodeDecodeError):
            text = None
        if text is None or len(text) > SECRET_BYTES_MAX:
            raise ConfigurationError(
                f"secrets.{self.name}.file", f"{name} cannot be read as a text of up to 64 KiB"
            )
        return Secret(text.rstrip("\r\n"))


def read_secrets(
    tables: Mapping[str, object], environ: Mapping[str, str]
) -> Mapping[str, SecretSource]:
    """`[secrets.*]` as they are written. Errors: ConfigurationError."""
    sources = {}
    for name, table in tables.items():
        path = f"secrets.{name}"
        if not isinstance(table, dict):
            raise ConfigurationError(path, f"must be a table ([{path}])")
        options: dict[str, object] = {}
        for option, raw in table.items():
            check_option(option, OPTIONS, path)
            options[option] = read_value(SecretSource, option, raw, path=f"{path}.{option}")
        variable = environ.get(str(options.get("env")))
        given = None if variable is None else Secret(variable)
        sources[name] = SecretSource(name=name, given=given, **options)  # type: ignore[arg-type]
    return sources


def header_secrets(secrets: Mapping[str, SecretSource]) -> Mapping[str, HeaderSecret]:
    """Those that may be sent in headers, with their values."""
    sendable = {}
    for name, source in secrets.items():
        if not source.headers_for:
            continue
        value = source.read()
        if not value.reveal().isascii() or not value.reveal().isprintable():
            raise ConfigurationError(f"secrets.{name}", "must be visible ASCII to be a header")
        hosts = frozenset(host_of(host) for host in source.headers_for)
        sendable[name] = HeaderSecret(value, hosts)
    return sendable


def secret_of(secrets: Mapping[str, SecretSource], name: str) -> Secret:
    """The value of a secret. Errors: ConfigurationError."""
    if name not in secrets:
        raise ConfigurationError(f"secrets.{name}", "is not there")
    return secrets[name].read()


def check_option(option: str, known: tuple[str, ...], path: str) -> None:
    """Refuse an option that does not exist. Errors: ConfigurationError, with a suggestion."""
    if option not in known:
        close = get_close_matches(option, known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(known)}"
        raise ConfigurationError(f"{path}.{short(option)[1:-1]}", f"there is no such option{hint}")
