"""A program that makes HTTP calls and reports what of them was seen below the HTTP client.

    python -m tests.integration.http.wire packets FILE
        in a network namespace of its own: the kernel's packet counter, and a receiver that has
        every address there is
    python -m tests.integration.http.wire connects FILE
        anywhere: calls of connect(), by an audit hook

It reads `{"settings": {…}, "names": {name: [addresses of the first lookup, of the second, …]},
"urls": […], "certificate": a file or nothing}` on standard input and writes a list of
`{"url", "outcome", "seen", "reached", …}` into the file.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvloop
from aiohttp import web

from gnomon.contracts.observer import SilentObserver
from gnomon.executors.http import HttpConfig
from gnomon.executors.http.executor import HttpExecutor
from gnomon.model.spec import Http
from tests.conformance.executor.suite import order_of

PORTS = (80, 443)
SETTLE_S = 0.02  # a packet on its way is counted by then
REDIRECTS = {
    "/moved": "http://127.0.0.1/inner",
    "/bare": "//169.254.169.254/inner",
    "/relative": "/inner",
    "/file": "file:///etc/passwd",
}


class Names:
    """A resolver whose answers change from one question to the next; the last one stays."""

    def __init__(self, answers: dict[str, list[list[str]]]) -> None:
        self._answers = {name: list(lists) for name, lists in answers.items()}
        self.asked: list[str] = []

    async def lookup(
        self, name: str, port: int, family: socket.AddressFamily
    ) -> Sequence[tuple[socket.AddressFamily, str]]:
        self.asked.append(name)
        lists = self._answers.get(name.rstrip("."), [[]])
        found = lists.pop(0) if len(lists) > 1 else lists[0]
        return [(socket.AF_INET6 if ":" in text else socket.AF_INET, text) for text in found]


class Everywhere:
    """A receiver on all addresses; remembers by which of them it was reached, and for what."""

    def __init__(self, certificate: str | None = None) -> None:
        self.reached: list[str] = []
        self.names: list[str] = []  # asked for in TLS and in the request
        self._certificate = certificate
        self._asked = ""

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        address = request.transport.get_extra_info("sockname")[0].removeprefix("::ffff:")
        self.reached.append(f"{address}{request.path}")
        self.names.append(f"{self._asked} {request.headers['Host']}")
        if request.path in REDIRECTS:
            return web.Response(status=307, headers={"Location": REDIRECTS[request.path]})
        return web.Response(text="reached")

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        runner = web.ServerRunner(web.Server(self.answer))
        await runner.setup()
        for port in PORTS:
            tls = self._tls() if port == 443 and self._certificate else None
            for host in ("0.0.0.0", "::"):
                await web.TCPSite(runner, host, port, ssl_context=tls).start()
        yield
        await runner.cleanup()

    def _tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self._certificate or "")

        def note(_socket: object, name: str | None, _context: ssl.SSLContext) -> None:
            self._asked = name or ""

        context.sni_callback = note
        return context


def own_all_addresses() -> None:
    """In this network namespace, every address there is is this machine's."""
    for command in (
        "ip link set lo up",
        "ip route add local 0.0.0.0/0 dev lo",
        "ip -6 route add local ::/0 dev lo",
    ):
        subprocess.run(command.split(), check=True)


def packet_count() -> int:
    """Packets sent through any interface, as the kernel counts them."""
    lines = Path("/proc/net/dev").read_text().splitlines()[2:]
    return sum(int(line.partition(":")[2].split()[9]) for line in lines)


def traced_connects() -> Callable[[], int]:
    """Counts connect() and whatever sends without it, in this process."""
    seen: list[str] = []

    def hook(event: str, _arguments: tuple[Any, ...]) -> None:
        if event in ("socket.connect", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo"):
            seen.append(event)

    sys.addaudithook(hook)
    return lambda: len(seen)


async def call_all(
    wanted: dict[str, Any], counter: Callable[[], int], receiver: Everywhere
) -> list[dict[str, Any]]:
    found = []
    for url in wanted["urls"]:
        names = Names(wanted["names"])
        executor = HttpExecutor(
            HttpConfig(**wanted["settings"]), SilentObserver(), lookup=names.lookup
        )
        receiver.reached.clear()
        receiver.names.clear()
        before = counter()
        outcome = await executor.execute(order_of(Http("POST", url, body="x"), timeout_s=2.0))
        await asyncio.sleep(SETTLE_S)
        seen = counter() - before
        await executor.close()
        found.append({
            "url": url,
            "outcome": getattr(outcome, "error", "succeeded"),
            "seen": seen,
            "reached": list(receiver.reached),
            "asked": names.asked,
            "names": list(receiver.names),
        })  # fmt: skip
    return found


async def in_namespace(wanted: dict[str, Any]) -> list[dict[str, Any]]:
    own_all_addresses()
    receiver = Everywhere(wanted.get("certificate"))
    async with receiver.listening():
        return await call_all(wanted, packet_count, receiver)


def main() -> None:
    wanted = json.load(sys.stdin)
    for name in ("ports", "allow_networks", "allow_hosts"):
        if name in wanted["settings"]:
            wanted["settings"][name] = tuple(wanted["settings"][name])
    if sys.argv[1] == "packets":
        found = uvloop.run(in_namespace(wanted))  # the event loop of production
    else:
        # The loop of the standard library: uvloop connects in C, unseen by the hook.
        found = asyncio.run(call_all(wanted, traced_connects(), Everywhere()))
    Path(sys.argv[2]).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
