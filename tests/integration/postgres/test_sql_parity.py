"""The way in by SQL and admission in Python: one set of rules, one stored form."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import sql
from psycopg.types.json import Jsonb

from gnomon.contracts.store import Store
from gnomon.contracts.store.installation import Installation
from gnomon.model.codec import build_spec, decode_spec
from gnomon.model.errors import InvalidRequest
from gnomon.scheduler.admission import Request, admit
from tests.fixtures.postgres import PostgresSchema

Connection = psycopg.Connection[tuple[Any, ...]]
Task = dict[str, Any]

TASKS = 400
RETENTION = timedelta(days=7)
SOON = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)

NAMES = ["mail", "a", "A-z_0.9", "x" * 64, "", "x" * 65, "a b", "ä", "a\n", "a/b", 7, None]
HEADERS: list[Any] = [
    {}, {"A": "b"}, {"Authorization": "secret://pay"}, {"X": ""}, {"a": "b", "c": "d"},
    {"A": "secret://"}, {"A": "secret://a b"}, {"A": "b\r\nC: d"}, {"A b": "c"}, {"": "a"},
    {"Host": "a"}, {"cookie": "a"}, {"Proxy-X": "a"}, {"webhook-id": "a"}, {"Gnomon-A": "b"},
    {"CC": "a"}, {"x-death": "a"}, {"X-First-Death-Queue": "a"}, {"te": "a"}, {"A": "é"},
    {"A": "x" * 1024}, {"A": "x" * 1025}, {"x" * 129: "a"}, {"a": 1}, {"a": None},
    {"A": "1", "a": "2"},
    {f"h{n}": "a" for n in range(32)}, {f"h{n}": "a" for n in range(33)}, [], None, "a",
]  # fmt: skip
TEXTS: list[Any] = ["", "x", "ä", None, 7, [], {}]
JSONS: list[Any] = [
    None, 1, "a", [], {"a": [1, {"b": None}]}, 10**18 - 1, -(10**18) + 1, 10**18, 1.5,
    "9" * 30, [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]],
    [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]],
]  # fmt: skip
URLS: list[Any] = [
    "https://a.example/x", "http://a.example", "HTTPS://A.example:8443/a?b=c&d=[e]", "http://a?x",
    "http://127.0.0.1:9/ok", "https://[::1]/", "https://[::1]:80/a", "https://a_b.example./",
    "https://a.example:65535/", "https://a.example:080/", "https://" + "a" * 63 + ".example/",
    "https://a.example/@b", "https://a.example/" + "x" * 2000, "https://" + "a." * 126 + "b/",
    "https://" + "a" * 64 + ".example/", "https://" + "a." * 127 + "b/", "https://a..b/",
    "https://.a/", "https://a.example:0/", "https://a.example:65536/", "https://a.example:99999/",
    "https://a.example:/", "https://u@a.example/", "https://u:p@a.example/", "https://a.example/#b",
    "https://a.example/ b", "https://a.example/\\b", "https://ä.example/", "ftp://a.example/",
    "https://[::1", "https://[:::1]/", "https://[1.2.3.4]/", "https://[fe80::1%25e]/",
    "//a.example", "https:///a", "a.example", "", "https://a.example/" + "x" * 2048, "https://a:b:80/",
    7, None, "https://a.example/\n", "https://a\tb/",
]  # fmt: skip
CODES: list[Any] = [[], [200], [100, 599], [99], [600], [2.5], ["200"], [200] * 32, [200] * 33, {}]
PAYLOADS: dict[str, dict[str, list[Any]]] = {
    "http": {
        "method": ["GET", "POST", "HEAD", "PUT", "get", "TRACE", "", 7],
        "url": URLS, "headers": HEADERS, "body": TEXTS, "json": JSONS, "success": CODES,
        "more": [1],
    },
    "rabbitmq": {
        "target": NAMES, "routing_key": ["q", "", "ä", "x" * 255, "ä" * 128, "a\nb", "a\u2028b", 7],
        "exchange": ["", "e", "\u202eb", "x" * 256, None], "body": TEXTS, "json": JSONS,
        "headers": HEADERS, "content_type": ["a/b", "", None, "x" * 256, "ä", 7],
    },
    "kafka": {
        "target": NAMES,
        "topic": ["t", ".", "..", "...", "__a", "_a", "x" * 249, "x" * 250, "a b", 7],
        "key": ["k", "", "x" * 1024, "ä" * 513, None, 7], "value": TEXTS, "json": JSONS,
        "headers": HEADERS,
    },
    "python": {
        "function": NAMES, "args": [[], [1], {}, None, *JSONS[-4:]],
        "kwargs": [{}, {"a": 1}, [], None, {"a": JSONS[-1]}],
    },
    "ftp": {"url": URLS},
}  # fmt: skip
NEEDED = {
    "http": {"method": "POST", "url": "https://a.example/x"},
    "rabbitmq": {"target": "r", "routing_key": "q"},
    "kafka": {"target": "k", "topic": "t", "key": "a"},
    "python": {"function": "f"},
    "ftp": {},
}
OPTIONS: dict[str, list[Any]] = {
    "timeout": [1, "2.5s", 0.001, 86_400, 0, -1, 86_401, "soon", None, []],
    "retention": [0, 60, "366 days", "367 days", True],
    "deadline": [
        (SOON + timedelta(days=1)).isoformat(), SOON.isoformat(), "2001-01-01T00:00:00Z",
        "8999-01-01T00:00:00Z", "9999-01-01T00:00:00Z", "never", 7,
    ],
    "queue": NAMES,
    "priority": [0, 9, 10, -1, 2.5, "5"],
    "labels": [
        {}, {"a": "b"}, {"a": "ä ö"}, {"a": "x" * 256}, {"a": "x" * 257}, {"a b": "c"}, {"a": 1},
        {"a": "\x1b[31m"}, {"a": "\u202eb"}, {"a": "\u00a0"}, {f"l{n}": "" for n in range(33)},
    ],
    "retry": [
        {}, {"min_period": 2}, {"min_period": 2, "max_period": "90s"}, {"max_period": 0.5},
        {"min_period": 9, "max_period": 3}, {"scale": 2.5, "back_off": 2}, {"scale": -1},
        {"max": 3}, {"back_off": "2"}, {"min_period": "1h", "max_period": "3660 days"},
    ],
}  # fmt: skip


def drawn_tasks() -> Iterator[Task]:
    """Good tasks with none to two fields changed, by luck into good or bad ones."""
    chooser = random.Random(11)
    for number in range(TASKS):
        kind = chooser.choice(list(PAYLOADS))
        payload: dict[str, Any] = dict(NEEDED[kind])
        options: dict[str, Any] = {}
        for _ in range(chooser.randint(0, 2)):
            pool, given = chooser.choice([(PAYLOADS[kind], payload), (OPTIONS, options)])
            name = chooser.choice(list(pool))
            given[name] = chooser.choice(pool[name])
        if chooser.random() < 0.05:
            payload.pop(chooser.choice([*payload, "x"]), None)
        yield {
            "task_type": kind, "payload": payload, "options": options, "id": f"task-{number}",
            "execute_at": SOON.isoformat(), "max_attempts": chooser.choice([1, 3, 3, 0, 1_000_002]),
        }  # fmt: skip


def every_value() -> Iterator[Task]:
    """Each value of each field once, in an otherwise good task."""
    base = {"execute_at": SOON.isoformat(), "max_attempts": 3}
    for kind, pool in PAYLOADS.items():
        for name, values in pool.items():
            for value in values:
                payload = NEEDED[kind] | {name: value}
                yield {**base, "task_type": kind, "payload": payload, "options": {}}
    for name, values in OPTIONS.items():
        for value in values:
            options = {name: value}
            yield {**base, "task_type": "python", "payload": NEEDED["python"], "options": options}


def plain_spec(task: Task) -> dict[str, Any]:
    """The task in the words of the other ways in."""
    options = dict(task["options"])
    retry = {"max": task["max_attempts"] - 1}
    if isinstance(options.get("retry"), dict):
        assert "max" not in options["retry"] or options["retry"].pop("max")
        given = options.pop("retry")
        retry |= {"max_period": given["min_period"]} if "min_period" in given else {}
        retry |= given
    if "days" in str(options.get("retention")):
        options["retention"] = options["retention"].replace(" days", "d")
    if "days" in str(retry.get("max_period")):
        retry["max_period"] = str(retry["max_period"]).replace(" days", "d")
    action = {**task["payload"], "type": task["task_type"]}
    return {"action": action, "start_at": task["execute_at"], "retry": retry, **options}


def admitted(task: Task, installation: Installation) -> Any:
    """What Python makes of it; None: refused."""
    if isinstance(task["options"].get("retry"), dict) and "max" in task["options"]["retry"]:
        return None  # said by max_attempts
    if any(value is None for value in task["options"].values()):
        return None
    request = Request(spec=build_spec(plain_spec(task)), id=task.get("id"))
    now = datetime.now(UTC)
    return admit(request, guid=UUID(int=7), now=now, installation=installation, retention=RETENTION)


@pytest.fixture
def connection(store: Store, installed_schema: PostgresSchema) -> Iterator[Connection]:
    del store
    with psycopg.connect(installed_schema.dsn, autocommit=True) as opened:
        path = sql.SQL("SET search_path = {}").format(sql.Identifier(installed_schema.schema))
        opened.execute(path)
        yield opened


def singly(connection: Connection, task: Task) -> Any:
    return connection.execute(
        "SELECT schedule(%s, %s, %s::timestamptz, %s, %s, %s)",
        (
            task["task_type"], Jsonb(task["payload"]), task["execute_at"], task.get("id"),
            task["max_attempts"], Jsonb(task["options"]),
        ),
    ).fetchone()  # fmt: skip


def in_bulk(connection: Connection, task: Task) -> Any:
    return connection.execute(
        "SELECT * FROM schedule_many(%s, %s, %s::timestamptz[], %s, %s, %s)",
        (
            task["task_type"], [Jsonb(task["payload"])], [task["execute_at"]], [task.get("id")],
            task["max_attempts"], Jsonb(task["options"]),
        ),
    ).fetchone()  # fmt: skip


COLUMNS = (
    "spec, shard_id, queue, priority, timeout_us, retention_us, keyed, scheduled_at, occurrence_at,"
    " expires_at, state, occurrence_no, attempts, creator"
)


@pytest.mark.parametrize("way", [singly, in_bulk])
@pytest.mark.parametrize("tasks", [every_value, drawn_tasks])
async def test_sql_takes_what_python_takes_and_stores_it_alike(
    store: Store,
    connection: Connection,
    way: Callable[[Connection, Task], Any],
    tasks: Callable[[], Iterator[Task]],
) -> None:
    """Refused there, refused here, with 22023; taken there, stored here as the same action."""
    installation = await store.installation.open()
    differences: list[tuple[Task, str]] = []
    taken = 0
    for task in tasks():
        try:
            draft = admitted(task, installation)
        except InvalidRequest:
            draft = None
        with connection.transaction(force_rollback=True):
            try:
                with connection.transaction():
                    way(connection, task)
            except psycopg.errors.InvalidParameterValue as exc:
                if draft is not None:
                    differences.append((task, f"only SQL refuses: {exc.diag.message_primary}"))
                continue
            if draft is None:
                differences.append((task, "only Python refuses"))
                continue
            row = connection.execute(f"SELECT {COLUMNS} FROM scheduled_action").fetchone()
        taken += 1
        assert row is not None
        spec, shard, *columns = row
        assert draft.spec == decode_spec(spec)
        assert "id" not in task or draft.shard == shard
        micros = timedelta(microseconds=1)
        assert [
            draft.spec.queue, draft.spec.priority, draft.spec.timeout // micros,
            draft.retention // micros, False, draft.scheduled_at, draft.occurrence_at,
            draft.expires_at, "active", 1, 0, None,
        ] == columns  # fmt: skip
    assert [] == [f"{why}: {str(task)[:900]}" for task, why in differences]
    assert 40 < taken
