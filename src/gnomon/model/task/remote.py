"""Which servers the column `remote` may lead to, where an operator lists them.

libpq does what a connection string says with the rights of the process: read its password file, its
keys and its services, speak to its sockets, send its password to any server. So only what names a
listed server and a login gets through, all of it must be there, and the rest is refused, not
ignored. Messages never show values: a password may be in any of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Self

from gnomon.model.errors import InvalidRequest

PORT_DEFAULT = 5432
NAME_BYTES_MAX = 63  # PostgreSQL cuts longer names, and so means another one
REQUIRED = ("host", "dbname", "user", "password")
ALLOWED = frozenset({*REQUIRED, "port", "sslmode"})
_HOST = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?", re.ASCII)


class RemoteTarget(NamedTuple):
    """An entry of the list: `host`, `host:port`, `host/database` or `host:port/database`."""

    host: str
    port: int
    database: str | None

    @classmethod
    def read(cls, text: str) -> Self:
        """Errors: ValueError."""
        place, _, database = text.partition("/")
        host, colon, port = place.rpartition(":")
        host = _folded(host if colon else place)
        if not _HOST.fullmatch(host) or (colon and not port.isdecimal()):
            raise ValueError(f"{place!r} is no host or host:port")
        return cls(host, int(port) if colon else PORT_DEFAULT, database or None)


def admit_remote(options: Mapping[str, str], targets: Iterable[RemoteTarget]) -> None:
    """Whether a connection string, taken apart, leads to one of the list. Errors:
    InvalidRequest."""
    for name in sorted(options.keys() - ALLOWED):
        raise InvalidRequest(f'the connection option "{name}" is not allowed')
    for name in REQUIRED:
        if not options.get(name):
            raise InvalidRequest(f"{name} is required")
    for name in ("dbname", "user"):
        _check_name(name, options[name])
    host, port = _folded(options["host"]), options.get("port", str(PORT_DEFAULT))
    database = options["dbname"]
    if not any(
        (target.host, str(target.port)) == (host, port) and target.database in (None, database)
        for target in targets
    ):
        raise InvalidRequest("host and port are not on the list of this installation")


def _check_name(option: str, value: str) -> None:
    """A dbname with = or a scheme is another connection string to libpq."""
    if "=" in value or "://" in value:
        raise InvalidRequest(f"{option} must not hold = or ://")
    if len(value.encode("utf-8", "replace")) > NAME_BYTES_MAX or not value.isprintable():
        raise InvalidRequest(f"{option} must be at most {NAME_BYTES_MAX} printable bytes")


def _folded(host: str) -> str:
    return host.lower().removesuffix(".")
