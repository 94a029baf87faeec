"""The other views of the console: what they show, and what can be done there."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.acceptance.console.conftest import quiet_page, serious_findings
from tests.fixtures.up import Up, clean_environment, gnomon_up

PROGRAM = """
from datetime import datetime
from typing import Literal

from gnomon import App, Attempt
from gnomon.stages import Quarantine, Stage, Stages, Update

app = App("sqlite:///gnomon.db")


class Price(Stage[dict, None]):
    name, watch, writes = "price", ("title",), ("price",)

    def should_process(self, it):
        return True

    async def process(self, it):
        if it.entity["title"] == "strange":
            raise Quarantine("a person must look")
        return Update({"price": len(it.entity["title"])})


class Echo(Stage[dict, None]):
    name, watch, writes = "echo", ("price",), ("title",)

    def should_process(self, it):
        return False

    async def process(self, it):
        return None


@app.action
def greet(
    ctx: Attempt, name: str, /, times: int = 2, *, loud: bool = False,
    colour: Literal["red", "blue"] = "red", at: datetime | None = None, extra: dict | None = None,
) -> str:
    "Say hello to somebody."
    return f"{name} {times} {loud} {colour} {at and at.year} {extra}"


ads = Stages(app, "ad")
ads.add(Price())
ads.add(Echo())
"""


@pytest.fixture(scope="session")
def staged_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """With two stages that wake each other, and a task table."""
    folder: Path = tmp_path_factory.mktemp("staged")
    (folder / "shop.py").write_text(textwrap.dedent(PROGRAM))
    toml = '[tasks]\ndsn = "sqlite:///tasks.db"\n'
    with gnomon_up(folder, toml, arguments=("--import", "shop:app")) as found:
        yield found


async def test_stages_are_drawn_and_entities_explained(browser: str, staged_up: Up) -> None:
    """A loop is marked; what was given up is told with its reason, and can be released."""
    up = staged_up
    assert 200 == up.call("PUT", "/v1/entities/ad/ad-1", {"title": "strange"})[0]
    async with quiet_page(browser, up.url) as page:
        await page.goto(f"{up.url}/#/stages")
        await page.wait("document.querySelectorAll('.graph-edge.loop').length === 2")
        await page.wait_text("a person must look", within="section[aria-label=Parked]")
        assert [] == await serious_findings(page)
        await page.click("ad/ad-1")
        await page.wait_text("quarantined", within="section[aria-label='Why it waits']")
        assert [] == await serious_findings(page)
        assert 200 == up.call("PUT", "/v1/entities/ad/ad-1", {"title": "plain"})[0]
        await page.wait_text('"price": 5')
        await page.wait_text("version 2", within="section[aria-label='What changed it']")


async def test_a_stage_is_backfilled_after_a_question(browser: str, staged_up: Up) -> None:
    """The stage then sees every entity once more."""
    async with quiet_page(browser, staged_up.url) as page:
        await page.goto(f"{staged_up.url}/#/stages")
        await page.click("Backfill")
        await page.click("Begin the backfill", within="dialog")
        await page.wait("!document.querySelector('dialog')")
        entries = json.loads(staged_up.call("GET", "/v1/audit?limit=5")[1])["entries"]
        assert "backfill" in " ".join(entry["verb"] for entry in entries)


async def test_workers_and_the_audit_are_shown(browser: str, staged_up: Up) -> None:
    """Who holds the shards; who did what, and by whom it is found."""
    up = staged_up
    assert (
        201
        == up.call("POST", "/v1/actions", {"id": "audited", "spec": {"action": {"type": "mock"}}})[
            0
        ]
    )
    async with quiet_page(browser, up.url) as page:
        await page.goto(f"{up.url}/#/workers")
        await page.wait_text("0\u201363")
        await page.goto(f"{up.url}/#/audit?id=audited&actor=local")
        await page.wait_text("1 change on this page")
        await page.wait_text("REST", within="td:nth-child(3)")
        await page.click("audited", within="td")
        await page.wait('location.hash === "#/action/audited"')
        await page.wait_text("done", within="main .head")
        await page.click("Copy", within="main")
        await page.wait("document.querySelector('input[name=id]').value === 'audited-copy'")
        await page.click("Create")
        await page.wait('location.hash === "#/action/audited-copy"')
        await page.goto(f"{up.url}/#/audit?id=audited-copy")
        await page.wait_text("console", within="td:nth-child(3)")


async def test_a_form_is_made_from_a_functions_signature(browser: str, staged_up: Up) -> None:
    """One field for each parameter, by its annotation, with its default; mistakes are told there,
    what is sent is shown before, and the action is seen to fire."""
    async with quiet_page(browser, staged_up.url) as page:
        await page.goto(f"{staged_up.url}/#/new")
        await page.fill("select[name=type]", "python")
        await page.wait("document.querySelector('#functions-served option[value=greet]') !== null")
        await page.fill("input[name='effect.function']", "greet")
        await page.wait_text("Say hello to somebody.")
        times = "document.querySelector('input[name=\"argument.times\"]')"
        await page.wait(f"{times}.value === '2' && {times}.type === 'number'")
        colours = "document.querySelector('select[name=\"argument.colour\"]')"
        await page.wait(f"{colours}.value === 'red' && {colours}.options.length === 2")
        assert [] == await serious_findings(page)
        await page.fill("input[name='argument.times']", "2.5")
        await page.fill("textarea[name='argument.extra']", "{")
        await page.click("Create")
        await page.wait_text("is needed")
        await page.wait_text("must be a whole number")
        await page.wait_text("must be JSON")
        await page.fill("input[name='argument.name']", "ann")
        await page.fill("input[name='argument.times']", "3")
        await page.fill("select[name='argument.colour']", "blue")
        await page.fill("input[name='argument.at']", "2031-05-06T07:08:09")
        await page.fill("textarea[name='argument.extra']", '{"a": 1}')
        await page.fill("input[name=id]", "greeted")
        await page.wait_text('"colour": "blue"', within="[aria-label='What is sent']")
        await page.click("Create")
        await page.wait('location.hash === "#/action/greeted"')
        await page.wait_text("ann 3 False blue 2031", within="section[aria-label=Attempts]")
        await page.goto(f"{staged_up.url}/#/actions?q=arg.name%3Dann+arg.times%3D3")
        await page.wait_text("1 action on this page")
        await page.goto(f"{staged_up.url}/#/new?from=greeted")
        await page.wait("document.querySelector('input[name=\"argument.name\"]')?.value === 'ann'")
        await page.wait(f"{times}.value === '3' && {colours}.value === 'blue'")


@pytest.mark.parametrize("place", ["server", "database"])
def test_the_command_line_lists_functions_as_the_form_has_them(staged_up: Up, place: str) -> None:
    """Over a server, and straight at the database; as a table, and as JSON."""
    where = ("--server", staged_up.url) if place == "server" else ()
    told = [
        subprocess.run(
            [sys.executable, "-m", "gnomon", "function", "list", *where, *form],
            cwd=staged_up.folder, env=clean_environment(), capture_output=True, text=True,
            check=True,
        ).stdout
        for form in ((), ("--json",), ("--search", "none"))
    ]  # fmt: skip
    assert "greet(name, /, times=2" in told[0]
    (function,) = json.loads(told[1])["functions"]
    assert ("greet", "Say hello to somebody.") == (function["name"], function["summary"])
    assert "No living program serves a function" in told[2]


async def test_a_limit_is_set_and_removed(browser: str, staged_up: Up) -> None:
    """In the view of queues, by who may operate."""
    async with quiet_page(browser, staged_up.url) as page:
        await page.goto(f"{staged_up.url}/#/queues")
        await page.click("New limit")
        await page.fill("dialog label:nth-child(2) input", "mail")
        await page.fill("dialog input[name=parallel]", "3")
        await page.click("Set", within="dialog")
        await page.wait_text("of 3")
        limit = json.loads(staged_up.call("GET", "/v1/limits/queue/mail")[1])
        assert 3 == limit["parallel"]
        await page.click("Change")
        await page.click("Remove the limit", within="dialog")
        await page.wait("!document.querySelector('dialog')")
        assert 404 == staged_up.call("GET", "/v1/limits/queue/mail")[0]


async def test_task_tables_show_their_rows(browser: str, staged_up: Up) -> None:
    """Input, output and error of each."""
    async with quiet_page(browser, staged_up.url) as page:
        await page.goto(f"{staged_up.url}/#/tasks")
        await page.click("tasks.public.task")
        await page.wait_text("No task is here")
        assert [] == await serious_findings(page)


async def test_a_dead_group_is_retried(browser: str, staged_up: Up) -> None:
    """Two actions with the same error are one group, and one button arms both."""
    up = staged_up
    for number in (1, 2):
        up.create(f"grouped-{number}", {"type": "mock", "fail": 1})
        assert "dead" == up.ended(f"grouped-{number}")["state"]
    async with quiet_page(browser, up.url) as page:
        await page.goto(f"{up.url}/#/failures")
        await page.wait_text("mock failure 1 of 1")
        assert [] == await serious_findings(page)
        await page.click("Retry")
        await page.click("Retry 2", within="dialog")
        await page.wait_text("2 of 2 retried.", within="dialog")
        await page.click("Close", within="dialog")
    for number in (1, 2):
        entries = json.loads(up.call("GET", f"/v1/audit?id=grouped-{number}")[1])["entries"]
        assert ["retry", "create"] == [entry["verb"] for entry in entries]


async def test_a_herd_is_shown_before_it_comes(browser: str, staged_up: Up) -> None:
    """Sixty actions on one second, with the way to spread them."""
    soon = (datetime.now(UTC) + timedelta(minutes=30)).replace(microsecond=0).isoformat()
    spec = {"action": {"type": "mock"}, "start_at": soon}
    items = [{"id": f"herd-{number}", "spec": spec} for number in range(60)]
    assert 200 == staged_up.call("POST", "/v1/actions:bulk", {"actions": items})[0]
    async with quiet_page(browser, staged_up.url) as page:
        await page.goto(f"{staged_up.url}/#/load")
        await page.wait_text("60", within="section[aria-label=Herds]")
        await page.wait_text("jitter", within="section[aria-label=Herds]")
        await page.wait("document.querySelectorAll('.chart .bar').length > 0")
        assert [] == await serious_findings(page)
