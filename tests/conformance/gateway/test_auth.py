"""Who may call: tokens, scopes, audit, limits (design/security.md 7.4, Auth)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from gnomon.clock import SystemEntropy
from gnomon.contracts.store import AuditSelection, Token, TokenStore
from gnomon.gateways import watchers
from gnomon.gateways.auth import STRANGERS_PER_S, Authorizer, issue
from gnomon.gateways.rest.routes import ROUTES
from gnomon.model.errors import Exhausted, InvalidRequest, Unauthenticated
from tests.conformance.gateway.guarded import SPEC, Guarded, guarded_server

Calls = list[tuple[str, str, Any]]

CHANGES: Calls = [
    ("POST", "/v1/actions", {"id": "new", "spec": SPEC}),
    ("POST", "/v1/actions:bulk", {"actions": [{"id": "new", "spec": SPEC}]}),
    ("PUT", "/v1/actions/a", {"spec": SPEC}),
    ("POST", "/v1/actions/a/run", None),
    ("POST", "/v1/actions:change?verb=pause&id_prefix=nobody", None),
    ("POST", "/v1/actions/a/pause", None),
    ("POST", "/v1/actions/a/resume", None),
    ("POST", "/v1/actions/a/retry", None),
    ("DELETE", "/v1/actions/a", None),
    ("POST", "/v1/entities/ad:bulk", {"entities": {"a": {"n": 1}}}),
    ("PUT", "/v1/entities/ad/a", {"n": 1}),
    ("PATCH", "/v1/entities/ad/a", {"n": 1}),
    ("DELETE", "/v1/entities/ad/a", None),
    ("POST", "/v1/entities/ad/a/release", None),
    ("PUT", "/v1/entities/ad/a/states/s", {"version": 0, "state": 1}),
    ("POST", "/v1/stages/s/backfill", None),
]
LOOKS: Calls = [
    ("GET", "/v1/actions", None),
    ("GET", "/v1/actions/a", None),
    ("GET", "/v1/actions/a/attempts", None),
    ("GET", "/v1/actions/a/why", None),
    ("GET", "/v1/actions/a/events", None),
    ("GET", "/v1/limits", None),
    ("GET", "/v1/entities/ad", None),
    ("GET", "/v1/entities/ad/a", None),
    ("GET", "/v1/entities/ad/a/explain", None),
    ("GET", "/v1/entities/ad/a/states/s", None),
    ("GET", "/v1/parked", None),
    ("GET", "/v1/stages", None),
    ("GET", "/v1/actions:count", None),
    ("GET", "/v1/preview?every=5m", None),
    ("GET", "/v1/history", None),
    ("GET", "/v1/load", None),
    ("GET", "/v1/status", None),
    ("GET", "/v1/figures", None),
    ("GET", "/v1/failures", None),
    ("GET", "/v1/schedules", None),
    ("GET", "/v1/workers", None),
    ("GET", "/v1/database", None),
    ("GET", "/v1/audit", None),
    ("GET", "/v1/me", None),
    ("GET", "/metrics", None),
    ("GET", "/openapi.json", None),
]


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Guarded]:
    async with guarded_server(tmp_path) as found:
        yield found


def templated(path: str) -> str:
    """A path as its route is written."""
    path = path.partition("?")[0]
    for given, name in (
        ("/entities/ad", "/entities/{kind}"),
        ("/a", "/{id}"),
        ("/states/s", "/states/{stage}"),
        ("/stages/s", "/stages/{name}"),
    ):
        path = re.sub(rf"{given}(?=[/:]|$)", name, path)
    return path


def test_the_matrix_leaves_no_route_out() -> None:
    """Every route but /health is among the calls that the tests below make."""
    tried = {(method, templated(path)) for method, path, _ in [*CHANGES, *LOOKS]}
    tried |= {("GET", "/health")}
    tried |= {(verb, "/v1/limits/{limit_kind}/{name}") for verb in ("GET", "PUT", "DELETE")}
    tried |= {("DELETE", "/v1/stages/{name}")}
    there_are_others = "/v1/task-tables"  # with scopes of their own: test_tasks
    there = {
        (route.method, route.path)
        for route in ROUTES
        if not route.path.startswith(there_are_others)
    }
    assert there == tried


@pytest.mark.parametrize(("method", "path", "body"), CHANGES + LOOKS)
async def test_nobody_gets_in_without_a_valid_token(
    guarded: Guarded, method: str, path: str, body: Any
) -> None:
    """No token, wrong, truncated, lengthened, other case, expired, revoked, rotated away: 401, the
    same words for all that are wrong, and nothing happens."""
    good = await guarded.token("good")
    await guarded.post(good, "a")
    expired = await guarded.token("expired", lifetime=timedelta(microseconds=1))
    revoked, rotated = await guarded.token("revoked"), await guarded.token("rotated")
    await guarded.app.store.tokens.revoke("revoked")
    _, draft = issue("rotated", ["admin"], entropy=SystemEntropy())
    await guarded.app.store.tokens.rotate(draft, overlap=timedelta(0))
    other, _ = issue("good", ["admin"], entropy=SystemEntropy())
    wrong = [other, good[:-1], good + "A", good.swapcase(), expired, revoked, rotated, "x", "é"]
    before = await guarded.app.scheduler.get("a")

    nothing = await guarded.ask(None, method, path, body)
    answers = [await guarded.ask(text, method, path, body) for text in wrong]

    assert [401] * len(wrong) == [answer.status for answer in answers]
    assert 1 == len({answer.json["detail"] for answer in answers})
    for answer in (nothing, *answers):
        assert (401, "unauthenticated") == (answer.status, answer.json["code"])
        assert 'Bearer realm="gnomon"' == answer.headers["WWW-Authenticate"]
        assert "application/problem+json" == answer.headers["Content-Type"]
    assert before == await guarded.app.scheduler.get("a")
    assert {"a"} == await guarded.ids()


@pytest.mark.parametrize("sent", ["", "Bearer", "Bearer ", "Basic {}", "{}", "Bearer {} {}"])
async def test_other_credentials_are_refused(guarded: Guarded, sent: str) -> None:
    """What is not `Bearer` and one token is no token."""
    text = await guarded.token("good")
    answer = await guarded.call(
        "GET", "/v1/actions", headers={"Authorization": sent.replace("{}", text)}
    )
    assert 401 == answer.status


async def test_two_tokens_are_refused(guarded: Guarded) -> None:
    """Which of them would count?"""
    text = await guarded.token("good")
    sent = [("Authorization", f"Bearer {text}"), ("Authorization", f"Bearer {text}")]
    async with guarded.session.get(f"{guarded.url}/v1/actions", headers=sent) as response:
        assert 401 == response.status


@pytest.mark.parametrize(("method", "path", "body"), CHANGES)
async def test_changing_needs_the_scope_write(
    guarded: Guarded, method: str, path: str, body: Any
) -> None:
    """A reader is told which scope he lacks, and changes nothing; a writer and an admin may."""
    admin, reader = await guarded.token("admin"), await guarded.token("reader", "read")
    writer = await guarded.token("writer", "write")
    await guarded.post(admin, "a")
    before = await guarded.app.scheduler.get("a")

    refused = await guarded.ask(reader, method, path, body)

    assert (403, "forbidden", "write") == (
        refused.status, refused.json["code"], refused.json["scope"],
    )  # fmt: skip
    assert before == await guarded.app.scheduler.get("a")
    for token in (writer, admin):
        allowed = (await guarded.ask(token, method, path, body)).status
        assert allowed in (200, 201, 204, 404, 409, 415)


@pytest.mark.parametrize(("method", "path", "body"), LOOKS)
async def test_looking_needs_the_scope_read(
    guarded: Guarded, method: str, path: str, body: Any
) -> None:
    """Who may only write, or only run SQL, sees nothing."""
    admin = await guarded.token("admin")
    await guarded.post(admin, "a")
    await guarded.ask(admin, "DELETE", "/v1/actions/a")
    await guarded.ask(admin, "PUT", "/v1/entities/ad/a", {"n": 1})
    for number, scope in enumerate(("write", "sql:reports")):
        refused = await guarded.ask(await guarded.token(f"t{number}", scope), method, path, body)
        assert (403, "read") == (refused.status, refused.json["scope"])
    assert 200 == (await guarded.ask(admin, method, path, body)).status


async def test_health_needs_no_token(guarded: Guarded) -> None:
    await guarded.token("good")
    assert 200 == (await guarded.ask(None, "GET", "/health")).status


async def test_the_first_token_closes_an_open_server(guarded: Guarded) -> None:
    """Without tokens this machine may call; with the first one, nobody without. Revoking it does
    not open the doors again."""
    assert 201 == (await guarded.post(None, "a")).status
    await guarded.token("good")
    assert 401 == (await guarded.post(None, "b")).status
    await guarded.app.store.tokens.revoke("good")
    assert 401 == (await guarded.post(None, "c")).status


async def test_a_token_can_be_demanded(tmp_path: Path) -> None:
    """`server.auth = "token"`: nobody gets in, even though there is none yet."""
    async with guarded_server(tmp_path, required=True) as guarded:
        assert 401 == (await guarded.post(None, "a")).status


async def test_a_wrong_token_is_refused_by_an_open_server(guarded: Guarded) -> None:
    """Who believes to be known is told that he is not."""
    wrong, _ = issue("good", ["admin"], entropy=SystemEntropy())
    assert 401 == (await guarded.post(wrong, "a")).status


async def test_who_has_a_token_may_call_by_any_name(guarded: Guarded) -> None:
    """Host and Origin guard an open server only: no page has a token."""
    headers = {"Host": "gnomon.example", "Origin": "https://app.example"}
    assert 403 == (await guarded.ask(None, "GET", "/v1/actions", headers=headers)).status
    text = await guarded.token("good")
    assert 200 == (await guarded.ask(text, "GET", "/v1/actions", headers=headers)).status


async def test_revoking_counts_when_the_trust_is_over(tmp_path: Path) -> None:
    """A token that was seen is believed for seconds, and then looked up again."""
    async with guarded_server(tmp_path, trusted_s=5.0) as guarded:
        text = await guarded.token("good")
        assert 200 == (await guarded.ask(text, "GET", "/v1/actions")).status
        await guarded.app.store.tokens.revoke("good")
        guarded.clock.at += 4.9
        assert 200 == (await guarded.ask(text, "GET", "/v1/actions")).status
        guarded.clock.at += 0.2
        assert 401 == (await guarded.ask(text, "GET", "/v1/actions")).status


class CountingTokens:
    """A store of tokens that knows none, and how often it was asked."""

    def __init__(self, tokens: TokenStore) -> None:
        self.tokens = tokens
        self.asked = 0

    async def any(self) -> bool:
        return True

    async def find(self, digest: bytes) -> Token | None:
        self.asked += 1
        return await self.tokens.find(digest)


def new_token() -> str:
    return issue("x", ["admin"], entropy=SystemEntropy())[0]


async def test_unknown_tokens_cost_few_queries(guarded: Guarded) -> None:
    """The same one is asked about once, many different ones a bounded number of times a second; who
    was let in before is not kept out by it."""
    good = await guarded.token("good")
    tokens = CountingTokens(guarded.app.store.tokens)
    store = cast("TokenStore", tokens)
    authorizer = Authorizer(store, clock=guarded.clock, trusted_s=5.0)
    await authorizer.check(good, "read")
    wrong = new_token()
    for _ in range(10):
        with pytest.raises(Unauthenticated):
            await authorizer.check(wrong, "read")
    assert 2 == tokens.asked
    for _ in range(200):
        with pytest.raises((Unauthenticated, Exhausted)):
            await authorizer.check(new_token(), "read")
    assert int(STRANGERS_PER_S) == tokens.asked
    guarded.clock.at += 5.1
    for _ in range(100):
        with pytest.raises((Unauthenticated, Exhausted)):
            await authorizer.check(new_token(), "read")
    assert "good" == (await authorizer.check(good, "read")).name


async def test_both_tokens_work_during_a_rotation(guarded: Guarded) -> None:
    old = await guarded.token("shop")
    new, draft = issue("shop", ["admin"], entropy=SystemEntropy())
    await guarded.app.store.tokens.rotate(draft, overlap=timedelta(hours=1))
    assert [200, 200] == [
        (await guarded.ask(text, "GET", "/v1/actions")).status for text in (old, new)
    ]


async def test_the_text_of_a_token_is_nowhere(guarded: Guarded, tmp_path: Path) -> None:
    """Not in the database, and not in what is logged."""
    text = await guarded.token("good")
    await guarded.post(text, "a")
    await guarded.ask(text[:-1], "GET", "/v1/actions")
    await guarded.ask(text, "GET", "/v1/actions/nobody")
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"good" in kept
    assert text.encode() not in kept
    assert text.encode()[7:] not in kept
    assert text not in str(guarded.recorder.events)


# -- keys and audit -------------------------------------------------------------------------------


async def test_a_key_is_its_tokens_own(guarded: Guarded) -> None:
    """The same Idempotency-Key from two tokens is no repeat: neither learns of the other's."""
    ann, bob = await guarded.token("ann"), await guarded.token("bob")
    key = {"Idempotency-Key": "k"}

    async def send(token: str, body: dict[str, Any]) -> Any:
        return await guarded.ask(token, "POST", "/v1/actions", body, headers=key)

    assert 201 == (await send(ann, {"id": "a", "spec": SPEC})).status
    again = await send(ann, {"id": "a", "spec": SPEC})
    assert (200, True) == (again.status, again.json["repeated"])
    assert 409 == (await send(bob, {"id": "a", "spec": SPEC})).status
    first, second, third = [await send(token, {"spec": SPEC}) for token in (ann, bob, ann)]
    assert [201, 201, 200] == [first.status, second.status, third.status]
    assert first.json["meta"]["id"] == third.json["meta"]["id"] != second.json["meta"]["id"]


