"""Pauses in the console: with a reason, and with an end that comes by itself."""

from __future__ import annotations

import json
from typing import Any

from tests.acceptance.console.conftest import create, serious_findings
from tests.fixtures.browser import Page
from tests.fixtures.up import Up

HOURLY = {"policy": {"type": "periodic", "period": "1h"}}


def status_of(up: Up, id: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(up.call("GET", f"/v1/actions/{id}")[1])["status"]
    return found


async def test_a_maintenance_pause_ends_by_itself(up: Up, page: Page) -> None:
    """The page says why and until when, and shows the end without a reload."""
    create(up, "rested")
    await page.goto(f"{up.url}/#/action/rested")
    await page.click("Pause")
    await page.fill("dialog input[name=reason]", "the database moves")
    await page.fill("dialog select[name=end]", "length")
    await page.fill("dialog input[name=length]", "4s")
    assert [] == await serious_findings(page)
    await page.click("Pause it", within="dialog")
    await page.wait_text("paused", within="main .head")
    await page.wait_text("It is paused: the database moves; nothing begins until", within=".notice")
    await page.wait_text("Paused until", within="dl.facts")
    await page.wait_text("active", within="main .head")
    status = status_of(up, "rested")
    assert "active" == status.get("state", "active")
    assert None is status.get("paused_until")
    assert None is status.get("reason")


async def test_an_end_that_has_passed_is_said_in_the_dialog(up: Up, page: Page) -> None:
    """It stays open, with what was written; a better end is taken."""
    create(up, "hasty")
    await page.goto(f"{up.url}/#/action/hasty")
    await page.click("Pause")
    await page.fill("dialog select[name=end]", "time")
    await page.fill("dialog input[name=time]", "2020-01-01T06:00:00")
    await page.click("Pause it", within="dialog")
    await page.wait_text("must be in the future", within="dialog .failure")
    await page.fill("dialog input[name=time]", "2100-01-01T06:00:00")
    await page.click("Pause it", within="dialog")
    await page.wait_text("paused", within="main .head")
    await page.click("Change pause")
    await page.fill("dialog select[name=end]", "none")
    await page.click("Pause it", within="dialog")
    await page.wait_text("nothing begins until it is resumed", within=".notice")
    assert None is status_of(up, "hasty").get("paused_until")
    assert ["422" in text or "400" in text for text in page.complaints] == [True]
    page.complaints.clear()


async def test_schedules_are_paused_and_resumed_at_once(up: Up, page: Page) -> None:
    """All that match, after a count; and those that this maintenance paused, not the others."""
    for id in ("night-a", "night-b", "night-c"):
        create(up, id, **HOURLY)
    create(up, "night-once")
    assert 200 == up.call("POST", "/v1/actions/night-c/pause?reason=broken")[0]
    await page.goto(f"{up.url}/#/schedules?search=NIGHT-")
    await page.click("Pause all that match")
    await page.wait_text("2 actions match now", within="dialog")
    await page.fill("dialog input[name=reason]", "the night shift")
    await page.fill("dialog select[name=end]", "tomorrow")
    await page.click("Pause 2", within="dialog")
    await page.wait_text("2 changed; all done", within="dialog")
    await page.click("Close", within="dialog")
    await page.wait_text("the night shift, goes on in", within="table")
    assert "paused" == status_of(up, "night-a")["state"]
    assert status_of(up, "night-a")["paused_until"] == status_of(up, "night-b")["paused_until"]
    assert "active" == status_of(up, "night-once").get("state", "active")
    assert [] == await serious_findings(page)
    await page.click("Resume all paused for “the night shift”")
    await page.wait_text("2 actions match now", within="dialog")
    await page.click("Resume 2", within="dialog")
    await page.wait_text("2 changed; all done", within="dialog")
    await page.click("Close", within="dialog")
    await page.wait("!document.querySelector('main').innerText.includes('the night shift')")
    assert "active" == status_of(up, "night-b").get("state", "active")
    assert "broken" == status_of(up, "night-c")["reason"]
