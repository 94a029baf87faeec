"""A listener for Prometheus alone: `GET /metrics`, and nothing else of the API."""

from __future__ import annotations

import asyncio
import hmac
import socket
from collections.abc import Mapping
from pathlib import Path

from gnomon.gateways.config import MetricsConfig
from gnomon.model.errors import ConfigurationError
from gnomon.telemetry.page import MetricsPage

HEAD_BYTES_MAX = 8 * 1024
HEAD_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 20.0
CONNECTIONS_MAX = 16  # at once; a scraper needs one
BACKLOG = 16
REASONS: Mapping[int, str] = {
    200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 405: "Method Not Allowed",
}  # fmt: skip


def bind_metrics(config: MetricsConfig) -> socket.socket | None:
    """Take the port, if one is wanted; `MetricsConfig` has refused what is not safe."""
    if config.listen is None:
        return None
    host, port = config.address
    taken = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind((host, port))
        taken.listen(BACKLOG)
    except OSError as exc:
        taken.close()
        raise ConfigurationError(
            "metrics.listen", f"cannot listen on {config.listen} ({exc.strerror}); choose another"
        ) from exc
    return taken


class MetricsListener:
    """Answers scrapers on a port of its own."""

    def __init__(self, listener: socket.socket, page: MetricsPage, config: MetricsConfig) -> None:
        self._listener = listener
        self._page = page
        self._token = read_token(config)
        self._count = 0

    @property
    def url(self) -> str:
        """Where scrapers find it."""
        host, port = self._listener.getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"

    async def serve(self, stop: asyncio.Event) -> None:
        """Answer until `stop` is set."""
        async with await asyncio.start_server(
            self._answer, sock=self._listener, limit=HEAD_BYTES_MAX
        ):
            await stop.wait()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._count += 1
        try:
            if self._count <= CONNECTIONS_MAX:
                async with asyncio.timeout(ANSWER_TIMEOUT_S):
                    status, body = await self._response(reader)
                    writer.write(_head(status, body, self._page.content_type) + body)
                    await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # who does not ask in time, or asks for too much, gets no answer
        finally:
            self._count -= 1
            writer.close()

    async def _response(self, reader: asyncio.StreamReader) -> tuple[int, bytes]:
        async with asyncio.timeout(HEAD_TIMEOUT_S):
            head = await reader.readuntil(b"\r\n\r\n")
        line, *fields = head.decode("latin-1").split("\r\n")
        words = line.split(" ")
        if len(words) != 3:
            return 400, b"this is no HTTP request\n"
        method, path, _ = words
        if not self._is_allowed(fields):
            return 401, b"send the token: Authorization: Bearer ...\n"
        if path.partition("?")[0] != "/metrics":
            return 404, b"there is /metrics only\n"
        if method not in ("GET", "HEAD"):
            return 405, b"GET it\n"
        return 200, b"" if method == "HEAD" else await self._page.render()

    def _is_allowed(self, fields: list[str]) -> bool:
        if self._token is None:
            return True
        pairs = (field.partition(":") for field in fields)
        given = [value.strip() for name, _, value in pairs if name.lower() == "authorization"]
        wanted = f"Bearer {self._token}"
        return len(given) == 1 and hmac.compare_digest(given[0].encode(), wanted.encode())


def _head(status: int, body: bytes, content_type: str) -> bytes:
    kind = content_type if status == 200 else "text/plain; charset=utf-8"
    ask = "WWW-Authenticate: Bearer\r\n" if status == 401 else ""
    return (
        f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(body)}\r\n{ask}Connection: close\r\n\r\n"
    ).encode()


def read_token(config: MetricsConfig) -> str | None:
    """What scrapers must send. Errors: ConfigurationError, which does not show it."""
    if config.token_file is None:
        return None
    try:
        token = Path(config.token_file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        token = ""
    if not token:
        raise ConfigurationError(
            "metrics.token_file", f"{config.token_file} cannot be read, or is empty"
        )
    return token