async def test_a_rotated_token_keeps_its_keys(guarded: Guarded) -> None:
    """The name counts, not the token."""
    old = await guarded.token("ann")
    new, draft = issue("ann", ["admin"], entropy=SystemEntropy())
    await guarded.app.store.tokens.rotate(draft, overlap=timedelta(hours=1))
    answers = [
        await guarded.ask(
            token, "POST", "/v1/actions", {"spec": SPEC}, headers={"Idempotency-Key": "k"}
        )
        for token in (old, new)
    ]
    assert [201, 200] == [answer.status for answer in answers]


async def test_the_audit_names_who_it_was(guarded: Guarded) -> None:
    """Every change over HTTP, under the name of its token; before there were any, `local`."""
    await guarded.post(None, "zero")
    token = await guarded.token("shop")
    for method, path, body in CHANGES:
        await guarded.ask(token, method, path, body)
    await guarded.ask(token, "POST", "/v1/actions/a/retry")
    entries = await guarded.app.store.tokens.list_audit(AuditSelection(), limit=100)
    assert [
        ("local", "create", "zero"), ("shop", "create", "new"), ("shop", "replace", "a"),
        ("shop", "run_now", "a"), ("shop", "pause", "a"), ("shop", "resume", "a"),
        ("shop", "delete", "a"), ("shop", "put_entity", "ad/a"),
        ("shop", "delete_entity", "ad/a"),
        ("shop", "retry", "a"),
    ] == [(item.actor, item.verb, item.id) for item in reversed(entries)]  # fmt: skip


