"""Every error code, as a problem document over a real connection."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from gnomon.gateways.errors import TABLE, errors_page
from gnomon.gateways.rest import call
from gnomon.model.errors import (
    BugError,
    ConfigurationError,
    Exhausted,
    GnomonError,
    IdentityMismatch,
    NotSupported,
    SchemaMismatch,
    StoreUnavailable,
    Unavailable,
)
from tests.conformance.gateway.conftest import Answer, Gateway

SPEC = {"action": {"type": "mock"}, "start_at": "2100-01-01T00:00:00Z"}
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "errors.md"


def tree(root: type[GnomonError]) -> Iterator[type[GnomonError]]:
    yield root
    for child in root.__subclasses__():
        yield from tree(child)


def assert_problem(answer: Answer, status: int, code: str) -> None:
    assert (status, code) == (answer.status, answer.json.get("code")), answer.body
    assert "application/problem+json" == answer.headers["Content-Type"]
    assert {"type", "title", "status", "detail", "code"} <= set(answer.json)
    assert status == answer.json["status"]
    assert answer.json["type"].endswith(code)


def test_every_class_has_a_row() -> None:
    """A new error class must say what it is outside."""
    assert set() == {cls.code for cls in tree(GnomonError)} - set(TABLE)


def test_reference_is_in_step() -> None:
    """docs/reference/errors.md is the table."""
    assert errors_page() == PAGE.read_text(), "run `make docs`"


async def test_not_found(gateway: Gateway) -> None:
    for method, path in [
        ("GET", "/v1/actions/a"),
        ("DELETE", "/v1/actions/a"),
        ("POST", "/v1/actions/a/run"),
        ("POST", "/v1/actions/a/pause"),
        ("POST", "/v1/actions/a/resume"),
        ("POST", "/v1/actions/a/retry"),
    ]:
        answer = await gateway.call(method, path)
        assert_problem(answer, 404, "not_found")
        assert ("action", "a") == (answer.json["kind"], answer.json["name"])


async def test_already_exists(gateway: Gateway) -> None:
    await gateway.create("a")
    answer = await gateway.call("POST", "/v1/actions", {"id": "a", "spec": SPEC})
    assert_problem(answer, 409, "already_exists")


async def test_conflict(gateway: Gateway) -> None:
    """A generation that is gone: 412 from every verb that takes If-Match."""
    created = await gateway.create("a")
    stale = {"If-Match": '"00000000-0000-4000-8000-000000000000"'}
    for method, path, body in [
        ("PUT", "", {"spec": SPEC}),
        ("DELETE", "", None),
        ("POST", "/run", None),
        ("POST", "/pause", None),
    ]:
        answer = await gateway.call(method, f"/v1/actions/a{path}", body, headers=stale)
        assert_problem(answer, 412, "conflict")
        assert created["meta"]["guid"] == answer.json["found"]


async def test_failed_precondition(gateway: Gateway) -> None:
    await gateway.create("a")
    answer = await gateway.call("POST", "/v1/actions/a/retry")
    assert_problem(answer, 409, "failed_precondition")
    assert "active" == answer.json["state"]


async def test_unknown_field_has_a_suggestion(gateway: Gateway) -> None:
    answer = await gateway.call("POST", "/v1/actions", {"spec": {**SPEC, "time_out": 5}})
    assert_problem(answer, 400, "unknown_field")
    assert ("spec.time_out", "timeout") == (answer.json["path"], answer.json["suggestion"])


async def test_unknown_path_and_wrong_method(gateway: Gateway) -> None:
    for path in ("/", "/v2/actions", "/v1/actions/a/b/c", "/schema", "/v1/actions/a/explode"):
        assert_problem(await gateway.call("GET", path), 404, "route_not_found")
    answer = await gateway.call("PATCH", "/v1/actions")
    assert_problem(answer, 405, "method_not_allowed")
    assert "GET" in answer.headers["Allow"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "application/json; charset=utf-16"},
        {"Content-Type": ""},
        {"Content-Encoding": "gzip"},
    ],
)
async def test_other_content_is_refused(gateway: Gateway, headers: dict[str, str]) -> None:
    """JSON in UTF-8 as it is: no forms, no other charset, nothing packed."""
    answer = await gateway.call("POST", "/v1/actions", {"spec": SPEC}, headers=headers)
    assert_problem(answer, 415, "unsupported_media_type")


@pytest.mark.parametrize(
    ("path", "size"), [("/v1/actions", 64 * 1024 + 1), ("/v1/actions:bulk", 8 * 1024 * 1024 + 1)]
)
async def test_large_bodies_are_refused(gateway: Gateway, path: str, size: int) -> None:
    """By the length that is announced, and by what comes when none is."""
    answer = await gateway.call("POST", path, raw=b" " * size)
    assert_problem(answer, 413, "body_too_large")

    async def pieces() -> object:
        for _ in range(size // 1024 + 1):
            yield b" " * 1024

    async with gateway.session.post(
        gateway.url + path, data=pieces(), headers={"Content-Type": "application/json"}
    ) as response:
        assert 413 == response.status


async def test_body_that_never_ends_is_given_up(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow sender does not hold a connection for ever."""
    monkeypatch.setattr(call, "BODY_TIMEOUT_S", 0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(
        b"POST /v1/actions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: 100\r\n\r\n{"
    )
    assert b"408" in await reader.readline()
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "gnomon.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:1"},
        {"Origin": "http://127.0.0.1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
async def test_web_pages_may_not_call(gateway: Gateway, headers: dict[str, str]) -> None:
    """Without authentication a page in the user's browser must not reach the API."""
    await gateway.create("a")
    answer = await gateway.call("POST", "/v1/actions/a/run", headers=headers)
    assert_problem(answer, 403, "forbidden")


async def test_pages_of_the_server_itself_may_call(gateway: Gateway) -> None:
    """The console is one; so are programs, which name no origin."""
    await gateway.create("a")
    host = {"Host": "localhost:8321", "Sec-Fetch-Site": "same-origin"}
    for origin in ("http://localhost:8321", "https://LOCALHOST:8321"):
        headers = host | {"Origin": origin}
        assert 200 == (await gateway.call("POST", "/v1/actions/a/run", headers=headers)).status


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Exhausted("actions", value=5, retry_after_s=2.0), 429),
        (Unavailable("later"), 503),
        (StoreUnavailable("no database"), 503),
        (NotSupported("x", engine="sqlite"), 501),
        (SchemaMismatch(found=1, expected=2), 503),
        (IdentityMismatch("a copy"), 503),
    ],
)
async def test_errors_of_the_scheduler_are_told(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, error: GnomonError, status: int
) -> None:
    """Each has its status and says what it says."""
    fail_get(gateway, monkeypatch, error)
    answer = await gateway.call("GET", "/v1/actions/a")
    assert_problem(answer, status, error.code)
    assert str(error) == answer.json["detail"]
    if getattr(error, "retry_after_s", None):
        assert int(answer.headers["Retry-After"]) >= 1


@pytest.mark.parametrize(
    "error", [ValueError("canary"), BugError("canary"), ConfigurationError("canary", "x")]
)
async def test_slips_are_500_without_detail(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Our own slips are logged under an id; the answer carries the id and nothing else."""
    fail_get(gateway, monkeypatch, error)
    answer = await gateway.call("GET", "/v1/actions/a")
    assert_problem(answer, 500, "internal")
    assert b"canary" not in answer.body
    ((name, fields),) = gateway.recorder.events
    assert "request_failed" == name
    assert answer.json["request_id"] == fields["request_id"]
    assert error is fields["exc_info"]


def fail_get(gateway: Gateway, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    async def get(id: str) -> None:
        raise error

    monkeypatch.setattr(gateway.app.scheduler, "get", get)
