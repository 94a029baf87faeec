"""Task tables over REST: looking, inserting, stopping, on both engines."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gnomon.contracts.store import AuditSelection
from gnomon.contracts.task_rows import TaskRows
from gnomon.gateways.rest import tasks as rest_tasks
from tests.conformance.gateway.conftest import Answer, Gateway
from tests.conformance.gateway.guarded import Guarded, guarded_server
from tests.fixtures.task_tables import TaskPlace

TABLE = "/v1/task-tables/shop"
FAR = "2100-01-01T00:00:00Z"


class Caller:
    """Somebody with a token that may do everything with the table, and one that may only look."""

    def __init__(self, server: Guarded, writer: str, reader: str) -> None:
        self.server = server
        self._writer = writer
        self.reader = reader

    async def call(self, method: str, path: str, body: object = None) -> Answer:
        return await self.server.ask(self._writer, method, TABLE + path, body)

    async def look(self, method: str, path: str, body: object = None) -> Answer:
        """As who may only read and write actions."""
        return await self.server.ask(self.reader, method, path, body)

    async def insert(self, **columns: object) -> Any:
        answer = await self.call("POST", "/tasks", {"input": "SELECT 1", "plan": FAR, **columns})
        assert 201 == answer.status, answer.body
        return answer.json


@pytest.fixture
async def caller(task_rows: TaskRows, tmp_path: Path) -> AsyncIterator[Caller]:
    async with guarded_server(tmp_path, task_tables={"shop": task_rows}) as server:
        writer = await server.token("writer", "read", "write", "table:shop")
        yield Caller(server, writer, await server.token("reader", "read", "write"))


async def test_tables_are_listed(caller: Caller) -> None:
    answer = await caller.look("GET", "/v1/task-tables")
    assert {"tables": [{"name": "shop"}]} == answer.json


async def test_inserted_task_has_what_was_given_and_the_defaults_of_the_rest(
    caller: Caller,
) -> None:
    task = await caller.insert(group="mail", max=3, timeout="5 min", data="d", delete=False)
    assert ("PLAN", "mail", 3, "d", False) == (
        task["state"],
        task["group"],
        task["max"],
        task["data"],
        task["delete"],
    )
    assert ("SELECT 1", None, 0, False) == (
        task["input"],
        task["output"],
        task["count"],
        task["drift"],
    )
    assert FAR == task["plan"].replace("+00:00", "Z")
    assert "planned later" == task["why"]
    assert task == (await caller.call("GET", f"/tasks/{task['id']}")).json


async def test_tasks_are_listed_by_state_and_group_page_by_page(caller: Caller) -> None:
    for number in range(5):
        await caller.insert(group="a" if number % 2 else "b")
    stopped = (await caller.insert())["id"]
    await caller.call("POST", f"/tasks/{stopped}/stop")
    page = (await caller.call("GET", "/tasks?limit=4&state=PLAN")).json
    assert [1, 2, 3, 4] == [task["id"] for task in page["tasks"]]
    rest = (await caller.call("GET", f"/tasks?state=PLAN&after={page['next']}")).json
    assert ([5], None) == ([task["id"] for task in rest["tasks"]], rest["next"])
    both = (await caller.call("GET", "/tasks?group=a&state=PLAN&state=STOP")).json
    assert [2, 4] == [task["id"] for task in both["tasks"]]
    assert [6] == [
        task["id"] for task in (await caller.call("GET", "/tasks?state=STOP")).json["tasks"]
    ]


async def test_a_page_says_how_far_it_has_looked(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No index knows states and groups: it looks at some rows, and `next` goes on from there."""
    monkeypatch.setattr(rest_tasks, "LOOKED_AT_MAX", 3)
    for number in range(7):
        await caller.insert(group="rare" if number == 4 else "usual")
    first = (await caller.call("GET", "/tasks?group=rare")).json
    assert ([], "3", 3) == (first["tasks"], first["next"], first["looked_at"])
    second = (await caller.call("GET", "/tasks?group=rare&after=3")).json
    assert ([5], "6", 3) == (
        [task["id"] for task in second["tasks"]], second["next"], second["looked_at"],
    )  # fmt: skip
    third = (await caller.call("GET", "/tasks?group=rare&after=6")).json
    assert ([], None, None) == (third["tasks"], third["next"], third["looked_at"])
    everything = (await caller.call("GET", "/tasks")).json
    assert (7, None) == (len(everything["tasks"]), everything["looked_at"])


async def test_task_is_stopped_and_planned_again(caller: Caller) -> None:
    task_id = (await caller.insert())["id"]
    stopped = await caller.call("POST", f"/tasks/{task_id}/stop")
    assert (200, "STOP", "stopped") == (
        stopped.status,
        stopped.json["state"],
        stopped.json["why"],
    )
    planned = await caller.call("POST", f"/tasks/{task_id}/plan")
    assert (200, "PLAN") == (planned.status, planned.json["state"])
    again = await caller.call("POST", f"/tasks/{task_id}/plan")
    assert (200, "PLAN") == (again.status, again.json["state"])