# -- limits ---------------------------------------------------------------------------------------


async def test_too_many_requests_are_told_when_to_come_back(guarded: Guarded) -> None:
    """A second's worth at once, then one as each is earned; others are not held up."""
    slow, other = await guarded.token("slow", rate=2.0), await guarded.token("other")

    async def ask(token: str) -> Any:
        return await guarded.ask(token, "GET", "/v1/actions")

    assert [200, 200, 429] == [(await ask(slow)).status for _ in range(3)]
    refused = await ask(slow)
    assert ("exhausted", "token.rate", 2.0) == tuple(
        refused.json[name] for name in ("code", "limit", "value")
    )
    assert "1" == refused.headers["Retry-After"]
    assert 200 == (await ask(other)).status
    guarded.clock.at += 0.5
    assert [200, 429] == [(await ask(slow)).status for _ in range(2)]
    guarded.clock.at += 60
    assert [200, 200, 429] == [(await ask(slow)).status for _ in range(3)]


async def test_rotation_is_no_way_round_the_rate(guarded: Guarded) -> None:
    """The bucket is the name's."""
    old = await guarded.token("slow", rate=1.0)
    new, draft = issue("slow", ["admin"], entropy=SystemEntropy(), rate=1.0)
    await guarded.app.store.tokens.rotate(draft, overlap=timedelta(hours=1))
    found = [(await guarded.ask(token, "GET", "/v1/actions")).status for token in (old, new)]
    assert [200, 429] == found


