"""Where a user wants to connect to, in libpq's words: read strictly, and judged by a policy.

libpq does what such a string says with the rights of the process: read its password file, its keys
and its services, speak to its sockets, send its password to any server. So only what names a server
and a login gets through, the password must be there, and the rest is refused, not ignored. Nothing
here resolves names: whoever connects judges each address by `is_allowed_address`, and connects to
an address it has judged. It must not let `PG*` variables of its environment fill in the rest.

Messages never show values: a password may be in any of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote_to_bytes

from gnomon.model.addresses import Address, Network, is_forbidden, literal_of
from gnomon.model.errors import ConfigurationError, InvalidRequest
from gnomon.model.secret import Secret

CONNINFO_CHARS_MAX = 4_096
NAME_BYTES_MAX = 63  # PostgreSQL cuts longer names, and so means another one
PASSWORD_CHARS_MAX = 1_000
PORT_DEFAULT = 5432
SSLMODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")  # weakest first
SSLMODE_STRONGEST = SSLMODES[-1]
ALLOWED = frozenset({"host", "port", "dbname", "user", "password", "sslmode"})
_URI_PREFIXES = ("postgresql://", "postgres://")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_HOST = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?", re.ASCII)
_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_BLANK = " \t\n\r\v\f"

Mode = Literal["off", "listed", "free"]


class ConninfoRefused(InvalidRequest):
    """A connection string that cannot be read, or that the policy does not allow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConninfoPolicy:
    """Which connection strings of users are followed."""

    mode: Mode = "off"  # `listed`: only to `hosts`; `free`: to any public address
    hosts: tuple[str, ...] = ()  # host or host:port; without a port it is 5432
    sslmode_min: str = SSLMODE_STRONGEST  # weaker ones are possible for listed hosts only
    networks: tuple[Network, ...] = ()  # private ones that may be connected to all the same

    def __post_init__(self) -> None:
        if self.mode not in ("off", "listed", "free"):
            raise ConfigurationError("conninfo.mode", "must be off, listed or free")
        if self.sslmode_min not in SSLMODES:
            raise ConfigurationError(
                "conninfo.sslmode_min", f"must be one of {', '.join(SSLMODES)}"
            )
        if self.mode == "free" and self.sslmode_min != SSLMODE_STRONGEST:
            problem = "must be verify-full where users choose the server"
            raise ConfigurationError("conninfo.sslmode_min", problem)
        for entry in self.hosts:
            if not _HOST.fullmatch(_place_of(entry)[0]):
                raise ConfigurationError("conninfo.hosts", f"{entry!r} is no host or host:port")

    def is_listed(self, host: str, port: int) -> bool:
        return (_folded(host), port) in {_place_of(entry) for entry in self.hosts}

    def is_allowed_address(self, address: Address, *, host: str, port: int) -> bool:
        """Whether to connect there. A listed host may be anywhere: the operator named it."""
        return self.is_listed(host, port) or not is_forbidden(address, self.networks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conninfo:
    """A server and a login, as the policy let them through."""

    host: str
    port: int
    dbname: str
    user: str
    password: Secret
    sslmode: str

    def settings(self) -> Mapping[str, str]:
        """In libpq's words, with the password."""
        return {
            "host": self.host,
            "port": str(self.port),
            "dbname": self.dbname,
            "user": self.user,
            "password": self.password.reveal(),
            "sslmode": self.sslmode,
        }


def admit_conninfo(text: str, policy: ConninfoPolicy) -> Conninfo:
    """What to connect to. Errors: ConninfoRefused."""
    if policy.mode == "off":
        raise ConninfoRefused("connection strings are switched off here")
    given = parse_conninfo(text)
    for name in sorted(given.keys() - ALLOWED):
        raise ConninfoRefused(f'the connection option "{_shown(name)}" is not allowed')
    for name in ("host", "dbname", "user", "password"):
        if not given.get(name):
            raise ConninfoRefused(f"{name} is required")
    host, port = given["host"], _port_of(given.get("port", str(PORT_DEFAULT)))
    _check_host(host)
    for name in ("dbname", "user"):
        _check_name(name, given[name])
    if len(given["password"]) > PASSWORD_CHARS_MAX or "\x00" in given["password"]:
        raise ConninfoRefused("password is too long, or holds NUL")
    found = Conninfo(
        host=host,
        port=port,
        dbname=given["dbname"],
        user=given["user"],
        password=Secret(given["password"]),
        sslmode=given.get("sslmode", policy.sslmode_min),
    )
    _judge(found, policy)
    return found


def _judge(found: Conninfo, policy: ConninfoPolicy) -> None:
    is_listed = policy.is_listed(found.host, found.port)
    if policy.mode == "listed" and not is_listed:
        raise ConninfoRefused("host and port are not on the list of this installation")
    least = policy.sslmode_min if is_listed else SSLMODE_STRONGEST
    if found.sslmode not in SSLMODES:
        raise ConninfoRefused("sslmode is not one of libpq's")
    if SSLMODES.index(found.sslmode) < SSLMODES.index(least):
        raise ConninfoRefused(f"sslmode must be {least} or stronger")
    address = _literal(found.host)
    if address is not None and not policy.is_allowed_address(
        address, host=found.host, port=found.port
    ):
        raise ConninfoRefused("host is an address that is not allowed")


# -- parts ----------------------------------------------------------------------------------------


def _check_host(host: str) -> None:
    if host[0] in "/@":
        raise ConninfoRefused("host must not be a socket of this machine")
    if "," in host:
        raise ConninfoRefused("host must be one host")
    if _literal(host) is None and not _HOST.fullmatch(host):
        raise ConninfoRefused("host must be a plain name or address")


def _literal(host: str) -> Address | None:
    try:
        return literal_of(host)
    except ValueError:
        raise ConninfoRefused("host is a number in an odd form") from None


def _port_of(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text, re.ASCII) or not 1 <= int(text) <= 65_535:
        raise ConninfoRefused("port must be one number from 1 to 65535")
    return int(text)


def _check_name(option: str, value: str) -> None:
    """A dbname with = or a scheme is another connection string to libpq."""
    if "=" in value or "://" in value:
        raise ConninfoRefused(f"{option} must not hold = or ://")
    if len(value.encode("utf-8", "replace")) > NAME_BYTES_MAX or not value.isprintable():
        raise ConninfoRefused(f"{option} must be at most {NAME_BYTES_MAX} printable bytes")


def _place_of(entry: str) -> tuple[str, int]:
    host, colon, port = entry.rpartition(":")
    if not colon or ":" in host:  # no port, or an address of IPv6
        return _folded(entry), PORT_DEFAULT
    return _folded(host), int(port) if port.isdecimal() else 0


def _folded(host: str) -> str:
    return host.lower().removesuffix(".")


def _shown(name: str) -> str:
    return name[:40] if _KEY.fullmatch(name) else "?"


# -- reading --------------------------------------------------------------------------------------


def parse_conninfo(text: str) -> Mapping[str, str]:
    """The options of a `key=value …` string or a URI, by libpq's grammar, but none given twice.
    Errors: ConninfoRefused, in libpq's words where it has some."""
    if len(text) > CONNINFO_CHARS_MAX:
        raise ConninfoRefused(f"the connection string is longer than {CONNINFO_CHARS_MAX}")
    if "\x00" in text:
        raise ConninfoRefused("the connection string holds NUL")
    pairs = _uri_pairs(text) if text.startswith(_URI_PREFIXES) else _plain_pairs(text)
    found: dict[str, str] = {}
    for name, value in pairs:
        if name in found:
            raise ConninfoRefused(f'the connection option "{_shown(name)}" is given twice')
        found[name] = value
    return found


def _plain_pairs(text: str) -> Iterator[tuple[str, str]]:
    place = _skip_blank(text, 0)
    while place < len(text):
        begin = place
        while place < len(text) and text[place] != "=" and text[place] not in _BLANK:
            place += 1
        name = text[begin:place]
        place = _skip_blank(text, place)
        if text[place : place + 1] != "=":
            shown = _shown(name)
            raise ConninfoRefused(f'missing "=" after "{shown}" in connection info string')
        value, place = _plain_value(text, _skip_blank(text, place + 1))
        yield name, value
        place = _skip_blank(text, place)


def _plain_value(text: str, place: int) -> tuple[str, int]:
    """A value and the place after it; a backslash takes the next character as it is."""
    is_quoted = text[place : place + 1] == "'"
    place += is_quoted
    value = []
    while place < len(text):
        char = text[place]
        if (is_quoted and char == "'") or (not is_quoted and char in _BLANK):
            break
        if char == "\\":
            place += 1
            char = text[place : place + 1]
        value.append(char)
        place += 1
    if is_quoted and place >= len(text):
        raise ConninfoRefused("unterminated quoted string in connection info string")
    return "".join(value), place + is_quoted


def _skip_blank(text: str, place: int) -> int:
    while place < len(text) and text[place] in _BLANK:
        place += 1
    return place


def _uri_pairs(text: str) -> Iterator[tuple[str, str]]:
    """`postgresql://user:password@host:port/dbname?option=value&…`."""
    rest = text.partition("://")[2]
    if "#" in rest:
        raise ConninfoRefused("the connection string has a fragment")
    rest, _, query = rest.partition("?")
    authority, _, dbname = rest.partition("/")
    login, _, place = authority.rpartition("@")
    user, _, password = login.partition(":")
    host, port = _uri_place(place)
    parts = {"user": user, "password": password, "host": host, "port": port, "dbname": dbname}
    yield from ((name, _decoded(value)) for name, value in parts.items() if value)
    for item in query.split("&") if query else ():
        name, mark, value = item.partition("=")
        if not mark or "=" in value:
            raise ConninfoRefused("the connection string has a query that is no option=value")
        yield _decoded(name), _decoded(value)


def _uri_place(place: str) -> tuple[str, str]:
    if place.startswith("["):
        host, bracket, port = place[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            raise ConninfoRefused("the connection string has a broken IPv6 address")
        return host, port[1:]
    host, _, port = place.partition(":")
    return host, port


def _decoded(text: str) -> str:
    if _PERCENT.search(text):
        raise ConninfoRefused("invalid percent-encoded token in connection info string")
    try:
        found = unquote_to_bytes(text).decode("utf-8")
    except UnicodeDecodeError:
        raise ConninfoRefused("the connection string is not UTF-8") from None
    if "\x00" in found:
        raise ConninfoRefused("forbidden value %00 in percent-encoded value")
    return found
