"""Actions in the console: made, watched, filtered, changed; by whoever may."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.console.conftest import create, make_token, quiet_page, serious_findings
from tests.acceptance.console.front import Front
from tests.fixtures.browser import Page, open_page
from tests.fixtures.up import Up, gnomon_up

HASH = "location.hash"


def stored(up: Up, id: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(up.call("GET", f"/v1/actions/{id}")[1])
    return found


async def test_an_action_is_made_in_the_form_and_seen_to_fire(page: Page) -> None:
    """Its page is live: the end is shown without a reload."""
    await page.click("Actions")
    await page.click("New action")
    await page.fill("select[name=type]", "mock")
    await page.fill("input[name='effect.answer']", "fired!")
    await page.fill("input[name=id]", "made-here")
    await page.fill("select[name=start]", "in")
    await page.fill("input[name=delay]", "2s")
    await page.click("Create")
    await page.wait(f'{HASH} === "#/action/made-here"')
    await page.wait_text("fired!")
    await page.wait_text("done", within="main .head")
    await page.wait_text("ended", within=".live-dot")


async def test_what_the_form_is_told_wrong_is_said_there(page: Page) -> None:
    """Beside the field before it is sent, and by the server's own words after."""
    await page.goto(f"{await page.evaluate('location.origin')}/#/new")
    await page.click("Create")
    await page.wait_text("is needed")
    await page.fill("input[name='effect.url']", "ftp://example.org/")
    await page.click("Create")
    await page.wait_text("spec.action.url", within=".failure")
    # The browser tells of every refusal; this one was wanted.
    assert ["400" in text or "422" in text for text in page.complaints] == [True]
    page.complaints.clear()


async def test_a_filter_is_shared_by_its_url(browser: str, up: Up, page: Page) -> None:
    """Who opens the address in a browser of his own sees the same list."""
    for id, queue, team in (
        ("f-1", "filtered", "ads"),
        ("f-2", "filtered", "it"),
        ("f-3", "x", "ads"),
    ):
        create(up, id, queue=queue, labels={"team": team})
    await page.click("Actions")
    await page.press("/")
    await page.fill("[data-search]", "queue:filtered label.team=ads")
    await page.press("Enter")
    await page.wait_text("1 action on this page")
    url = await page.evaluate("location.href")
    async with quiet_page(browser, up.url) as other:
        await other.goto(url)
        await other.wait_text("1 action on this page")
        assert "f-1" == await other.evaluate("document.querySelector('td.id').innerText")
        await other.fill("[data-search]", "state:dd")
        await other.press("Enter")


async def test_arguments_are_found_and_changed(up: Up, page: Page) -> None:
    """By a path into what is called with; what is found can be changed together."""
    for number in (16, 17):
        payload = {"order": number, "customer": {"id": "c-1"}}
        create(up, f"sold-{number}", {"type": "python", "function": "sell", "kwargs": payload})
    await page.goto(f"{up.url}/#/actions?q=arg.order%3D17+arg.customer.id%3Dc-1")
    await page.wait_text("1 action on this page")
    assert "sold-17" == await page.evaluate("document.querySelector('td.id').innerText")
    await page.click("Pause")
    await page.wait_text("1 action matches now", within="dialog")
    await page.click("Pause 1", within="dialog")
    await page.wait_text("1 changed; all done", within="dialog")
    await page.click("Close", within="dialog")
    assert "paused" == stored(up, "sold-17")["status"]["state"]
    assert "paused" != stored(up, "sold-16")["status"].get("state")
    await page.fill("[data-search]", "arg.a..b=1")
    await page.press("Enter")
    await page.wait_text("write names with dots between them")


async def test_what_a_filter_cannot_mean_is_said(page: Page) -> None:
    """Instead of a list of something else."""
    await page.click("Actions")
    await page.press("/")
    await page.fill("[data-search]", "state:dread")
    await page.press("Enter")
    await page.wait_text("must be one of active, paused")


async def test_everything_that_matches_is_paused_after_a_count(up: Up, page: Page) -> None:
    """The question says how many; the answer how many were changed."""
    for number in range(3):
        create(up, f"many-{number}", queue="many")
    await page.goto(f"{up.url}/#/actions?q=queue:many")
    await page.click("Pause")
    await page.wait_text("3 actions match now", within="dialog")
    await page.click("Pause 3", within="dialog")
    await page.wait_text("3 changed; all done", within="dialog")
    await page.click("Close", within="dialog")
    await page.wait_text("paused", within="td + td")
    assert "paused" == stored(up, "many-2")["status"]["state"]


