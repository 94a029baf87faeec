"""How the pages look, as far as a test can see it: nothing is wider than its place, and cards on a
phone are as good for everybody as tables."""

from __future__ import annotations

import pytest

from tests.acceptance.console.conftest import serious_findings
from tests.acceptance.console.images import places_of, resize, show, stocked, too_wide
from tests.fixtures.browser import open_page

PHONE = 390
SCREEN = 1024  # what fits there fits on wider ones


@pytest.mark.parametrize("stock", ["empty", "some"])
async def test_nothing_is_wider_than_its_place(browser: str, stock: str) -> None:
    """No page scrolls sideways, nor a table, on a screen of 1,024 pixels or more; on a phone each
    row is a card, its page does not scroll either, and axe-core finds nothing serious.
    `make console-images` shows them."""
    wrong: dict[tuple[str, int], list[str]] = {}
    async with stocked(stock) as up, open_page(browser) as page:
        for place in places_of(stock):
            found = too_wide(await show(page, up, place, width=SCREEN, dark=False), SCREEN)
            if found:
                wrong[place, SCREEN] = found
            found = too_wide(await resize(page, PHONE), PHONE) + await serious_findings(page)
            if found:
                wrong[place, PHONE] = found
    assert {} == wrong
