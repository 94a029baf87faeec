"""How the pages look, as far as a test can see it: nothing is wider than its place."""

from __future__ import annotations

import pytest

from tests.acceptance.console.images import places_of, show, stocked, too_wide
from tests.fixtures.browser import open_page


@pytest.mark.parametrize("stock", ["empty", "some"])
async def test_nothing_is_wider_than_its_place(browser: str, stock: str) -> None:
    """No page scrolls sideways, nor a table, on a screen of 1,024 pixels or more; on a phone each
    row is a card, and its page does not scroll either. `make console-images` shows them."""
    wide = {}
    async with stocked(stock) as up, open_page(browser) as page:
        for place in places_of(stock):
            for width in (1280, 1024, 390):
                found = too_wide(await show(page, up, place, width=width, dark=False), width)
                if found:
                    wide[place, width] = found
    assert {} == wide