async def test_pages_follow_each_other(up: Up, page: Page) -> None:
    """By keyset: the last page has what is left, and there is a way back."""
    body = {
        "actions": [
            {
                "id": f"paged-{number:03}",
                "spec": {"action": {"type": "mock"}, "start_at": "2100-01-01T00:00:00Z"},
            }
            for number in range(60)
        ]
    }  # fmt: skip
    assert 200 == up.call("POST", "/v1/actions:bulk", body)[0]
    await page.goto(f"{up.url}/#/actions?q=id:paged-")
    await page.wait_text("50 actions on this page")
    await page.click("Next page")
    await page.wait_text("10 actions on this page")
    await page.click("First page")
    await page.wait_text("50 actions on this page")


async def test_an_edit_shows_its_difference_and_a_conflict(up: Up, page: Page) -> None:
    """What changes is seen before; who was quicker is not overwritten unasked."""
    create(up, "edited", priority=3)
    await page.goto(f"{up.url}/#/action/edited")
    await page.click("Edit")
    spec = {**stored(up, "edited")["spec"], "priority": 4}
    await page.fill("section[aria-label=Edit] textarea", json.dumps(spec))
    await page.wait_text('-   "priority": 3', within="[aria-label='What changes']")
    await page.wait_text('+   "priority": 4', within="[aria-label='What changes']")
    theirs = {**spec, "priority": 7}
    assert 200 == up.call("PUT", "/v1/actions/edited", {"spec": theirs})[0]
    await page.click("Save")
    await page.wait_text('+   "priority": 7', within="[aria-label='What they changed']")
    assert 7 == stored(up, "edited")["spec"]["priority"]
    await page.click("Replace theirs with mine")
    await page.wait("!document.querySelector('section[aria-label=Edit]')")
    assert 4 == stored(up, "edited")["spec"]["priority"]
    assert ["412" in text for text in page.complaints] == [True]
    page.complaints.clear()


async def test_buttons_do_what_they_say(up: Up, page: Page) -> None:
    """Pause, resume, cancel, retry; each changes the page."""
    create(up, "pushed")
    await page.goto(f"{up.url}/#/action/pushed")
    await page.click("Pause")
    await page.click("Pause it", within="dialog")
    for state in ("paused", "active"):
        await page.wait_text(state, within="main .head")
        assert state == stored(up, "pushed")["status"].get("state", "active")
        if state == "paused":
            await page.click("Resume")
    await page.click("Cancel action")
    await page.click("Cancel it", within="dialog")
    await page.wait_text("cancelled", within="main .head")
    await page.click("Retry")
    await page.wait_text("done", within="main .head")


async def test_a_copy_has_another_payload(up: Up, page: Page) -> None:
    """The form comes with what the action has, but for its time."""
    create(up, "original", {"type": "mock", "answer": "first"}, labels={"team": "ads"})
    await page.goto(f"{up.url}/#/action/original")
    await page.click("Copy", within="main")
    await page.wait("document.querySelector('input[name=id]').value === 'original-copy'")
    await page.fill("input[name='effect.answer']", "second")
    await page.click("Create")
    await page.wait_text("second", within="section[aria-label=Attempts]")
    assert {"team": "ads"} == stored(up, "original-copy")["spec"]["labels"]


async def test_a_stream_that_is_cut_goes_on(browser: str, up: Up) -> None:
    """What happened meanwhile is shown as soon as the server is there again."""
    create(up, "followed")
    async with Front(up.url) as front, open_page(browser) as page:
        await page.goto(f"{front.url}#/action/followed")
        await page.wait_text("live", within=".live-dot")
        front.cut()
        await page.wait_text("connecting", within=".live-dot")
        assert 200 == up.call("POST", "/v1/actions/followed/pause")[0]
        front.heal()
        await page.wait_text("paused", within="main .head")
        await page.wait_text("live", within=".live-dot")


async def test_who_may_read_only_sees_no_button(browser: str, guarded_up: Up) -> None:
    """Nor could he use it: the server refuses what the page does not offer."""
    reader, writer = await asyncio.gather(
        asyncio.to_thread(make_token, guarded_up, "reader", "read"),
        asyncio.to_thread(make_token, guarded_up, "writer", "read", "write"),
    )
    guarded_up.token = writer
    create(guarded_up, "seen")
    async with quiet_page(browser, guarded_up.url) as page:
        await page.goto(f"{guarded_up.url}/#/action/seen")
        await page.fill("input[name=token]", reader)
        await page.click("Sign in")
        await page.wait_text("read only")
        await page.wait_text("Copy as")
        buttons = await page.evaluate(
            "[...document.querySelectorAll('main button')].map((it) => it.innerText)"
        )
        assert {"curl", "CLI", "Python"} == set(buttons)
        refused = await page.evaluate(
            "fetch('v1/actions/seen/pause', {method: 'POST', headers: {Authorization:"
            " `Bearer ${sessionStorage.getItem('gnomon.token')}`}}).then((answer) => answer.status)"
        )
        assert 403 == refused
        assert None is await page.evaluate("localStorage.getItem('gnomon.token')")
        await page.click("Sign out")
        await page.wait_text("This server wants a token")
        page.complaints = [
            text for text in page.complaints if "401" not in text and "403" not in text
        ]