async def test_live_actions_are_bounded(guarded: Guarded) -> None:
    """By create, bulk, replace and retry alike; what exists can be changed, and what ends makes
    room. Nobody else is bounded by it."""
    small, other = await guarded.token("small", live_max=2), await guarded.token("other")
    await guarded.post(small, "old")
    await guarded.ask(small, "DELETE", "/v1/actions/old")
    guarded.clock.at += 1
    assert [201, 201] == [(await guarded.post(small, name)).status for name in ("a", "b")]

    refused = [
        await guarded.post(small, "c"),
        await guarded.ask(small, "PUT", "/v1/actions/c", {"spec": SPEC}),
        await guarded.ask(
            small, "POST", "/v1/actions:bulk", {"actions": [{"id": "c", "spec": SPEC}]}
        ),
        await guarded.ask(small, "POST", "/v1/actions/old/retry"),
    ]

    assert [(429, "token.live_max")] * 4 == [
        (answer.status, answer.json["limit"]) for answer in refused
    ]
    assert {"1"} == {answer.headers["Retry-After"] for answer in refused}
    assert {"old", "a", "b"} == await guarded.ids()
    assert 200 == (await guarded.ask(small, "PUT", "/v1/actions/a", {"spec": SPEC})).status
    assert 200 == (await guarded.ask(small, "POST", "/v1/actions/a/pause")).status
    assert 201 == (await guarded.post(other, "c")).status
    await guarded.ask(other, "DELETE", "/v1/actions/a")
    guarded.clock.at += 1
    assert [201, 429] == [(await guarded.post(small, name)).status for name in ("d", "e")]


