"""A large number of actions, and the page still answers: what it shows then, not how fast."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from benchmarks.sides.console_stock import fill
from gnomon.app import App
from gnomon.config import Settings
from gnomon.contracts.observer import SilentObserver
from tests.acceptance.console.conftest import quiet_page, serious_findings
from tests.fixtures.browser import Page
from tests.fixtures.once import copied
from tests.fixtures.up import Up, gnomon_up

ACTIONS = 200_000


@pytest.fixture(scope="module")
def full_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """In a file that was filled before, of which each process of this run has a copy."""
    folder = copied(tmp_path_factory, "many", lambda empty: asyncio.run(stock(empty)))
    asyncio.run(adopt(folder))
    with gnomon_up(folder) as found:
        yield found


def database_in(folder: Path) -> str:
    return f"sqlite:///{folder / 'gnomon.db'}"


async def stock(folder: Path) -> None:
    url = database_in(folder)
    async with App(url, settings=Settings(), observer=SilentObserver()) as app:
        await fill(app, url, ACTIONS)


async def adopt(folder: Path) -> None:
    """A copy begins nothing unless somebody says that it is to."""
    async with App(database_in(folder), settings=Settings(), observer=SilentObserver()) as app:
        await app.store.installation.adopt(past_due="run")


@pytest.fixture
async def full_page(browser: str, full_up: Up) -> AsyncIterator[Page]:
    async with quiet_page(browser, full_up.url) as opened:
        await opened.wait_text("Overview")
        yield opened


async def test_the_overview_says_where_counting_ended(full_page: Page) -> None:
    """A plus behind a count; the failures in groups; nothing is serious for axe."""
    await full_page.wait_text("2,000+", within="main")
    await full_page.wait_text("Connection refused", within="main")
    assert [] == await serious_findings(full_page)


async def test_the_last_pages_are_as_near_as_the_first(full_up: Up, full_page: Page) -> None:
    """By keyset; a prefix leads to its place at once."""
    await full_page.goto(f"{full_up.url}/#/actions")
    await full_page.wait_text("50 actions on this page")
    await full_page.goto(f"{full_up.url}/#/actions?q=id:sent-search")
    await full_page.wait_text("50 actions on this page")
    await full_page.click("Next page")
    await full_page.wait("location.hash.includes('after')")
    await full_page.wait_text("50 actions on this page")
    ids = await full_page.evaluate(
        "[...document.querySelectorAll('td.id')].map((a) => a.innerText)"
    )
    assert 50 == len(ids)
    assert all(id.startswith("sent-search-") for id in ids)


async def test_what_cannot_be_found_soon_is_not_called_missing(
    full_up: Up, full_page: Page
) -> None:
    """The page says how far it looked, and goes on until all were looked at if asked to."""
    await full_page.goto(f"{full_up.url}/#/actions?q=label.team%3Dnone")
    await full_page.wait_text("Looked at 3,000 rows so far, and none matches; there are more.")
    await full_page.click("Look on")
    await full_page.wait_text("No more action matches.")
    await full_page.goto(f'{full_up.url}/#/actions?q=state:dead error:"HTTP 503"')
    await full_page.wait_text("50 actions on this page")


async def test_all_that_match_are_counted_before_they_are_changed(
    full_up: Up, full_page: Page
) -> None:
    """As far as is worth it, and with the word for that."""
    await full_page.goto(f"{full_up.url}/#/actions?q=queue:mail")
    await full_page.wait_text("50 actions on this page")
    await full_page.click("Pause")
    await full_page.wait_text("10,000 or more actions match now", within="dialog")
    await full_page.click("Leave it", within="dialog")


async def test_much_load_ahead_is_estimated(full_up: Up, full_page: Page) -> None:
    """And said to be so."""
    await full_page.goto(f"{full_up.url}/#/load?unit=day")
    await full_page.wait_text("Counts are estimates", within="main")
    shown = await full_page.evaluate("document.querySelector('.figure-value').innerText")
    assert re.fullmatch(r"≈ \d+K", shown)
    load = json.loads(full_up.call("GET", "/v1/load?unit=day&count=60")[1])
    assert 0.8 * ACTIONS < sum(bucket["due"] for bucket in load["buckets"]) < 1.2 * ACTIONS


async def test_schedules_stand_behind_no_other_actions(full_up: Up, full_page: Page) -> None:
    """The first page has them, however many others sort before."""
    await full_page.goto(f"{full_up.url}/#/schedules?search=NIGHTLY")
    await full_page.wait_text("50 schedules on this page")
    await full_page.wait_text("nightly-", within="main")
