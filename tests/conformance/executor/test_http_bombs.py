"""What the HTTP executor makes of receivers that send without end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from gnomon.contracts.observer import SilentObserver
from gnomon.executors.http import HttpConfig
from gnomon.executors.http.bounded_handler import BYTES_MAX, MESSAGES_MAX, BoundedHandler
from gnomon.executors.http.executor import HttpExecutor
from gnomon.model.outcome import Failed, Outcome, Succeeded
from gnomon.model.spec import Http
from tests.conformance.executor.suite import order_of
from tests.fixtures.bombs import Bombs
from tests.fixtures.receiver import speaking
from tests.fixtures.serving import serving

TOO_LARGE = "answer too large"
TIMED_OUT = "timed out after 1 s"
OUTCOMES = {
    "hang": TIMED_OUT,
    "reset": "connection reset before an answer",
    "huge": None,  # the status is known, and it is good
    "endless": None,
    "redirect": "answered 307",
    "gzip": None,
    "drip": None,
    "slow-head": TIMED_OUT,
    "endless-head": TOO_LARGE,
    "endless-line": TOO_LARGE,
    "continue-stall": TIMED_OUT,
    "endless-continue": TOO_LARGE,
    "endless-extension": None,
    "endless-trailer": TOO_LARGE,
    "huge-chunk": None,
}


@pytest.fixture
async def bombs() -> AsyncIterator[Bombs]:
    async with Bombs().listening() as found:
        yield found


@pytest.fixture
async def executor() -> AsyncIterator[HttpExecutor]:
    config = HttpConfig(allow_loopback=True, answer_timeout=timedelta(seconds=0.5))
    found = HttpExecutor(config, SilentObserver())
    yield found
    await found.close()


async def get(executor: HttpExecutor, url: str, timeout_s: float = 30.0) -> Outcome:
    return await executor.execute(order_of(Http("GET", url), timeout_s=timeout_s))


def test_every_bomb_has_its_outcome() -> None:
    assert set(Bombs().ways) == set(OUTCOMES)


@pytest.mark.parametrize(("way", "error"), OUTCOMES.items())
async def test_a_bomb_is_one_attempt_and_little_is_taken_of_it(
    bombs: Bombs,
    executor: HttpExecutor,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    error: str | None,
) -> None:
    """The connection is given up with no more than a few buffers' worth read."""
    taken: list[int] = []
    take = BoundedHandler.data_received

    def counted(self: BoundedHandler, data: bytes) -> None:
        taken.append(len(data))
        take(self, data)

    monkeypatch.setattr(BoundedHandler, "data_received", counted)
    outcome = await get(executor, bombs.url(way), 1.0 if error == TIMED_OUT else 30.0)
    if error is None:
        assert isinstance(outcome, Succeeded)
    else:
        assert isinstance(outcome, Failed)
        assert error == outcome.error
    assert {way: 1} == bombs.calls
    assert sum(taken) < 2 * BYTES_MAX


async def test_interim_answers_are_allowed(executor: HttpExecutor) -> None:
    """As many as an honest receiver could mean, on every request of a kept connection."""
    interim = b"HTTP/1.1 100 Continue\r\n\r\n" * (MESSAGES_MAX - 1)
    connections: list[int] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(1)
        for _ in range(3):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(interim + b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")

    async with serving(answer) as port:
        url = f"http://127.0.0.1:{port}/"
        assert [Succeeded(answer="hi")] * 3 == [await get(executor, url) for _ in range(3)]
    assert 1 == len(connections)


async def test_too_many_interim_answers_are_not(executor: HttpExecutor) -> None:
    """Even if a good answer follows."""
    interim = b"HTTP/1.1 100 Continue\r\n\r\n" * 2 * MESSAGES_MAX
    async with speaking(interim + b"HTTP/1.1 200 OK\r\n\r\n") as url:
        assert Failed(error=TOO_LARGE) == await get(executor, url)


async def test_a_kept_connection_is_bounded_while_nobody_asks(
    executor: HttpExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers that nobody asked for are not collected."""
    given_up = asyncio.Event()
    give_up = BoundedHandler._give_up

    def noting(self: BoundedHandler) -> None:
        give_up(self)
        given_up.set()

    monkeypatch.setattr(BoundedHandler, "_give_up", noting)

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        while True:
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
            await writer.drain()
            await asyncio.sleep(0.001)

    async with serving(flood) as port:
        assert Succeeded() == await get(executor, f"http://127.0.0.1:{port}/")
        async with asyncio.timeout(10):
            await given_up.wait()