async def test_the_quota_holds_between_two_counts(tmp_path: Path) -> None:
    """What was let in since the last count is added up; a delete is seen at the next one."""
    async with guarded_server(tmp_path, trusted_s=5.0) as guarded:
        small = await guarded.token("small", live_max=2)
        found = [(await guarded.post(small, name)).status for name in ("a", "b", "c")]
        assert [201, 201, 429] == found
        await guarded.ask(small, "DELETE", "/v1/actions/a")
        assert 429 == (await guarded.post(small, "c")).status
        guarded.clock.at += 1
        assert 201 == (await guarded.post(small, "c")).status


async def test_a_bulk_over_the_quota_is_refused_whole(guarded: Guarded) -> None:
    small = await guarded.token("small", live_max=2)
    items = [{"id": f"n{number}", "spec": SPEC} for number in range(3)]
    answer = await guarded.ask(small, "POST", "/v1/actions:bulk", {"actions": items})
    assert 429 == answer.status
    assert set() == await guarded.ids()


@pytest.mark.parametrize(
    ("name", "scopes", "limits"),
    [
        ("local", ["read"], {}),
        ("", ["read"], {}),
        ("a b", ["read"], {}),
        ("x" * 65, ["read"], {}),
        ("shop", [], {}),
        ("shop", ["everything"], {}),
        ("shop", ["sql:"], {}),
        ("shop", ["sql:a b"], {}),
        ("shop", ["read"], {"rate": 0.0}),
        ("shop", ["read"], {"rate": float("nan")}),
        ("shop", ["read"], {"live_max": 0}),
        ("shop", ["read"], {"lifetime": timedelta(0)}),
    ],
)
def test_no_such_token_is_made(name: str, scopes: list[str], limits: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        issue(name, scopes, entropy=SystemEntropy(), **limits)


def test_tokens_are_long_and_never_twice() -> None:
    """256 random bits."""
    texts = {issue("shop", ["read"], entropy=SystemEntropy())[0] for _ in range(100)}
    assert 100 == len(texts)
    assert {len("gnomon_") + 43} == {len(text) for text in texts}


# -- events ---------------------------------------------------------------------------------------


async def test_a_watch_of_what_changes_often_ends_with_its_token(guarded: Guarded) -> None:
    """No event is sent to who has lost his right, even if there is never a quiet moment."""
    token, other = await guarded.token("good"), await guarded.token("other")
    await guarded.post(token, "a")
    headers = {"Authorization": f"Bearer {token}"}
    async with guarded.session.get(
        f"{guarded.url}/v1/actions/a/events", headers=headers
    ) as response:
        assert b"event: action\n" == await response.content.readline()
        await guarded.app.store.tokens.revoke("good")
        await guarded.ask(other, "POST", "/v1/actions/a/pause")
        async with asyncio.timeout(10):
            assert b'"state":"paused"' not in await response.content.read()
    assert 0 == guarded.watchers.count


async def test_a_watch_ends_with_its_token(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream that lasts is looked at again with every heartbeat."""
    monkeypatch.setattr(watchers, "CONFIRM_S", 0.05)
    token = await guarded.token("good")
    await guarded.post(token, "a")
    headers = {"Authorization": f"Bearer {token}"}
    async with guarded.session.get(
        f"{guarded.url}/v1/actions/a/events", headers=headers
    ) as response:
        assert b"event: action\n" == await response.content.readline()
        await guarded.app.store.tokens.revoke("good")
        async with asyncio.timeout(10):
            await response.content.read()
    assert 0 == guarded.watchers.count