async def test_why_a_task_waits_is_told_to_who_may_look(caller: Caller) -> None:
    """By its plan, and when it was stopped by that."""
    task = await caller.insert()
    path = f"/tasks/{task['id']}"
    answer = await caller.look("GET", f"{TABLE}{path}/why")
    assert ("not_due", FAR) == (answer.json["code"], answer.json["until"])
    await caller.call("POST", f"{path}/stop")
    answer = await caller.look("GET", f"{TABLE}{path}/why")
    assert "ended" == answer.json["code"]
    assert 404 == (await caller.look("GET", f"{TABLE}/tasks/999999/why")).status


async def test_task_that_has_ended_cannot_be_stopped(caller: Caller, task_place: TaskPlace) -> None:
    task_id = (await caller.insert())["id"]
    task_place.execute("UPDATE task SET state = 'DONE'")
    answer = await caller.call("POST", f"/tasks/{task_id}/stop")
    assert (409, "DONE") == (answer.status, answer.json["state"])
    assert answer.json["detail"].startswith(f"task '{task_id}' is DONE")


async def test_every_change_is_in_the_audit(caller: Caller) -> None:
    """Who did what to which row; what was refused for want of a scope is no change."""
    task_id = (await caller.insert())["id"]
    await caller.call("POST", f"/tasks/{task_id}/stop")
    await caller.call("POST", f"/tasks/{task_id}/plan")
    await caller.look("POST", f"{TABLE}/tasks/{task_id}/stop")
    found = await caller.server.app.store.tokens.list_audit(AuditSelection(), limit=10)
    assert [
        ("writer", "plan task", f"shop/{task_id}"),
        ("writer", "stop task", f"shop/{task_id}"),
        ("writer", "insert task", "shop"),
    ] == [(entry.actor, entry.verb, entry.id) for entry in found]


async def test_the_quota_of_a_token_counts_what_waits_in_the_table(caller: Caller) -> None:
    """At its limit nothing is inserted and nothing planned again; what was stopped makes room."""
    small = await caller.server.token("small", "read", "write", "table:shop", live_max=1)
    first = (await caller.insert())["id"]
    body = {"input": "SELECT 1", "plan": FAR}
    refused = await caller.server.ask(small, "POST", f"{TABLE}/tasks", body)
    assert (429, "token.live_max") == (refused.status, refused.json["limit"])
    await caller.call("POST", f"/tasks/{first}/stop")
    assert 201 == (await caller.server.ask(small, "POST", f"{TABLE}/tasks", body)).status
    again = await caller.server.ask(small, "POST", f"{TABLE}/tasks/{first}/plan")
    assert 429 == again.status


async def test_changes_need_the_scope_of_the_table(caller: Caller) -> None:
    """`write` alone does not let anybody run SQL; reading needs only `read`."""
    task_id = (await caller.insert())["id"]
    for method, path, body in (
        ("POST", "/tasks", {"input": "SELECT 1"}),
        ("POST", f"/tasks/{task_id}/stop", None),
        ("POST", f"/tasks/{task_id}/plan", None),
    ):
        answer = await caller.look(method, TABLE + path, body)
        assert (403, "table:shop") == (answer.status, answer.json["scope"])
    assert 200 == (await caller.look("GET", f"{TABLE}/tasks/{task_id}")).status


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/tasks", {}, 400),
        ("POST", "/tasks", {"input": 1}, 400),
        ("POST", "/tasks", {"input": "SELECT 1", "imput": ""}, 400),
        ("POST", "/tasks", {"input": "SELECT 1", "plan": "2030-01-01T00:00:00"}, 400),
        ("POST", "/tasks", {"input": "SELECT 1", "count": -1}, 400),
        ("POST", "/tasks", {"input": "SELECT 1", "repeat": "-1 s"}, 400),
        ("GET", "/tasks?state=NONE", None, 400),
        ("GET", "/tasks?limit=0", None, 400),
        ("GET", "/tasks?after=x", None, 400),
        ("GET", "/tasks/999", None, 404),
        ("GET", "/tasks/x", None, 400),
        ("GET", "/tasks/99999999999999999999", None, 400),
        ("POST", "/tasks/999/stop", None, 404),
    ],
)
async def test_what_is_wrong_is_refused(
    caller: Caller, method: str, path: str, body: object, status: int
) -> None:
    answer = await caller.call(method, path, body)
    assert status == answer.status, answer.body


async def test_table_that_is_not_there_is_not_found(gateway: Gateway) -> None:
    answer = await gateway.call("GET", "/v1/task-tables/nothing/tasks")
    assert (404, "task table") == (answer.status, answer.json["kind"])
    assert {"tables": []} == (await gateway.call("GET", "/v1/task-tables")).json


@pytest.mark.parametrize("task_place", ["postgres"], indirect=True)
async def test_password_of_a_remote_is_not_shown(caller: Caller) -> None:
    task = await caller.insert(remote="host=db user=u password=hunter2")
    assert {"host=db", "user=u", "password=***"} == set(task["remote"].split())
    page = await caller.call("GET", "/tasks")
    assert b"hunter2" not in page.body
