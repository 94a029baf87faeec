"""Pictures of every view of the console, for those who change it: `make console-images`.

In both themes, at three widths, of an installation that is empty, has some of everything, and has
very much. What is wider than its place is named: a page must never scroll sideways, a table only
on a phone.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.sides.console_stock import fill
from gnomon.app import App
from gnomon.config import Settings
from gnomon.contracts.observer import SilentObserver
from tests.acceptance.console import shop
from tests.fixtures.browser import Page, open_page, running
from tests.fixtures.up import Up, gnomon_up

WIDTHS = (1440, 1024, 390)
PHONE = 800  # tables may scroll below this
HEIGHT = 900
MANY = 200_000
STOCKS = ("empty", "some", "many")
PLACES = {
    "overview": "",
    "actions": "actions",
    "actions-filtered": "actions?q=state:active queue:mail",
    "action": "action/order-1004-charge",
    "action-running": "action/import-prices",
    "new": "new",
    "schedules": "schedules",
    "failures": "failures",
    "load": "load",
    "lateness": "lateness",
    "queues": "queues",
    "workers": "workers",
    "stages": "stages",
    "entities": "entities/ad",
    "entity": "entities/ad/ad-strange",
    "tables": "tasks",
    "tasks": f"tasks/{shop.TABLE}",
    "task": f"tasks/{shop.TABLE}/3",
    "database": "database",
    "audit": "audit",
}
ONES = ("action", "action-running", "actions-filtered", "entity", "tasks", "task")
DOCS = {  # what the pages show: place, width, dark, height at most
    "console-overview": ("overview", 1280, False, 1350),
    "console-action": ("action", 1280, True, 1000),
    "console-stages": ("stages", 1280, False, 900),
    "console-load": ("load", 1280, True, 700),
    "console-phone": ("schedules", 390, False, 780),
}
IS_DRAWN = """document.querySelector('main h1, main .empty') !== null
  && document.querySelector('[aria-busy=true]') === null"""
WIDER = """(() => {
  const wide = (item) => item.scrollWidth > item.clientWidth + 1;
  const page = document.scrollingElement;
  const tables = [...document.querySelectorAll('.table, .graph')].filter(wide);
  const names = tables.map((item) => item.getAttribute('aria-label'));
  return wide(page) ? ['the page', ...names] : names;
})()"""


@asynccontextmanager
async def stocked(stock: str) -> AsyncIterator[Up]:
    """An installation with so much in it."""
    with tempfile.TemporaryDirectory(prefix="gnomon-images-") as name:
        folder = Path(name)
        if stock == "empty":
            with gnomon_up(folder) as up:
                yield up
            return
        shop.write_program(folder)
        await shop.write_history(folder)
        if stock == "many":
            url = f"sqlite:///{folder / 'gnomon.db'}"
            async with App(url, settings=Settings(), observer=SilentObserver()) as app:
                await fill(app, url, MANY)
        with gnomon_up(folder, shop.TOML, arguments=("--import", "shop:app")) as up:
            await asyncio.to_thread(shop.stock, up)
            yield up


async def show(page: Page, up: Up, place: str, *, width: int, dark: bool) -> list[str]:
    """Go there and wait until it is drawn; what is too wide for its place."""
    await page.show(width, HEIGHT, dark=dark)
    await page.goto("about:blank")
    await page.goto(f"{up.url}/#/{PLACES[place]}")
    return await wider(page)


async def resize(page: Page, width: int) -> list[str]:
    """Look at the same in another width; what is too wide for its place."""
    await page.show(width, HEIGHT)
    return await wider(page)


async def wider(page: Page) -> list[str]:
    """What is too wide for its place, once all is drawn."""
    await page.wait(IS_DRAWN)
    await page.wait("document.getAnimations().length === 0")
    found: list[str] = await page.evaluate(WIDER)
    return found


def too_wide(found: Sequence[str], width: int) -> list[str]:
    """On a phone a table may scroll within its frame; a page never."""
    return [name for name in found if width > PHONE or name == "the page"]


async def take(page: Page, path: Path, *, width: int, most: int = 6_000) -> None:
    """The whole page, not only what fits into the window."""
    height: int = await page.evaluate("document.documentElement.scrollHeight")
    dark: bool = await page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    await page.show(width, min(max(height, HEIGHT // 2), most), dark=dark)
    await page.screenshot(path)


def made_small(path: Path) -> None:
    """With a palette, where somebody has installed what makes one."""
    program = shutil.which("pngquant")
    if program is not None:
        options = ("--force", "--skip-if-larger", "--strip", "--speed", "1", "--output", path)
        subprocess.run([program, *options, path], check=False)


def places_of(stock: str, places: Iterable[str] = PLACES) -> list[str]:
    """Where there is something to see; an empty installation has no action to show."""
    return [place for place in places if stock != "empty" or place not in ONES]


async def picture_all(
    browser: str, folder: Path, stocks: Sequence[str], places: Sequence[str]
) -> int:
    """How many views are too wide."""
    wrong = 0
    for stock in stocks:
        async with stocked(stock) as up, open_page(browser) as page:
            for place in places_of(stock, places):
                for width in WIDTHS:
                    for dark in (False, True):
                        found = too_wide(await show(page, up, place, width=width, dark=dark), width)
                        if found:
                            wrong += 1
                            print(f"{stock} {place} at {width}: too wide: {', '.join(found)}")
                        theme = "dark" if dark else "light"
                        path = folder / f"{place}-{stock}-{width}-{theme}.png"
                        await take(page, path, width=width)
            for complaint in page.complaints:
                print(f"{stock}: {complaint}")
    return wrong


async def picture_docs(browser: str, folder: Path) -> None:
    """Those that pages show."""
    async with stocked("some") as up, open_page(browser) as page:
        for name, (place, width, dark, most) in DOCS.items():
            await show(page, up, place, width=width, dark=dark)
            await take(page, folder / f"{name}.png", width=width, most=most)
            made_small(folder / f"{name}.png")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--docs", action="store_true", help="only those that pages show")
    parser.add_argument("--stock", action="append", choices=STOCKS, help="default: all")
    parser.add_argument("--place", action="append", choices=PLACES, help="default: all")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(
            prefix="gnomon-chromium-", ignore_cleanup_errors=True
        ) as profile,
        running(Path(profile)) as browser,
    ):
        if options.docs:
            asyncio.run(picture_docs(browser, options.folder))
            return 0
        stocks, places = options.stock or STOCKS, options.place or list(PLACES)
        return 1 if asyncio.run(picture_all(browser, options.folder, stocks, places)) else 0


if __name__ == "__main__":
    sys.exit(main())
