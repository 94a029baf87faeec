"""The browser of these tests itself."""

from __future__ import annotations

import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.fixtures.browser import open_page, running

RELOADS = 60
# A page's name outlives its reload.
RESTLESS = f"""<script>
window.name = Number(window.name) + 1;
if (window.name < {RELOADS}) setTimeout(() => location.reload(), 5);
</script>"""
# An answer that takes so long that the page is gone before it comes.
SLOW_LOOK = (
    "new Promise((done) => setTimeout(() => done("
    f"window.name >= {RELOADS} && document.readyState), 10))"
)


async def test_who_waits_outlasts_the_page_that_was_asked(browser: str, tmp_path: Path) -> None:
    """A page may be replaced while it is asked: the next one is, then."""
    file = tmp_path / "restless.html"
    file.write_text(RESTLESS)
    async with open_page(browser) as page:
        await page.goto(file.as_uri())

        assert "complete" == await page.wait(SLOW_LOOK)


def test_no_browser_outlives_its_block(tmp_path: Path) -> None:
    """Debian's program is a script: whoever ends it alone leaves the browser behind."""
    with running(tmp_path) as address:
        at = urlsplit(address)
        assert at.hostname is not None
        assert at.port is not None
        socket.create_connection((at.hostname, at.port)).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((at.hostname, at.port))