async def test_a_wrong_token_is_told_so(browser: str, guarded_up: Up) -> None:
    """And another one can be tried."""
    async with quiet_page(browser, guarded_up.url) as page:
        await page.fill("input[name=token]", "gnomon_nonsense")
        await page.click("Sign in")
        await page.wait_text("the token is not valid")
        page.complaints = [text for text in page.complaints if "401" not in text]


@pytest.mark.parametrize("dark", [False, True])
async def test_nobody_is_kept_out(up: Up, page: Page, dark: bool) -> None:
    """axe-core finds nothing serious in any view, in both themes."""
    create(up, f"looked-at-{dark}", labels={"team": "ads"})
    await page.show(1280, 900, dark=dark)
    for place, text in (
        ("overview", "Overview"),
        ("actions", "on this page"),
        (f"action/looked-at-{dark}", "Copy as"),
        ("new", "Create"),
        ("queues", "Queues"),
        ("workers", "Last heartbeat"),
        ("stages", "no stages yet"),
        ("tasks", "no task tables"),
        ("audit", "on this page"),
        ("database", "Write-ahead log"),
        ("failures", "Failures"),
        ("schedules", "Schedules"),
        ("lateness", "Lateness"),
        ("load", "Due in the next hour"),
    ):
        await page.goto(f"{up.url}/#/{place}")
        await page.wait_text(text, within="main")
        assert [] == await serious_findings(page), place


FOLLOWED_EARLY = """
new MutationObserver((_, observer) => {
  if (!document.querySelector('.shell')) return;
  observer.disconnect();
  history.replaceState(null, '', '#/workers');  // without an event: nobody would have heard it
}).observe(document, {childList: true, subtree: true});
"""


async def test_a_link_that_is_followed_before_the_page_listens_is_not_lost(
    browser: str, up: Up
) -> None:
    """Between the first drawing and the first effect the address changes, and the event has come
    and gone when the page begins to listen."""
    async with open_page(browser) as page:
        await page.send("Page.addScriptToEvaluateOnNewDocument", source=FOLLOWED_EARLY)
        await page.goto(f"{up.url}/#/actions")
        await page.wait_text("Last heartbeat", within="main")


async def test_keys_lead_everywhere(page: Page) -> None:
    """`g` and a letter, `?` for the list of them."""
    await page.press("g")
    await page.press("a")
    await page.wait(f'{HASH}.startsWith("#/actions")')
    await page.press("?")
    await page.wait_text("new action", within="dialog")


async def test_nobody_takes_one_installation_for_another(
    browser: str, tmp_path: Path, up: Up
) -> None:
    """Its name is on every page; a link leads to the same view of another, with its filter."""
    toml = f'[console]\nname = "staging <1>"\ncolor = "orange"\nothers = {{ live = "{up.url}" }}\n'
    with gnomon_up(tmp_path, toml) as staging:
        async with quiet_page(browser, staging.url) as page:
            await page.goto(f"{staging.url}/#/actions?q=queue:mail&after=YQ&looked=5000")
            await page.wait_text("staging <1>", within="header .installation.orange")
            await page.wait("document.title.endsWith('staging <1>')")
            assert [] == await serious_findings(page)
            href = await page.evaluate("document.querySelector('.installations a').href")
    assert f"{up.url}/#/actions?q=queue%3Amail" == href
    async with quiet_page(browser, up.url) as page:
        await page.goto(href)
        await page.wait_text("No action matches")
        assert None is await page.evaluate("document.querySelector('.installations')")


async def test_a_page_says_how_far_it_has_looked(browser: str, tmp_path: Path) -> None:
    """Where no index answers, a page looks at some rows only; it can be told to look on."""
    spec = {"action": {"type": "python", "function": "sell"}, "start_at": "2100-01-01T00:00:00Z"}
    rare = {**spec, "action": {**spec["action"], "kwargs": {"order": 17}}}  # type: ignore[dict-item]
    many = [{"id": f"a-{number:05}", "spec": spec} for number in range(9_000)]
    with gnomon_up(tmp_path) as large:
        body = {"actions": [*many, {"id": "z", "spec": rare}]}
        assert 200 == large.call("POST", "/v1/actions:bulk", body)[0]
        async with quiet_page(browser, large.url) as page:
            await page.goto(f"{large.url}/#/actions?q=arg.order%3D17")
            await page.wait_text("rows so far, and none matches")
            await page.click("Look on")
            await page.wait_text("1 action on this page")
            await page.wait(f'{HASH}.includes("looked=")')
            assert "z" == await page.evaluate("document.querySelector('td.id').innerText")
