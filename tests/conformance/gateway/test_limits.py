"""Limits over REST and by the client: read by readers, changed by operators, strictly."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gnomon.client import BlockingClient, Client
from gnomon.contracts.store import AuditSelection, LimitUse
from gnomon.model.errors import Forbidden, InvalidSpec, NotFound
from gnomon.model.limits import Limit, LimitKind
from tests.conformance.gateway.conftest import Gateway
from tests.conformance.gateway.guarded import guarded_server

MAIL = Limit(kind=LimitKind.QUEUE, name="mail", parallel=10, rate=50.0)
PATH = "/v1/limits/queue/mail"


async def test_a_limit_is_set_shown_and_dropped(gateway: Gateway) -> None:
    """Every answer is the limit, whole, with its use."""
    wanted = {"kind": "queue", "name": "mail", "parallel": 10, "rate": 2.5, "burst": None}
    wanted |= {"granted": 0, "wanted": 0}
    answers = [await gateway.call("PUT", PATH, {"parallel": 10, "rate": 2.5})]
    answers.append(await gateway.call("GET", PATH))
    every = await gateway.call("GET", "/v1/limits")
    answers.append(await gateway.call("DELETE", PATH))

    assert [(200, wanted)] * 3 == [(answer.status, answer.json) for answer in answers]
    assert {"limits": [wanted]} == every.json
    assert {"limits": []} == (await gateway.call("GET", "/v1/limits")).json
    for method in ("GET", "DELETE"):
        gone = await gateway.call(method, PATH)
        assert (404, "not_found", "limit") == (gone.status, gone.json["code"], gone.json["kind"])


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (PATH, {}, "parallel"),
        (PATH, {"parallel": -1}, "parallel"),
        (PATH, {"parallel": 1.5}, "parallel"),
        (PATH, {"parallel": True}, "parallel"),
        (PATH, {"parallel": "10"}, "parallel"),
        (PATH, {"parallel": 10**6 + 1}, "parallel"),
        (PATH, {"rate": 0}, "rate"),
        (PATH, {"rate": -5}, "rate"),
        (PATH, {"rate": 1e9}, "rate"),
        (PATH, {"rate": "fast"}, "rate"),
        (PATH, {"rate": 5, "burst": 0}, "burst"),
        (PATH, {"parallel": 5, "burst": 5}, "burst"),
        (PATH, {"parallell": 5}, "parallell"),
        ("/v1/limits/group/mail", {"parallel": 5}, "kind"),
        ("/v1/limits/queue/no%20name", {"parallel": 5}, "name"),
        ("/v1/limits/queue/" + "a" * 65, {"parallel": 5}, "name"),
    ],
)
async def test_a_bad_limit_is_refused(gateway: Gateway, path: str, body: Any, field: str) -> None:
    """The field is named, and nothing is stored."""
    answer = await gateway.call("PUT", path, body)
    assert (400, field) == (answer.status, answer.json["path"])
    assert {"limits": []} == (await gateway.call("GET", "/v1/limits")).json


async def test_only_an_operator_changes_limits(tmp_path: Path) -> None:
    """Who may write actions may not; who may read sees them. The audit says who it was."""
    async with guarded_server(tmp_path) as guarded:
        admin, reader = await guarded.token("admin"), await guarded.token("reader", "read")
        writer = await guarded.token("writer", "read", "write")
        assert 401 == (await guarded.ask(None, "PUT", PATH, {"parallel": 1})).status
        for method, body in (("PUT", {"parallel": 1}), ("DELETE", None)):
            refused = await guarded.ask(writer, method, PATH, body)
            assert (403, "admin") == (refused.status, refused.json["scope"])
        assert 200 == (await guarded.ask(admin, "PUT", PATH, {"parallel": 1})).status
        assert 200 == (await guarded.ask(reader, "GET", PATH)).status
        assert 200 == (await guarded.ask(admin, "DELETE", PATH)).status
        entries = await guarded.app.store.tokens.list_audit(
            AuditSelection(id="queue/mail"), limit=9
        )
        assert [("admin", "drop_limit"), ("admin", "set_limit")] == [
            (entry.actor, entry.verb) for entry in entries
        ]


async def test_the_client_has_the_schedulers_values(gateway: Gateway, client: Client) -> None:
    """What is set by one is shown by the other."""
    use = await client.set_limit(MAIL)
    assert LimitUse(limit=MAIL) == use == await gateway.app.scheduler.get_limit("queue", "mail")
    assert [use] == await client.list_limits()
    assert use == await client.get_limit("queue", "mail")
    assert use == await client.drop_limit("queue", "mail")
    with pytest.raises(NotFound):
        await client.drop_limit("queue", "mail")
    with pytest.raises(InvalidSpec):
        await client.get_limit("group", "mail")


async def test_the_blocking_client_does_the_same(tmp_path: Path) -> None:
    """For programs without an event loop; a refusal is the same error."""

    def use(url: str, admin: str, writer: str) -> None:
        with BlockingClient(url, token=admin) as client:
            assert MAIL == client.set_limit(MAIL).limit
            assert [MAIL] == [found.limit for found in client.list_limits()]
            assert MAIL == client.get_limit("queue", "mail").limit
            assert MAIL == client.drop_limit("queue", "mail").limit
        with BlockingClient(url, token=writer) as client, pytest.raises(Forbidden):
            client.set_limit(MAIL)

    async with guarded_server(tmp_path) as guarded:
        tokens = await guarded.token("admin"), await guarded.token("writer", "write")
        await asyncio.to_thread(use, guarded.url, *tokens)
