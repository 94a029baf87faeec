"""How the console is served: to everybody, with nothing of the store in it, safely."""

from __future__ import annotations

import asyncio
import json
import re
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from gnomon.console import STATIC, load_files
from tests.acceptance.console.conftest import create
from tests.acceptance.console.front import Front
from tests.fixtures.browser import open_page
from tests.fixtures.up import PATIENCE_S, Up


def fetch(url: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    try:
        with urlopen(Request(url, headers=headers), timeout=PATIENCE_S) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except HTTPError as exc:
        return exc.code, dict(exc.headers), exc.read()


def test_pages_come_with_a_strict_policy(up: Up) -> None:
    """No script or style of another host or of the page itself; no frame; no guessed type."""
    for path, file in load_files().items():
        status, headers, body = fetch(up.url + path)
        assert (200, file.content) == (status, body)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert "DENY" == headers["x-frame-options"]
        assert "nosniff" == headers["x-content-type-options"]
        assert "no-referrer" == headers["referrer-policy"]


def test_a_page_that_is_known_is_not_sent_again(up: Up) -> None:
    """By its ETag; another one gets it."""
    _, headers, _ = fetch(f"{up.url}/")
    tag = headers["etag"]
    assert (304, b"") == fetch(f"{up.url}/", **{"If-None-Match": f'W/{tag}, "x"'})[::2]
    assert 200 == fetch(f"{up.url}/", **{"If-None-Match": '"x"'})[0]


@pytest.mark.parametrize("path", ["/console/", "/console/../app.py", "/console/%2e%2e/app.py"])
def test_there_is_nothing_else(up: Up, path: str) -> None:
    """Neither a listing nor a file beside those of the console."""
    assert 404 == fetch(up.url + path)[0]
    assert 405 == up.call("POST", "/")[0] or 404 == up.call("POST", "/")[0]


def test_pages_need_no_token_and_data_does(guarded_up: Up) -> None:
    """Whoever has no token sees the sign-in, and nothing that is stored."""
    assert 200 == fetch(f"{guarded_up.url}/")[0]
    for path in ("/v1/me", "/v1/actions", "/openapi.json"):
        assert 401 == fetch(guarded_up.url + path)[0]


def test_a_caller_learns_who_he_is(up: Up) -> None:
    """`GET /v1/me`: his name in the audit, and his scopes."""
    status, text = up.call("GET", "/v1/me")
    assert (200, {"name": "local", "scopes": ["operate", "read", "write"]}) == (
        status,
        json.loads(text),
    )


def test_everything_is_named_relative_to_the_page() -> None:
    """No file asks for another host, nor for a path from the root of its own."""
    for path in STATIC.rglob("*"):
        if path.suffix in (".html", ".css", ".js") and "vendor" not in path.parts:
            text = path.read_text()
            assert [] == re.findall(r"""(?:src|href|from|url\()\s*=?\s*["'(]/""", text), path
            assert [] == re.findall(r"https?://(?!www\.w3\.org)", text), path


async def test_it_works_behind_a_path_prefix(browser: str, up: Up) -> None:
    """Pages, calls and event streams, without being told of the prefix."""
    await asyncio.to_thread(create, up, "behind-a-prefix")
    async with Front(up.url) as front, open_page(browser) as page:
        await page.goto(f"{front.url}#/action/behind-a-prefix")
        await page.wait_text("live", within=".live-dot")
        await page.goto("about:blank")
        asked = [asked for asked in page.requests if asked.startswith("http")]
        assert [] == [asked for asked in asked if not asked.startswith(front.url)]
        assert [] == page.complaints
