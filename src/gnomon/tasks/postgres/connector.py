"""Making a connection: host names are looked up without stopping the event loop, and whatever goes
wrong is told in the original's words."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from psycopg import Error as PsycopgError
from psycopg import generators, waiting
from psycopg.conninfo import make_conninfo

from gnomon.tasks.postgres.wire import Wire

CONNECT_TIMEOUT_S = 10.0
WAIT_S = 10.0  # at a time, for the server
AT_ONCE, LATER = "connection is bad: ", "connection failed: "  # psycopg's words before libpq's


class ConnectRefused(Exception):  # noqa: N818 - an outcome with a name, not a fault
    """No connection: where it failed, in the original's words, and why, in the server's."""

    def __init__(self, step: str, detail: str) -> None:
        super().__init__(detail)
        self.step = step
        self.detail = detail


async def connect(options: Mapping[str, str]) -> Wire:
    """A new connection. Errors: ConnectRefused."""
    resolved = await _resolved(options)
    try:
        connecting = generators.connect(make_conninfo("", **resolved))
        async with asyncio.timeout(_connect_timeout(options)):
            return Wire(await waiting.wait_conn_async(connecting, WAIT_S))
    except TimeoutError:
        raise ConnectRefused("PQconnectPoll failed", "timeout expired") from None
    except (PsycopgError, UnicodeError) as exc:
        words = str(exc).strip()
        if words.startswith(AT_ONCE):
            raise ConnectRefused(
                "PQstatus == CONNECTION_BAD", words.removeprefix(AT_ONCE)
            ) from None
        raise ConnectRefused(
            "PQconnectPoll failed", _without_place(words.removeprefix(LATER))
        ) from None


async def _resolved(options: Mapping[str, str]) -> dict[str, str]:
    """The same with addresses for host names: libpq would stop the event loop to look them up."""
    resolved = dict(options)
    hosts = resolved.get("host", "").split(",")
    if "hostaddr" in resolved or not all(_is_name(host) for host in hosts):
        return resolved
    ports = resolved.get("port", "").split(",")
    ports = ports * len(hosts) if len(ports) == 1 else ports
    if len(ports) != len(hosts):
        return resolved  # libpq says what is wrong
    rows = [
        (host, address, port)
        for host, port in zip(hosts, ports, strict=True)
        for address in await _addresses(host)
    ]
    resolved["host"] = ",".join(row[0] for row in rows)
    resolved["hostaddr"] = ",".join(row[1] for row in rows)
    if "port" in resolved:
        resolved["port"] = ",".join(row[2] for row in rows)
    return resolved


def _is_name(host: str) -> bool:
    return bool(host) and not host.startswith(("/", "@"))


async def _addresses(host: str) -> list[str]:
    loop = asyncio.get_running_loop()
    try:
        addresses = await loop.getaddrinfo(host, None, type=1)
    except (OSError, UnicodeError) as exc:
        words = getattr(exc, "strerror", None) or "Name or service not known"
        detail = f'could not translate host name "{host}" to address: {words}'
        raise ConnectRefused("PQstatus == CONNECTION_BAD", detail) from None
    return list(dict.fromkeys(str(item[4][0]) for item in addresses))


def _connect_timeout(options: Mapping[str, str]) -> float:
    try:
        return float(options["connect_timeout"]) or CONNECT_TIMEOUT_S
    except (KeyError, ValueError):
        return CONNECT_TIMEOUT_S


def _without_place(words: str) -> str:
    """Without `connection to server at "…", port … failed: `, which the original leaves out."""
    place, separator, rest = words.partition(" failed: ")
    return rest if separator and place.startswith("connection to server") else words
