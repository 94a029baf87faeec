"""Hostile and mistaken input (design/security.md 7.4): refused clearly, and nothing is stored."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.conformance.gateway.conftest import Gateway

MOCK = {"type": "mock"}
HTTP = {"type": "http", "method": "POST", "url": "https://example.com/"}


def spec(**fields: object) -> bytes:
    return json.dumps({"id": "bad", "spec": {"action": MOCK, **fields}}).encode()


def action(**fields: object) -> bytes:
    return json.dumps({"id": "bad", "spec": {"action": fields}}).encode()


def named(id: object) -> bytes:
    return json.dumps({"id": id, "spec": {"action": MOCK}}).encode()


def raw(text: str) -> bytes:
    """A spec with a piece of JSON that Python would not write."""
    return b'{"id": "bad", "spec": {"action": {"type": "mock"}, ' + text.encode() + b"}}"


def http(**fields: object) -> bytes:
    return action(**{**HTTP, **fields})


# (what is sent, what the problem document must name)
TIMES: list[tuple[bytes, str]] = [
    (spec(start_at="2020-01-01T00:00:00Z"), "spec.start_at"),
    (spec(start_at="0001-01-01T00:00:00Z"), "spec.start_at"),
    (spec(start_at="9999-12-31T23:59:59Z"), "spec.start_at"),
    (spec(start_at="294277-01-01T00:00:00Z"), "spec.start_at"),
    (spec(start_at="2100-01-01T00:00:00"), "spec.start_at"),
    (spec(start_at="2100-02-30T00:00:00Z"), "spec.start_at"),
    (spec(start_at="infinity"), "spec.start_at"),
    (spec(start_at="-infinity"), "spec.start_at"),
    (spec(start_at="2016-12-31T23:59:61Z"), "spec.start_at"),
    (spec(start_at="2100-12-31T23:59:60Z"), "spec.start_at"),
    (spec(start_at="2100-01-01T24:00:00Z"), "spec.start_at"),
    (spec(start_at=10**17), "spec.start_at"),
    (spec(start_at="tomorrow"), "spec.start_at"),
    (spec(start_at=""), "spec.start_at"),
    (spec(start_at=[]), "spec.start_at"),
    (spec(deadline="2020-01-01T00:00:00Z"), "spec.deadline"),
    (spec(start_at="2100-01-02T00:00:00Z", deadline="2100-01-01T00:00:00Z"), "spec.deadline"),
    (spec(policy={"type": "periodic", "period": 0}), "spec.policy.period"),
    (spec(policy={"type": "periodic", "period": -1}), "spec.policy.period"),
    (spec(policy={"type": "periodic", "period": "1us"}), "spec.policy.period"),
    (spec(policy={"type": "periodic", "period": 10**17}), "spec.policy.period"),
    (spec(policy={"type": "periodic", "period": 10**18}), "digits"),
    (spec(policy={"type": "periodic", "period": 1e308}), "spec.policy.period"),
    (spec(policy={"type": "periodic", "period": "999999999999999999d"}), "spec.policy.period"),
    (spec(policy={"type": "periodic", "period": True}), "spec.policy.period"),
    (spec(policy={"type": "periodic", "period": "soon"}), "spec.policy.period"),
    (spec(policy={"type": "periodic"}), "period"),
    (spec(policy={"type": "hourly"}), "spec.policy.type"),
    (spec(policy={"type": "cron", "expression": "61 * * * *"}), "spec.policy.expression"),
    (spec(policy={"type": "cron", "expression": "0 0 30 2 *"}), "spec.policy.expression"),
    (spec(policy={"type": "cron", "expression": "* * * * * *"}), "spec.policy.expression"),
    (
        spec(policy={"type": "cron", "expression": "* * * * *", "timezone": "Mars/Olympus"}),
        "spec.policy.timezone",
    ),
    (
        spec(policy={"type": "cron", "expression": "* * * * *", "timezone": "../../etc/passwd"}),
        "spec.policy.timezone",
    ),
    (spec(retry={"max": 2**31}), "spec.retry.max"),
    (spec(retry={"max": -1}), "spec.retry.max"),
    (spec(retry={"back_off": -1.0}), "spec.retry.back_off"),
    (spec(retry={"min_period": 0}), "spec.retry.min_period"),
    (spec(retry={"min_period": "9s", "max_period": "5s"}), "spec.retry.max_period"),
    (spec(timeout=0), "spec.timeout"),
    (spec(timeout="2d"), "spec.timeout"),
    (spec(timeout="1e3s"), "spec.timeout"),
    (spec(jitter="-1s"), "spec.jitter"),
    (spec(retention="400d"), "spec.retention"),
    (spec(active="1ms"), "spec.active"),
]
NUMBERS: list[tuple[bytes, str]] = [
    (spec(priority=10), "spec.priority"),
    (spec(priority=-1), "spec.priority"),
    (spec(priority="5"), "spec.priority"),
    (spec(occurrences_max=0), "spec.occurrences_max"),
    (spec(interruptions_max=2**31), "spec.interruptions_max"),
    (spec(catch_up={"mode": "some"}), "spec.catch_up.mode"),
    (spec(catch_up={"mode": "all", "max": 0}), "spec.catch_up.max"),
    (raw('"retry": {"back_off": NaN}'), "NaN"),
    (raw('"retry": {"scale": Infinity}'), "Infinity"),
    (raw('"retry": {"scale": -Infinity}'), "Infinity"),
    (raw('"retry": {"scale": 1e999999}'), "number"),
    (raw('"priority": ' + "9" * 5000), "digits"),
]
IDS: list[tuple[bytes, str]] = [
    *[
        (named(text), "id")
        for text in (
            "", " ", "../", "a/b", "a'b", 'a"b', "a;--", "a\nb", "a\r\nlevel=error", "\x1b[31mred",
            "\u202eevil", "\N{GRINNING FACE}", "x" * 201, "x" * 10_000, "<script>", "=cmd()",
            "{0.__class__}", "%00", "a b", "é", "\uff41", "   ", "'; DROP TABLE action;--",
            "a\u2028b", "\ufeffa", "a\x85", "a\t", "\N{RIGHT-TO-LEFT MARK}a", "%s%n", "..\\",
        )
    ],
    (named(7), "id"),
    (named(["a"]), "id"),
    (named({"a": 1}), "id"),
]  # fmt: skip
TEXTS: list[tuple[bytes, str]] = [
    (spec(queue=""), "spec.queue"),
    (spec(queue="a b"), "spec.queue"),
    (spec(queue="x" * 65), "spec.queue"),
    (spec(queue=None), "spec.queue"),
    (spec(labels={"a b": "c"}), "spec.labels"),
    (spec(labels={"a": "x" * 257}), "spec.labels"),
    (spec(labels={"a": "\x1b[31m"}), "spec.labels"),
    (spec(labels={"a": "b\nc"}), "spec.labels"),
    (spec(labels={"a": 5}), "spec.labels"),
    (spec(labels={str(number): "" for number in range(33)}), "spec.labels"),
    (spec(labels=["a"]), "spec.labels"),
    (raw('"labels": {"a": "\\u0000"}'), "NUL"),
    (raw('"labels": {"a": "\\ud800"}'), "surrogate"),
    (raw('"labels": {"\\udfff": "a"}'), "surrogate"),
]
BODIES: list[tuple[bytes, str]] = [
    (b"", "body"),
    (b"null", "body"),
    (b"[]", "body"),
    (b'"text"', "body"),
    (b"{}", "spec"),
    (b'{"id": "bad"}', "spec"),
    (b'{"id": "bad", "spec": null}', "spec"),
    (b'{"id": "bad", "spec": []}', "spec"),
    (b'{"id": "bad", "spec": {}}', "spec.action"),
    (b'{"id": "bad", "spec": {"action": 1}}', "spec.action"),
    (b'{"id": "bad", "spec": {"action": {}}}', "spec.action.type"),
    (b'{"id": "bad", "spec": {"action": {"type": "shell"}}}', "spec.action.type"),
    (b'{"id": "bad", "spec": {"action": {"type": ["mock"]}}}', "spec.action.type"),
    (b'{"id": "bad", "spec": {"action": {"type": "mock", "boom": 1}}}', "spec.action.boom"),
    (b'{"id": "bad", "id": "worse", "spec": {"action": {"type": "mock"}}}', "id"),
    (raw('"queue": "a", "queue": "b"'), "queue"),
    (b'{"id": "bad", "spec": {"action": {"type": "mock"}}, "extra": 1}', "extra"),
    (b'{"id": "bad", "spec": {"action": {"type": "mock"}}', "body"),
    (b'{"id": "bad", "spec": {"action": {"type": "mock"}}} trailing', "body"),
    (b"{'id': 'bad'}", "body"),
    (b"[" * 30_000 + b"]" * 30_000, "body"),
    (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, "body"),
    (b'{"id": "bad", "spec": {"action": {"type": "python", "function": "f", "kwargs": {'
     + b",".join(b'"k%d":1' % number for number in range(2000)) + b"}}}}", "keys"),
    (b"\xef\xbb\xbf" + named("bad"), "body"),
    (named("bad").decode().encode("utf-16"), "body"),
    (b'{"id": "bad\xff", "spec": {"action": {"type": "mock"}}}', "body"),
    (b'{"id": "bad", "spec": {"action": {"type": "mock"}, "labels": {"a": "\x01"}}}', "body"),
]  # fmt: skip
EFFECTS: list[tuple[bytes, str]] = [
    (http(url="ftp://example.com/"), "spec.action.url"),
    (http(url="file:///etc/passwd"), "spec.action.url"),
    (http(url="https://user:secret@example.com/"), "spec.action.url"),
    (http(url="https://example.com\\@evil/"), "spec.action.url"),
    (http(url="https://exa mple.com/"), "spec.action.url"),
    (http(url="https://example.com/\r\nX: y"), "spec.action.url"),
    (http(url="https://example.com/" + "a" * 64_000), "spec.action.url"),
    (http(url=""), "spec.action.url"),
    (http(url="https:///path"), "spec.action.url"),
    (http(url="https://example.com:99999/"), "spec.action.url"),
    (http(method="EXPLODE"), "spec.action.method"),
    (http(method="GET\r\n"), "spec.action.method"),
    (http(headers={"X": "a\r\nY: b"}), "spec.action.headers"),
    (http(headers={"X": "\u2028"}), "spec.action.headers"),
    (http(headers={"X": "\x85"}), "spec.action.headers"),
    (http(headers={"X Y": "a"}), "spec.action.headers"),
    (http(headers={"X:": "a"}), "spec.action.headers"),
    (http(headers={"Host": "evil"}), "spec.action.headers"),
    (http(headers={"Transfer-Encoding": "chunked"}), "spec.action.headers"),
    (http(headers={"Content-Length": "0"}), "spec.action.headers"),
    (http(headers={"Cookie": "a=b"}), "spec.action.headers"),
    (http(headers={"webhook-id": "forged"}), "spec.action.headers"),
    (http(headers={f"X-{number}": "a" for number in range(100)}), "spec.action.headers"),
    (http(headers={"X": "a" * 2000}), "spec.action.headers"),
    (http(headers={"X": "a" * 1_000_000}), "body"),
    (http(headers={f"X-{number}": "a" for number in range(10_000)}), "body"),
    (http(headers={"X": "a\r\n b"}), "spec.action.headers"),
    (http(headers={"X": "\x00"}), "NUL"),
    (http(headers={"host": "a", "HOST": "b"}), "spec.action.headers"),
    (http(headers={"é": "a"}), "spec.action.headers"),
    (http(body="x" * 66_000), "body"),
    (http(success=[9999]), "spec.action.success"),
    (action(type="python", function="os.system; rm"), "spec.action.function"),
    (action(type="python", function="__import__('os')"), "spec.action.function"),
    (action(type="python", function=""), "spec.action.function"),
    (action(type="mock", fail=-1), "spec.action.fail"),
    (action(type="mock", hang="400d"), "spec.action.hang"),
]
ALL = [*TIMES, *NUMBERS, *IDS, *TEXTS, *BODIES, *EFFECTS]


def test_there_are_enough() -> None:
    assert len(ALL) >= 60


async def test_bad_bodies_are_refused_with_the_field_named(gateway: Gateway) -> None:
    """Each is a clear problem document that names what is wrong; the store stays empty."""
    faults = []
    for sent, name in ALL:
        answer = await gateway.call("POST", "/v1/actions", raw=sent)
        expected = 413 if len(sent) > 64 * 1024 else 400
        told = f"{answer.json.get('path', '')} {answer.json.get('detail', '')}"
        if (
            expected != answer.status
            or "application/problem+json" != answer.headers["Content-Type"]
            or name not in told
            or len(answer.body) > 2000
        ):
            faults.append((sent[:120], name, answer.status, answer.body[:300]))
    assert [] == faults
    assert set() == await gateway.ids()
    assert [] == gateway.recorder.events, "nothing of it is a slip of ours"


@pytest.mark.parametrize(
    ("headers", "name"),
    [
        ({"If-Match": "17"}, "If-Match"),
        ({"If-Match": "*"}, "If-Match"),
        ({"If-Match": 'W/"00000000-0000-4000-8000-000000000000"'}, "If-Match"),
        ({"If-Match": '"00000000-0000-4000-8000-00000000000g"'}, "If-Match"),
        ({"If-Match": '"a", "b"'}, "If-Match"),
        ({"If-Match": ""}, "If-Match"),
        ({"Idempotency-Key": ""}, "idempotency key"),
        ({"Idempotency-Key": "x" * 256}, "idempotency key"),
        ({"Idempotency-Key": "a\tb"}, "idempotency key"),
    ],
)
async def test_bad_headers_are_refused(
    gateway: Gateway, headers: dict[str, str], name: str
) -> None:
    answer = await gateway.call(
        "PUT", "/v1/actions/bad", {"spec": {"action": MOCK}}, headers=headers
    )
    assert 400 == answer.status
    assert name in answer.json["detail"]
    assert set() == await gateway.ids()


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=-1", "query.limit"),
        ("limit=many", "query.limit"),
        ("limit=1&limit=2", "query.limit"),
        ("limit=" + "9" * 400, "query.limit"),
        ("state=undead", "query.state"),
        ("label=novalue", "query.label"),
        ("label==v", "query.label"),
        ("argument=order", "query.argument"),
        ("argument=a..b=1", "query.argument"),
        ("due_before=yesterday", "query.due_before"),
        ("due_before=2100-01-01T00:00:00", "query.due_before"),
        ("id_prefix=%00", "query.id_prefix"),
        ("queue=%ff", "query"),
        ("colour=red", "query.colour"),
        ("stat=dead", "state"),
        ("&".join(f"label=a{n}=b" for n in range(100)), "query"),
    ],
)
async def test_bad_queries_are_refused(gateway: Gateway, query: str, name: str) -> None:
    async with gateway.session.get(f"{gateway.url}/v1/actions?{query}") as response:
        problem = await response.json(content_type=None)
        assert 400 == response.status
        assert name in problem["detail"]


@pytest.mark.parametrize(
    "path",
    ["a%00b", "a%0Ab", "%F0%9F%98%80", "a%20b", "%3Cscript%3E", "a'b", "x" * 201, "%E2%80%AE"],
)
async def test_bad_ids_in_the_path_are_refused(gateway: Gateway, path: str) -> None:
    """A bad id is a bad request, not a missing action."""
    for method in ("GET", "DELETE"):
        problem = await raw_call(gateway, method, f"/v1/actions/{path}")
        assert (400, "id") == (problem["status"], problem["path"])


@pytest.mark.parametrize(
    "head",
    [
        b"GET /v1/actions HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
        b"GET /v1/actions HTTP/1.1\r\n" + b"X: a\r\n" * 50_000 + b"\r\n",
        b"GET /v1/actions HTTP/1.1\r\nHost: localhost\r\nBad Name: a\r\n\r\n",
        b"GET /v1/actions HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n",
        b"GET /v1/actions HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /v1/actions HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
        b"POST /v1/actions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n",
    ],
)
async def test_broken_http_is_refused_and_the_server_lives(gateway: Gateway, head: bytes) -> None:
    """What is not HTTP gets a 4xx or is cut off; the next caller is served."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    try:
        writer.write(head)
        await writer.drain()
        async with asyncio.timeout(5):
            first = await reader.readline()
    except ConnectionError:
        first = b""
    writer.close()
    assert first == b"" or b" 4" in first
    assert 200 == (await gateway.call("GET", "/health")).status
    assert set() == await gateway.ids()


async def raw_call(gateway: Gateway, method: str, path: str) -> Any:
    """A request whose path no client library has tidied up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
    )
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return json.loads(answer.partition(b"\r\n\r\n")[2])
