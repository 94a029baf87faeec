"""What callers below the scope `admin` see of payloads, and what they cannot overwrite."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gnomon.gateways.config import ServerConfig
from gnomon.model.function import FunctionParameter, FunctionRecord, encode_functions
from tests.conformance.gateway.guarded import Guarded, guarded_server

REDACT = ("args.password", "headers.authorization", "body.card.*")
SECRET = "s3cret-value"
EFFECTS: dict[str, dict[str, Any]] = {
    "by-name": {"type": "python", "function": "login", "kwargs": {"password": SECRET, "a": 1}},
    "by-place": {"type": "python", "function": "login", "args": ["ann", SECRET]},
    "http": {
        "type": "http", "method": "POST", "url": "https://example.org/",
        "headers": {"Authorization": SECRET}, "json": {"card": {"no": SECRET}, "order": 17},
    },
}  # fmt: skip


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Guarded]:
    config = ServerConfig(port=0, redact=REDACT)
    async with guarded_server(tmp_path, required=True, config=config) as found:
        user = FunctionParameter(name="user", place=0)
        password = FunctionParameter(name="password", place=1, default=SECRET)
        login = FunctionRecord(name="login", parameters=(user, password))
        await found.app.store.programs.serve_functions(
            "shop", "1", encode_functions([login])[0], kept_for=timedelta(hours=1)
        )
        yield found


async def made(guarded: Guarded) -> tuple[str, str]:
    """An administrator and an operator, and an action of each kind."""
    admin = await guarded.token("root", "admin")
    writer = await guarded.token("ann", "read", "write")
    for id, effect in EFFECTS.items():
        spec = {"action": effect, "start_at": "2100-01-01T00:00:00Z"}
        answer = await guarded.ask(admin, "POST", "/v1/actions", {"id": id, "spec": spec})
        assert 201 == answer.status
        assert SECRET in answer.body.decode()
    return admin, writer


async def test_hidden_values_are_for_admin_alone(guarded: Guarded) -> None:
    """In every answer, and in the stream; the rest of the payload is shown."""
    admin, writer = await made(guarded)
    for id, effect in EFFECTS.items():
        whole = (await guarded.ask(admin, "GET", f"/v1/actions/{id}")).json["spec"]["action"]
        assert effect == whole
        for method, path in (
            ("GET", f"/v1/actions/{id}"), ("POST", f"/v1/actions/{id}/pause"),
            ("POST", f"/v1/actions/{id}/resume"), ("GET", f"/v1/actions?id_prefix={id}"),
            ("GET", f"/v1/actions/{id}/attempts"), ("GET", "/v1/functions"), ("GET", "/v1/audit"),
        ):  # fmt: skip
            answer = await guarded.ask(writer, method, path)
            assert 200 == answer.status
            assert SECRET not in answer.body.decode(), path
        async with guarded.session.get(
            f"{guarded.url}/v1/actions/{id}/events", headers={"Authorization": f"Bearer {writer}"}
        ) as stream:
            assert SECRET.encode() not in await _first_event(stream)
    seen = {id: (await guarded.ask(writer, "GET", f"/v1/actions/{id}")).json["spec"]["action"]
            for id in EFFECTS}  # fmt: skip
    assert {"password": "[redacted]", "a": 1} == seen["by-name"]["kwargs"]
    assert ["ann", "[redacted]"] == seen["by-place"]["args"]
    assert {"card": {"no": "[redacted]"}, "order": 17} == seen["http"]["json"]


async def _first_event(stream: aiohttp.ClientResponse) -> bytes:
    async for line in stream.content:
        if line.startswith(b"data: "):
            return line
    raise AssertionError("no event")


async def test_the_marker_is_never_stored(guarded: Guarded) -> None:
    """Not by a replace, a copy or a bulk, whoever asks; the value stays what it was."""
    admin, writer = await made(guarded)
    for id, effect in EFFECTS.items():
        seen = (await guarded.ask(writer, "GET", f"/v1/actions/{id}")).json["spec"]
        for token in (admin, writer):
            replaced = await guarded.ask(token, "PUT", f"/v1/actions/{id}", {"spec": seen})
            assert (400, "invalid_spec") == (replaced.status, replaced.json["code"])
            assert replaced.json["path"].startswith("spec.action.")
            copied = await guarded.ask(token, "POST", "/v1/actions", {"id": "copy", "spec": seen})
            assert 400 == copied.status
        many = {"actions": [{"id": "m-1", "spec": seen}, {"spec": {"action": {"type": "mock"}}}]}
        items = (await guarded.ask(writer, "POST", "/v1/actions:bulk", many)).json["items"]
        assert ["problem", "action"] == [next(iter(item)) for item in items]
        whole = (await guarded.ask(admin, "GET", f"/v1/actions/{id}")).json["spec"]["action"]
        assert effect == whole


async def test_a_filter_does_not_tell_what_is_hidden(guarded: Guarded) -> None:
    """Who may not see a value may not guess it either."""
    admin, writer = await made(guarded)
    for query in (f"password={SECRET}", f"1={SECRET}", f"card.no={SECRET}"):
        for path in ("/v1/actions", "/v1/actions:count"):
            refused = await guarded.ask(writer, "GET", f"{path}?argument={query}")
            assert 403 == refused.status
        assert 200 == (await guarded.ask(admin, "GET", f"/v1/actions?argument={query}")).status
    for path in ("/v1/actions", "/v1/actions:count"):
        asked = f"{path}?error_contains={SECRET[:2]}"
        assert 403 == (await guarded.ask(writer, "GET", asked)).status
        assert 200 == (await guarded.ask(admin, "GET", asked)).status
    found = await guarded.ask(writer, "GET", "/v1/actions?argument=order=17")
    assert ["http"] == [action["meta"]["id"] for action in found.json["actions"]]
