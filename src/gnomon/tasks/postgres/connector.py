"""Making a connection: host names are looked up without stopping the event loop, and whatever goes
wrong is told in the original's words."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from psycopg import pq

from gnomon.tasks.postgres.wire import Wire, poll_until_done

CONNECT_TIMEOUT_S = 10.0


class ConnectRefused(Exception):  # noqa: N818 - an outcome with a name, not a fault
    """No connection: where it failed, in the original's words, and why, in the server's."""

    def __init__(self, step: str, detail: str, *, sqlstate: str | None = None) -> None:
        super().__init__(detail)
        self.step = step
        self.detail = detail
        self.sqlstate = sqlstate


async def connect(options: Mapping[str, str], *, timeout_s: float | None = None) -> Wire:
    """A new connection. Errors: ConnectRefused."""
    wanted = await _resolved(options)
    text = b" ".join(
        f"{key}={_conninfo_value(value)}".encode("utf-8", "surrogateescape")
        for key, value in wanted.items()
    )
    connection = pq.PGconn.connect_start(text)
    try:
        if connection.status == pq.ConnStatus.BAD:
            raise ConnectRefused("PQstatus == CONNECTION_BAD", _connect_words(connection))
        limit_s = timeout_s or _connect_timeout(options)
        async with asyncio.timeout(limit_s):
            is_connected = await poll_until_done(connection.connect_poll, lambda: connection.socket)
        if not is_connected:
            raise ConnectRefused("PQconnectPoll failed", _without_place(_connect_words(connection)))
    except TimeoutError:
        connection.finish()
        raise ConnectRefused("PQconnectPoll failed", "timeout expired") from None
    except BaseException:
        connection.finish()
        raise
    return Wire(connection)


async def _resolved(options: Mapping[str, str]) -> dict[str, str]:
    """The same with addresses for host names: libpq would stop the event loop to look them up."""
    found = dict(options)
    hosts = found.get("host", "").split(",")
    if "hostaddr" in found or not all(_is_name(host) for host in hosts):
        return found
    ports = found.get("port", "").split(",")
    ports = ports * len(hosts) if len(ports) == 1 else ports
    if len(ports) != len(hosts):
        return found  # libpq says what is wrong
    rows = [
        (host, address, port)
        for host, port in zip(hosts, ports, strict=True)
        for address in await _addresses(host)
    ]
    found["host"] = ",".join(row[0] for row in rows)
    found["hostaddr"] = ",".join(row[1] for row in rows)
    if "port" in found:
        found["port"] = ",".join(row[2] for row in rows)
    return found


def _is_name(host: str) -> bool:
    return bool(host) and not host.startswith(("/", "@"))


async def _addresses(host: str) -> list[str]:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, None, type=1)
    except (OSError, UnicodeError) as exc:
        words = getattr(exc, "strerror", None) or "Name or service not known"
        detail = f'could not translate host name "{host}" to address: {words}'
        raise ConnectRefused("PQstatus == CONNECTION_BAD", detail) from None
    return list(dict.fromkeys(str(item[4][0]) for item in found))


def _connect_timeout(options: Mapping[str, str]) -> float:
    try:
        return float(options["connect_timeout"]) or CONNECT_TIMEOUT_S
    except (KeyError, ValueError):
        return CONNECT_TIMEOUT_S


def _conninfo_value(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _connect_words(connection: pq.abc.PGconn) -> str:
    return (connection.error_message or b"").decode("utf-8", "replace").strip()


def _without_place(words: str) -> str:
    """Without `connection to server at "…", port … failed: `, which the original leaves out."""
    place, found, rest = words.partition(" failed: ")
    return rest if found and place.startswith("connection to server") else words
