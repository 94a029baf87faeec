"""Server-sent events, and the clients that watch."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest

from gnomon.client import BlockingClient, Client
from gnomon.contracts.store import Selection
from gnomon.gateways import watchers
from gnomon.model.action import State
from gnomon.model.errors import AlreadyExists, InvalidRequest, NotFound, Unavailable
from gnomon.model.spec import Mock, Spec
from gnomon.scheduler import Request
from tests.conformance.gateway.conftest import Gateway
from tests.conformance.gateway.guarded import Guarded, guarded_server

WAIT_S = 60


async def wait_for_watchers(guarded: Guarded, count: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while guarded.watchers.count != count:
            await asyncio.sleep(0.01)


async def test_every_change_is_an_event(gateway: Gateway, client: Client) -> None:
    """The action as it is, each change, and the end; then the stream ends, too."""
    await gateway.create("a")
    seen = []
    async with asyncio.timeout(WAIT_S):
        async for action in client.watch("a"):
            seen.append(action.status.state)
            if len(seen) == 1:
                await client.pause("a")
            elif len(seen) == 2:
                await client.delete("a")
    assert [State.ACTIVE, State.PAUSED, State.CANCELLED] == seen


async def test_the_stream_is_what_browsers_read(gateway: Gateway) -> None:
    """`text/event-stream`, not kept by caches, events named `action` in one line of JSON."""
    await gateway.create("a")
    await gateway.call("DELETE", "/v1/actions/a")
    answer = await gateway.call("GET", "/v1/actions/a/events")
    shown = await gateway.call("GET", "/v1/actions/a")
    assert 200 == answer.status
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    assert "no-store" == answer.headers["Cache-Control"]
    assert b"event: action\ndata: " + shown.body + b"\n\n" == answer.body


async def test_what_does_not_exist_cannot_be_watched(gateway: Gateway, client: Client) -> None:
    answer = await gateway.call("GET", "/v1/actions/nobody/events")
    assert (404, "not_found") == (answer.status, answer.json["code"])
    with pytest.raises(NotFound):
        await anext(client.watch("nobody"))


async def test_silence_is_filled_with_heartbeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that nobody on the way takes the connection for dead."""
    monkeypatch.setattr(watchers, "CONFIRM_S", 0.02)
    async with guarded_server(tmp_path) as guarded:
        await guarded.post(None, "a")
        async with guarded.session.get(f"{guarded.url}/v1/actions/a/events") as response:
            async with asyncio.timeout(WAIT_S):
                lines = [await response.content.readline() for _ in range(7)]
        assert [b": still here\n", b"\n", b": still here\n", b"\n"] == lines[3:]


async def test_who_goes_away_is_forgotten(tmp_path: Path) -> None:
    """A client that disconnects frees its place at once."""
    async with guarded_server(tmp_path) as guarded:
        await guarded.post(None, "a")
        async with aiohttp.ClientSession() as session:
            response = await session.get(f"{guarded.url}/v1/actions/a/events")
            await response.content.readline()
            assert 1 == guarded.watchers.count
            response.close()
        await wait_for_watchers(guarded, 0)
        assert [] == guarded.recorder.events


async def test_watchers_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One too many is told to come back; a place that gets free can be taken."""
    monkeypatch.setattr(watchers, "WATCHERS_MAX", 2)
    async with guarded_server(tmp_path) as guarded, Client(guarded.url) as client:
        await guarded.post(None, "a")
        first, second = client.watch("a"), client.watch("a")
        await anext(first)
        await anext(second)
        refused = await guarded.ask(None, "GET", "/v1/actions/a/events")
        assert (429, "watchers") == (refused.status, refused.json["limit"])
        assert "5" == refused.headers["Retry-After"]
        await first.aclose()
        await wait_for_watchers(guarded, 1)
        third = client.watch("a")
        assert "a" == (await anext(third)).meta.id
        await second.aclose()
        await third.aclose()


async def test_the_end_of_the_server_ends_the_watch(tmp_path: Path) -> None:
    """Watchers do not hold up a shutdown, and the client is told to watch again."""
    async with guarded_server(tmp_path) as guarded:
        client = Client(guarded.url)
        await guarded.post(None, "a")
        watched = client.watch("a")
        await anext(watched)
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < 4
    with pytest.raises(Unavailable):
        await anext(watched)
    await client.close()


# -- the blocking client --------------------------------------------------------------------------


async def test_the_blocking_client_has_every_verb(tmp_path: Path) -> None:
    """Without an event loop of its own, from a thread, with a token."""
    async with guarded_server(tmp_path) as guarded:
        token = await guarded.token("shop")
        await asyncio.to_thread(_use_blocking, guarded.url, token)
        verbs = {name for name in vars(Client) if not name.startswith("_")}
        assert verbs == {name for name in vars(BlockingClient) if not name.startswith("_")}


def _use_blocking(url: str, token: str) -> None:
    request = Request(id="a", key="k", spec=Spec(action=Mock()))
    with BlockingClient(url, token=token) as client:
        created = client.create(request).action
        assert client.create(request).repeated
        assert created == client.get("a")
        (taken,) = client.create_many([Request(id="a", spec=request.spec)])
        assert isinstance(taken, AlreadyExists)
        guid = created.meta.guid
        assert State.PAUSED == client.pause("a", if_match=guid).action.status.state
        assert State.ACTIVE == client.resume("a").action.status.state
        assert "a" == client.run_now("a").action.meta.id
        assert ["a"] == [action.meta.id for action in client.list(Selection()).actions]
        assert guid != client.replace(Request(id="a", spec=request.spec)).action.meta.guid
        watched = client.watch("a")
        assert State.ACTIVE == next(watched).status.state
        client.delete("a", barrier=True)
        assert [State.CANCELLED] == [action.status.state for action in watched]
        assert State.ACTIVE == client.retry("a").action.status.state
        assert [] == list(client.attempts("a"))
        assert "ok" == client.health()["status"]
        with pytest.raises(NotFound):
            client.get("nobody")
    client.close()
    with pytest.raises(InvalidRequest, match="closed"):
        client.get("a")


@pytest.mark.parametrize("token", ["", "a b", "a\nb", "é"])
async def test_what_is_no_token_is_not_sent(token: str) -> None:
    with pytest.raises(InvalidRequest, match="token"):
        Client("http://127.0.0.1:9", token=token)
    with pytest.raises(InvalidRequest, match="token"):
        await asyncio.to_thread(BlockingClient, "http://127.0.0.1:9", token=token)
