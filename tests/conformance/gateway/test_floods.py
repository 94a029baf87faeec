"""Callers who take without end (design/security.md 7.4): others are served all the same."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gnomon.app import App
from gnomon.executors.python import AttemptContext
from gnomon.gateways.rest import server as rest_server
from gnomon.scheduler import barrier
from tests.conformance.gateway.conftest import Gateway

MOCK = {"type": "mock"}


# -- bodies ---------------------------------------------------------------------------------------


def keys(count: int) -> bytes:
    return b"{" + b",".join(b'"k%d":1' % number for number in range(count)) + b"}"


@pytest.mark.parametrize(
    ("raw", "is_bulk", "status"),
    [
        (b"[" * 100_000 + b"]" * 100_000, False, 413),
        (b"[" * 100_000 + b"]" * 100_000, True, 400),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, True, 400),
        (keys(1_000_000), False, 413),
        (keys(500_000), True, 400),
        (b'{"actions": [' + b"[" * 60_000 + b"]" * 60_000 + b"]}", True, 400),
        (b" " * (1024 * 1024 + 1), False, 413),
        (b'{"id": "' + b"\\u0041" * 10_000 + b'"}', False, 400),
        (b'"' + b"\\" * 60_000, False, 400),
        (b"1" * 60_000, False, 400),
        (b"-" * 60_000, False, 400),
        (b"1e" + b"9" * 60_000, False, 400),
    ],
)  # fmt: skip
async def test_bodies_that_explode_are_refused(
    gateway: Gateway, raw: bytes, is_bulk: bool, status: int
) -> None:
    """Deep, wide and long ones; in little time and with few words."""
    path = "/v1/actions:bulk" if is_bulk else "/v1/actions"
    async with asyncio.timeout(10):
        answer = await gateway.call("POST", path, raw=raw)
    assert status == answer.status
    assert len(answer.body) < 2000
    assert set() == await gateway.ids()
    assert [] == gateway.recorder.events, "nothing of it is a slip of ours"


@pytest.mark.parametrize("coding", ["gzip", "br", "zstd", "deflate", "identity, gzip", "x" * 100])
async def test_packed_bodies_are_not_unpacked(gateway: Gateway, coding: str) -> None:
    """Whatever they are packed with."""
    bomb = gzip.compress(bytes(10_000_000))
    answer = await gateway.call(
        "POST", "/v1/actions", raw=bomb, headers={"Content-Encoding": coding}
    )
    assert 415 == answer.status


async def test_chunks_without_end_are_given_up(gateway: Gateway) -> None:
    """After as much as any body may have."""

    async def pieces() -> AsyncIterator[bytes]:
        while True:
            yield b" " * 1024

    headers = {"Content-Type": "application/json"}
    async with asyncio.timeout(10):
        async with gateway.session.post(
            f"{gateway.url}/v1/actions", data=pieces(), headers=headers
        ) as response:
            assert 413 == response.status


# -- heads ----------------------------------------------------------------------------------------


async def test_a_head_that_does_not_end_is_given_up(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sending a byte now and then buys no time; sending none buys none either."""
    monkeypatch.setattr(rest_server, "HEAD_TIMEOUT_S", 0.3)

    async def drip(begin: bytes, drop: bytes) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(begin)
        try:
            while not reader.at_eof():
                writer.write(drop)
                await writer.drain()
                await asyncio.sleep(0.02)
        except ConnectionError:
            pass
        finally:
            writer.transport.abort()

    async with asyncio.timeout(10):
        await asyncio.gather(
            drip(b"GET /health HTTP/1.1\r\n", b"X: y\r\n"),
            drip(b"GET /", b"a"),
            drip(b"", b""),
            drip(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", b"G"),  # the second head
        )
    assert 200 == (await gateway.call("GET", "/health")).status


async def test_a_kept_connection_may_rest(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound is for heads that have begun, not for callers who come back, nor for answers."""
    monkeypatch.setattr(rest_server, "HEAD_TIMEOUT_S", 0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    try:
        for _ in range(2):
            writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"HTTP/1.1 200 OK\r\n" == await reader.readline()
            head = await reader.readuntil(b"\r\n\r\n")
            size = int(head.lower().partition(b"content-length: ")[2].split(b"\r")[0])
            await reader.readexactly(size)
            await asyncio.sleep(0.3)
    finally:
        writer.close()


# -- barriers -------------------------------------------------------------------------------------


@asynccontextmanager
async def working(app: App) -> AsyncIterator[None]:
    stop = asyncio.Event()
    running = asyncio.create_task(app.work(stop))
    try:
        yield
    finally:
        stop.set()
        await running


async def under_way(gateway: Gateway, name: str) -> None:
    """Create an action that takes as long as the test wants, and wait until it is under way."""
    effect = {"type": "python", "function": "hold"}
    body = {"id": name, "spec": {"action": effect, "timeout": "50s"}}
    assert 201 == (await gateway.call("POST", "/v1/actions", body)).status
    async with asyncio.timeout(10):
        while (await gateway.app.scheduler.get(name)).status.current_attempt is None:
            await asyncio.sleep(0.02)


async def test_a_flood_of_barriers_is_bounded(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who finds all places taken has changed nothing and is told when to come back; other calls
    are answered; who waits gets his answer when the attempt is over."""
    monkeypatch.setattr(barrier, "BARRIERS_MAX", 3)
    over = asyncio.Event()

    @gateway.app.action
    async def hold(_: AttemptContext) -> None:
        await over.wait()

    async with working(gateway.app):
        for number in range(4):
            await under_way(gateway, f"a{number}")
        waiting = [
            asyncio.create_task(gateway.call("DELETE", f"/v1/actions/a{number}?barrier=true"))
            for number in range(3)
        ]
        async with asyncio.timeout(10):
            while gateway.app.scheduler._barriers.count < 3:
                await asyncio.sleep(0.01)

        refused = [
            await gateway.call("DELETE", "/v1/actions/a3?barrier=true"),
            await gateway.call("PUT", "/v1/actions/a3?barrier=true", {"spec": {"action": MOCK}}),
        ]

        assert [(429, "exhausted", "barriers", 3)] * 2 == [
            (answer.status, *(answer.json[name] for name in ("code", "limit", "value")))
            for answer in refused
        ]
        assert {"5"} == {answer.headers["Retry-After"] for answer in refused}
        assert "active" == (await gateway.app.scheduler.get("a3")).status.state
        assert 200 == (await gateway.call("GET", "/v1/actions/a3")).status
        assert 200 == (await gateway.call("DELETE", "/v1/actions/a3")).status
        assert not any(task.done() for task in waiting)
        over.set()
        assert [200] * 3 == [(await task).status for task in waiting]
    assert 0 == gateway.app.scheduler._barriers.count


def test_who_waits_asks_less_and_less() -> None:
    """A hundred waiting callers are a hundred questions a second, not two thousand."""
    asked = barrier.pauses()
    found = [next(asked) for _ in range(20)]
    assert found == sorted(found)
    assert (0.05, 1.0) == (found[0], found[-1])
    assert 12 > sum(1 for pause in found if pause < 1)
