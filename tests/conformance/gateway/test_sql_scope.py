"""Whatever makes a SQL action run needs the scope of its target."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gnomon.model.spec import Mock, Spec, Sql
from gnomon.scheduler import Request
from tests.conformance.gateway.conftest import Answer
from tests.conformance.gateway.guarded import Guarded, guarded_server

START = "2100-01-01T00:00:00Z"
SPEC: dict[str, Any] = {
    "action": {"type": "sql", "target": "reports", "statement": "SELECT 1"},
    "start_at": START,
}
PLAIN: dict[str, Any] = {"action": {"type": "mock"}, "start_at": START}
# How an action comes to be, and what makes it run.
RUNNING = [("", "run"), ("pause", "resume"), ("delete", "retry")]


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Guarded]:
    async with guarded_server(tmp_path) as found:
        yield found


async def stored(guarded: Guarded, before: str, effect: Sql | Mock) -> None:
    """An action `a` that waits, is paused, or was cancelled."""
    scheduler = guarded.app.scheduler
    await scheduler.replace(Request(id="a", spec=Spec(action=effect)))
    if before:
        await getattr(scheduler, before)("a")


async def make_run(guarded: Guarded, token: str, verb: str) -> Answer:
    return await guarded.ask(token, "POST", f"/v1/actions/a/{verb}")


@pytest.mark.parametrize(("before", "verb"), RUNNING)
async def test_making_it_run_needs_the_scope(guarded: Guarded, before: str, verb: str) -> None:
    """Who may only write, or has another target's scope, is refused, and nothing changes."""
    await stored(guarded, before, Sql(target="reports", statement="SELECT 1"))
    found = await guarded.app.scheduler.get("a")
    for number, scopes in enumerate((("write",), ("write", "sql:other"))):
        refused = await make_run(guarded, await guarded.token(f"t{number}", *scopes), verb)
        assert (403, "sql:reports") == (refused.status, refused.json["scope"])
    assert found == await guarded.app.scheduler.get("a")
    allowed = await make_run(guarded, await guarded.token("ann", "write", "sql:reports"), verb)
    assert 200 == allowed.status


@pytest.mark.parametrize(("before", "verb"), RUNNING)
async def test_an_admin_and_other_effects_need_none(
    guarded: Guarded, before: str, verb: str
) -> None:
    """The scope is asked for where there is SQL, of those who are not allowed everything."""
    writer = await guarded.token("bob", "write")
    await stored(guarded, before, Mock())
    assert 200 == (await make_run(guarded, writer, verb)).status
    await stored(guarded, before, Sql(target="reports", statement="SELECT 1"))
    assert 200 == (await make_run(guarded, await guarded.token("root"), verb)).status


async def test_storing_it_needs_the_scope(guarded: Guarded) -> None:
    """By create, replace, and in each item of a bulk."""
    writer = await guarded.token("bob", "write")
    allowed = await guarded.token("ann", "write", "sql:reports")
    item = {"id": "a", "spec": SPEC}
    for method, path, body in (
        ("POST", "/v1/actions", item),
        ("PUT", "/v1/actions/a", {"spec": SPEC}),
    ):
        refused = await guarded.ask(writer, method, path, body)
        assert (403, "sql:reports") == (refused.status, refused.json["scope"])
        assert (await guarded.ask(allowed, method, path, body)).status in (200, 201)
    bulk = {"actions": [{"id": "b", "spec": SPEC}, {"id": "c", "spec": PLAIN}]}
    answer = await guarded.ask(writer, "POST", "/v1/actions:bulk", bulk)
    assert ["forbidden", None] == [
        item.get("problem", {}).get("code") for item in answer.json["items"]
    ]


async def test_stopping_it_needs_none(guarded: Guarded) -> None:
    """Who may write may pause and delete what he could not have created."""
    writer = await guarded.token("bob", "write")
    await stored(guarded, "", Sql(target="reports", statement="SELECT 1"))
    assert 200 == (await guarded.ask(writer, "POST", "/v1/actions/a/pause")).status
    assert 200 == (await guarded.ask(writer, "DELETE", "/v1/actions/a")).status


async def test_without_tokens_there_is_no_sql(guarded: Guarded) -> None:
    """An open server is for whoever reaches its port: he gets 403 for all of it."""
    await stored(guarded, "", Sql(target="reports", statement="SELECT 1"))
    answer = await guarded.ask(None, "POST", "/v1/actions/a/run")
    assert (403, "sql:reports") == (answer.status, answer.json["scope"])
    answer = await guarded.ask(None, "POST", "/v1/actions", {"spec": SPEC})
    assert (403, "sql:reports") == (answer.status, answer.json["scope"])


async def test_a_verb_on_everything_leaves_out_what_the_caller_may_not_run(
    guarded: Guarded,
) -> None:
    """The others are changed; the answer says how many were refused, and why."""
    for name, effect in (("sql", Sql(target="reports", statement="SELECT 1")), ("other", Mock())):
        await guarded.app.scheduler.replace(Request(id=name, spec=Spec(action=effect)))
        await guarded.app.scheduler.pause(name)
    path = "/v1/actions:change?verb=resume"
    step = await guarded.ask(await guarded.token("bob", "write"), "POST", path)
    assert (200, 1, 1) == (step.status, step.json["changed"], step.json["refused"])
    assert "sql:reports" in step.json["problem"]
    reader = await guarded.ask(await guarded.token("rita", "read"), "POST", path)
    assert 403 == reader.status
    allowed = await guarded.ask(await guarded.token("ann", "write", "sql:reports"), "POST", path)
    assert (1, 0, None) == tuple(allowed.json[name] for name in ("changed", "refused", "next"))
