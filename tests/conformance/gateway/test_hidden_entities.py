"""What callers below the scope `admin` see of entities and SQL tasks, and cannot guess of them."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gnomon.contracts.store.register import StageDeclaration
from gnomon.contracts.task_rows import TaskRows
from gnomon.gateways.config import ServerConfig
from gnomon.model.stage.graph import Reach
from tests.conformance.gateway.guarded import Guarded, guarded_server

REDACT = ("document.card.*", "document.email", "state", "task.input")
SECRET = "s3cret-value"
DOCUMENT = {"card": {"no": SECRET, "name": SECRET}, "email": SECRET, "city": "Omsk"}
SHOWN = {
    "card": {"no": "[redacted]", "name": "[redacted]"}, "email": "[redacted]", "city": "Omsk",
}  # fmt: skip
AD = "/v1/entities/ad/ad-1"
PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
TASKS = "/v1/task-tables/shop/tasks"


@pytest.fixture
async def guarded(tmp_path: Path, task_rows: TaskRows) -> AsyncIterator[Guarded]:
    config = ServerConfig(port=0, redact=REDACT)
    tables = {"shop": task_rows}
    async with guarded_server(tmp_path, required=True, config=config, task_tables=tables) as found:
        yield found


async def callers(guarded: Guarded) -> tuple[str, str]:
    """An administrator and a writer, and an entity."""
    admin = await guarded.token("root", "admin")
    writer = await guarded.token("ann", "read", "write", "table:shop")
    answer = await guarded.ask(admin, "PUT", AD, DOCUMENT)
    assert (200, DOCUMENT) == (answer.status, answer.json["document"])
    return admin, writer


async def patched(guarded: Guarded, token: str, body: Any, kind: str = PATCH) -> int:
    answer = await guarded.ask(token, "PATCH", AD, body, headers={"Content-Type": kind})
    assert SECRET not in answer.body.decode() or answer.status == 200
    return answer.status


async def test_documents_show_what_they_may(guarded: Guarded) -> None:
    """In every answer; what is not hidden is shown."""
    admin, writer = await callers(guarded)
    assert SHOWN == (await guarded.ask(writer, "GET", AD)).json["document"]
    listed = await guarded.ask(writer, "GET", "/v1/entities/ad")
    assert [SHOWN] == [entity["document"] for entity in listed.json["entities"]]
    changed = await guarded.ask(
        writer, "PATCH", AD, {"city": "Tomsk"}, headers={"Content-Type": MERGE}
    )
    assert {**SHOWN, "city": "Tomsk"} == changed.json["document"]
    whole = (await guarded.ask(admin, "GET", AD)).json["document"]
    assert {**DOCUMENT, "city": "Tomsk"} == whole
    for path in (f"{AD}/explain", "/v1/parked", "/v1/audit"):
        answer = await guarded.ask(writer, "GET", path)
        assert (200, False) == (answer.status, SECRET in answer.body.decode())


async def test_a_patch_neither_tells_nor_carries_away_what_is_hidden(guarded: Guarded) -> None:
    """A test of a hidden value is a guess, a copy of it to a place that is shown a theft; so it is
    of what is above it. Who may see it may do both."""
    admin, writer = await callers(guarded)
    for operation in (
        {"op": "test", "path": "/email", "value": SECRET},
        {"op": "test", "path": "/card", "value": DOCUMENT["card"]},
        {"op": "test", "path": "", "value": DOCUMENT},
        {"op": "copy", "from": "/card/no", "path": "/city"},
        {"op": "copy", "from": "/card", "path": "/other"},
        {"op": "move", "from": "/email", "path": "/city"},
    ):
        assert 403 == await patched(guarded, writer, [operation]), operation
    assert 200 == await patched(guarded, writer, [{"op": "test", "path": "/city", "value": "Omsk"}])
    assert 200 == await patched(
        guarded, writer, [{"op": "replace", "path": "/email", "value": "x"}]
    )
    told = [{"op": "test", "path": "/email", "value": "x"}]
    assert 200 == await patched(guarded, admin, told)


async def test_the_marker_is_never_stored(guarded: Guarded) -> None:
    """By nobody, and in no way: the value stays what it was."""
    admin, writer = await callers(guarded)
    for token in (admin, writer):
        assert 400 == (await guarded.ask(token, "PUT", AD, SHOWN)).status
        many = {"entities": {"ad-1": SHOWN}}
        assert 400 == (await guarded.ask(token, "POST", "/v1/entities/ad:bulk", many)).status
        assert 400 == await patched(guarded, token, {"email": "[redacted]"}, MERGE)
        for operation in (
            {"op": "replace", "path": "/card/no", "value": "[redacted]"},
            {"op": "add", "path": "/card", "value": {"no": "[redacted]"}},
        ):
            assert 400 == await patched(guarded, token, [operation])
    assert DOCUMENT == (await guarded.ask(admin, "GET", AD)).json["document"]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"state": {"pin": SECRET}}, {"pin": "[redacted]"}),
        ({"state": SECRET}, "[redacted]"),
        (
            {"type": "shop.v1.Pin", "message": base64.b64encode(SECRET.encode()).decode()},
            "[redacted]",
        ),
    ],
    ids=["object", "text", "message"],
)
async def test_states_show_what_they_may(
    guarded: Guarded, given: dict[str, Any], shown: object
) -> None:
    """Also in the answer to who wrote one; the marker is never stored as one."""
    admin, writer = await callers(guarded)
    declaration = StageDeclaration(name="pins", revision=1, reach=Reach("ad", (), ()))
    await guarded.app.store.register.declare([declaration])
    path = f"{AD}/states/pins"
    made = await guarded.ask(writer, "PUT", path, {"version": 0, **given})
    assert (200, 1, shown) == (made.status, made.json["version"], made.json["state"])
    seen = await guarded.ask(writer, "GET", path)
    assert made.json == seen.json
    assert not {"type", "message"} & seen.json.keys()
    copied = {"version": 1, "state": shown}
    assert [400, 400] == [
        (await guarded.ask(token, "PUT", path, copied)).status for token in (admin, writer)
    ]
    whole = (await guarded.ask(admin, "GET", path)).json
    assert given == {name: whole[name] for name in given}


async def test_columns_of_tasks_show_what_they_may(guarded: Guarded) -> None:
    """The error goes with the statement that it quotes; the marker is no statement."""
    admin, writer = await callers(guarded)
    made = await guarded.ask(writer, "POST", TASKS, {"input": f"SELECT '{SECRET}'", "group": "a"})
    assert (201, "[redacted]") == (made.status, made.json["input"])
    for method, path in (
        ("GET", TASKS), ("GET", f"{TASKS}/1"), ("GET", f"{TASKS}/1/why"),
        ("POST", f"{TASKS}/1/stop"), ("POST", f"{TASKS}/1/plan"),
    ):  # fmt: skip
        answer = await guarded.ask(writer, method, path)
        assert (200, False) == (answer.status, SECRET in answer.body.decode()), path
    assert SECRET in (await guarded.ask(admin, "GET", f"{TASKS}/1")).json["input"]
    assert 400 == (await guarded.ask(writer, "POST", TASKS, {"input": "[redacted]"})).status
