"""`gnomon up` and a browser that looks at it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.browser import Page, open_page
from tests.fixtures.up import Up, clean_environment, gnomon_up

FUTURE = "2100-01-01T00:00:00Z"


@pytest.fixture(scope="session")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Without tokens; all tests share it, and call their actions by names of their own."""
    with gnomon_up(tmp_path_factory.mktemp("console")) as found:
        yield found


@pytest.fixture(scope="session")
def guarded_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One that demands tokens."""
    folder = tmp_path_factory.mktemp("guarded")
    with gnomon_up(folder, '[server]\nauth = "token"\n') as found:
        yield found


@asynccontextmanager
async def quiet_page(browser: str, url: str) -> AsyncIterator[Page]:
    """A page at the console. In the end it has complained of nothing, and asked nobody else."""
    async with open_page(browser) as page:
        await page.goto(f"{url}/")
        yield page
        assert [] == page.complaints
        assert {url.removeprefix("http://")} == page.hosts()


@pytest.fixture
async def page(browser: str, up: Up) -> AsyncIterator[Page]:
    async with quiet_page(browser, up.url) as opened:
        await opened.wait_text("Overview")
        await opened.wait('document.title.includes("·")')  # from now on it listens to keys
        yield opened


def create(up: Up, id: str, effect: dict[str, Any] | None = None, **spec: object) -> None:
    """An action, for the far future unless the spec says otherwise."""
    body = {"id": id, "spec": {"action": effect or {"type": "mock"}, "start_at": FUTURE, **spec}}
    status, text = up.call("POST", "/v1/actions", body)
    assert 201 == status, text


def make_token(up: Up, name: str, *scopes: str) -> str:
    """A token, made straight at the database."""
    flags = [part for scope in scopes for part in ("--scope", scope)]
    done = subprocess.run(
        [sys.executable, "-m", "gnomon", "token", "create", name, *flags],
        cwd=up.folder, env=clean_environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert 0 == done.returncode, done.stderr
    return done.stdout.strip()


def axe_source() -> str:
    return (Path(__file__).parent / "axe" / "axe.min.js").read_text()


async def serious_findings(page: Page) -> list[str]:
    """What axe-core finds serious or critical in the page as it is."""
    if not await page.evaluate("typeof axe === 'object'"):
        await page.evaluate(f"{axe_source()}; true")
    found = json.loads(
        await page.evaluate("axe.run().then((found) => JSON.stringify(found.violations))")
    )
    return [
        f"{rule['id']}: {node['html']} {node['failureSummary']}"
        for rule in found
        if rule["impact"] in ("serious", "critical")
        for node in rule["nodes"]
    ]
