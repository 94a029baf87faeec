"""The way in by SQL: functions and a view for a role that has no right on any table."""

from __future__ import annotations

import asyncio
import random
import string
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.types.json import Jsonb

from gnomon.app import App
from gnomon.clock import SystemClock, SystemEntropy
from gnomon.contracts.store import Store
from gnomon.executors.python import AttemptContext
from gnomon.model.action import State
from gnomon.model.codec import decode_spec
from gnomon.model.ids import shard_of
from gnomon.model.spec import Http, Kafka, Python, Rabbitmq, Retry, Spec
from gnomon.scheduler import Request, Scheduler
from tests.fixtures.postgres import PostgresSchema

CALL: dict[str, Any] = {"method": "POST", "url": "http://127.0.0.1:9/ok", "json": {"a": 1}}
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "sql.md"
Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture
def connection(store: Store, installed_schema: PostgresSchema) -> Iterator[Connection]:
    """The owner's, with the functions in reach."""
    del store  # installed before
    with psycopg.connect(installed_schema.dsn, autocommit=True) as opened:
        path = sql.SQL("SET search_path = {}").format(sql.Identifier(installed_schema.schema))
        opened.execute(path)
        yield opened


def value_of(connection: Connection, query: str, *args: object) -> Any:
    row = connection.execute(query, args).fetchone()
    assert row is not None
    return row[0]


def test_the_shard_is_what_python_computes(connection: Connection) -> None:
    """Otherwise an action would be looked for in another shard."""
    chooser = random.Random(7)
    letters = string.ascii_letters + string.digits + "._:@-"
    names = ["".join(chooser.choices(letters, k=chooser.randint(1, 40))) for _ in range(1000)]
    query = "SELECT shard_hash(n) %% 4096 FROM unnest(%s::text[]) AS n"
    rows = connection.execute(query, (names,)).fetchall()
    assert [shard_of(name, 4096) for name in names] == [row[0] for row in rows]


async def test_a_row_made_by_sql_is_one_made_by_the_scheduler(
    store: Store, connection: Connection
) -> None:
    """Same columns, same queue row, same spec; only who and when differ."""
    at = datetime.now(UTC) + timedelta(hours=1)
    spec = Spec(
        action=Http(**CALL), start_at=at, deadline=at + timedelta(days=1),
        retry=Retry(max=4, min_period=timedelta(seconds=2), max_period=timedelta(seconds=90)),
        timeout=timedelta(seconds=2.5), queue="mail", priority=3, labels={"a": "b"},
    )  # fmt: skip
    installation = await store.installation.open()
    scheduler = Scheduler(store, installation, clock=SystemClock(), entropy=SystemEntropy())
    await scheduler.create(Request(spec=spec, id="by-python"))
    options = {
        "retry": {"min_period": 2, "max_period": "90s"}, "timeout": 2.5, "queue": "mail",
        "priority": 3, "labels": {"a": "b"}, "deadline": (at + timedelta(days=1)).isoformat(),
    }  # fmt: skip
    made = value_of(
        connection, "SELECT schedule('http', %s, %s, 'by-sql', 5, %s)",
        Jsonb(CALL), at, Jsonb(options),
    )  # fmt: skip
    assert "by-sql" == made
    query = """
        SELECT to_jsonb(a) - '{id,shard_id,guid,spec,created_at,updated_at}'::text[],
               to_jsonb(i) - '{shard_id,guid,created_at}'::text[],
               a.created_at = i.created_at, a.spec
        FROM scheduled_action AS a JOIN incoming_queue AS i USING (shard_id, guid)
        WHERE a.id = %s"""
    python = connection.execute(query, ("by-python",)).fetchone()
    by_sql = connection.execute(query, ("by-sql",)).fetchone()
    assert python is not None
    assert by_sql is not None
    assert python[:3] == by_sql[:3]
    assert decode_spec(python[3]) == decode_spec(by_sql[3])
    assert await store.actions.get("by-sql") is not None
    assert [] == list(await store.installation.doctor())


@pytest.mark.parametrize(
    ("kind", "payload", "effect"),
    [
        ("python", {"function": "f", "args": [1]}, Python(function="f", args=[1])),
        ("kafka", {"target": "k", "topic": "t", "key": "a"}, Kafka(target="k", topic="t", key="a")),
        (
            "rabbitmq",
            {"target": "r", "routing_key": "q", "json": [1]},
            Rabbitmq(target="r", routing_key="q", json=[1]),
        ),
    ],
)
async def test_each_kind_is_read_back(
    store: Store, connection: Connection, kind: str, payload: dict[str, Any], effect: object
) -> None:
    """What SQL stores, the program reads; without an id it gets one."""
    made = value_of(connection, "SELECT schedule(%s, %s)", kind, Jsonb(payload))
    action = await store.actions.get(made)
    assert action is not None
    assert effect == action.spec.action
    assert 2 == action.spec.retry.max
    assert made == str(action.meta.guid)
    assert 7 == action.meta.guid.version


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("'http', %s, now(), 'no good'", "id: must be 1 to 200"),
        ("'ftp', %s", "task_type: must be one of"),
        ("'http', '[]'::jsonb || '{}'", "payload: must be an object"),
        ("'http', %s::jsonb || '{\"urls\": 1}'", "payload.urls: there is no such field"),
        ("'http', %s::jsonb || '{\"url\": 1}'", "payload.url: must be: string"),
        ("'http', %s::jsonb - 'url'", "payload.url: is required"),
        ("'http', %s::jsonb || '{\"headers\": {\"a\": 1}}'", "payload.headers.a: must be a string"),
        ("'http', %s::jsonb || '{\"success\": [20]}'", "payload.success"),
        ("'http', %s::jsonb || jsonb_build_object('body', repeat('x', 70000))", "at most 65536"),
        ("'http', %s, now() - interval '11 minutes'", "execute_at"),
        ("'http', %s, 'infinity'", "execute_at"),
        ("'http', %s, max_attempts => 0", "max_attempts: must be a whole number between 1"),
        ("'http', %s, options => '{\"policy\": {}}'", "options.policy: there is no such field"),
        ("'http', %s, options => '{\"priority\": 2.5}'", "options.priority"),
        ("'http', %s, options => '{\"timeout\": \"soon\"}'", "options.timeout: must be a duration"),
        ("'http', %s, options => '{\"deadline\": \"2001-01-01\"}'", "options.deadline"),
        ("'http', %s, options => '{\"retry\": {\"max\": 1}}'", "options.retry.max"),
        ("'http', %s, options => '{\"queue\": \"a b\"}'", "options.queue"),
        ("'http', %s, options => '{\"labels\": {\"a\": 1}}'", "options.labels.a"),
    ],
)
def test_a_refusal_names_field_rule_and_value(
    connection: Connection, arguments: str, message: str
) -> None:
    """SQLSTATE 22023, and nothing is stored."""
    args = (Jsonb(CALL),) if "%s" in arguments else ()
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=message):
        value_of(connection, f"SELECT schedule({arguments})", *args)
    assert 0 == value_of(connection, "SELECT count(*) FROM scheduled_action")


def test_an_id_that_lives_is_refused(connection: Connection) -> None:
    """As by any other way in."""
    value_of(connection, "SELECT schedule('http', %s, id => 'one')", Jsonb(CALL))
    with pytest.raises(psycopg.errors.UniqueViolation, match="exists already"):
        value_of(connection, "SELECT schedule('http', %s, id => 'one')", Jsonb(CALL))


MANY = "SELECT * FROM schedule_many('http', %s, %s, %s)"


def calls(count: int) -> list[Jsonb]:
    return [Jsonb(CALL)] * count


async def test_many_are_stored_by_one_call(store: Store, connection: Connection) -> None:
    """The ids come back in order, named or not; each has its queue row, all one audit entry."""
    at = datetime.now(UTC) + timedelta(hours=1)
    ids: list[str | None] = [f"n-{n}" for n in range(50)]
    ids.insert(7, None)
    times = [None, *(at + timedelta(seconds=n) for n in range(50))]
    rows = connection.execute(
        "SELECT * FROM schedule_many('http', %s, %s, %s, 5, %s)",
        (calls(51), times, ids, Jsonb({"priority": 3})),
    ).fetchall()
    names = [name for (name,) in rows]
    assert [f"n-{n}" for n in range(50)] == [*names[:7], *names[8:]]
    for name, due in ((names[7], at + timedelta(seconds=6)), ("n-49", times[-1])):
        action = await store.actions.get(name)
        assert action is not None
        assert (7, Http(**CALL), due) == (
            action.meta.guid.version, action.spec.action, action.spec.start_at
        )  # fmt: skip
        assert (4, 3) == (action.spec.retry.max, action.spec.priority)
    assert 51 == value_of(connection, "SELECT count(DISTINCT guid) FROM scheduled_action")
    queued = "SELECT count(*) FROM incoming_queue JOIN scheduled_action USING (shard_id, guid)"
    assert 51 == value_of(connection, queued)
    assert [(51, "create", "n-0")] == connection.execute(
        "SELECT count, verb, id FROM audit"
    ).fetchall()
    assert [] == list(await store.installation.doctor())


def test_ids_that_it_makes_come_back_in_order(connection: Connection) -> None:
    """Also beyond the bits that one digit of a guid holds."""
    count = 5_000
    payloads = [Jsonb(CALL | {"json": n}) for n in range(count)]
    rows = connection.execute("SELECT * FROM schedule_many('http', %s)", (payloads,)).fetchall()
    stored = connection.execute(
        "SELECT id, (spec::jsonb #>> '{action,json}')::int FROM scheduled_action ORDER BY 2"
    ).fetchall()
    assert [(name, n) for n, (name,) in enumerate(rows)] == stored


@pytest.mark.parametrize(
    ("kind", "bad", "at", "name", "message"),
    [
        ("http", CALL, None, "no good", r"tasks\[2\]\.id: must be 1 to 200"),
        ("http", {"method": "GET"}, None, "n", r"tasks\[2\]\.payload\.url: is required"),
        ("http", CALL, "1999-01-01Z", "n", r"tasks\[2\]\.execute_at: must not be more than 10"),
        ("http", 7, None, "n", r"tasks\[2\]\.payload: must be an object"),
        ("http", None, None, "n", r"tasks\[2\]\.payload: must be an object"),
        ("ftp", CALL, None, "n", r"tasks\[0\]\.task_type: must be one of"),
    ],
)
def test_one_bad_task_is_named_and_none_is_stored(
    connection: Connection, kind: str, bad: object, at: str | None, name: str, message: str
) -> None:
    """By its index, its field, the rule and the value."""
    payloads = [Jsonb(CALL), Jsonb(CALL), None if bad is None else Jsonb(bad), Jsonb(CALL)]
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=message):
        connection.execute(
            "SELECT * FROM schedule_many(%s, %s, %s::timestamptz[], %s)",
            (kind, payloads, [None, None, at, None], ["a", "b", name, "c"]),
        )
    assert 0 == value_of(connection, "SELECT count(*) FROM scheduled_action")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("'http', NULL", "payload: must be an array of objects"),
        ("'http', ARRAY[%s], ARRAY[now(), now()]", "execute_at: must be as many.*got 2, not 1"),
        ("'http', ARRAY[%s], id => '{}'", "id: must be as many.*got 0, not 1"),
        ("NULL, ARRAY[%s]", r"tasks\[0\]\.task_type: must be one of"),
        ("'http', ARRAY[%s], max_attempts => 0", r"max_attempts: must be a whole number"),
        ("'http', ARRAY[%s], max_attempts => NULL", r"max_attempts: must be a whole number"),
        ("'http', ARRAY[%s], options => '[]'", "options: must be an object"),
        ("'http', ARRAY[%s], options => '{\"when\": 1}'", "options.when: there is no such field"),
    ],
)
def test_wrong_arguments_of_many_are_told(
    connection: Connection, arguments: str, message: str
) -> None:
    """What is said for all of them, and arrays that do not go together."""
    args = (Jsonb(CALL),) if "%s" in arguments else ()
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=message):
        connection.execute(f"SELECT * FROM schedule_many({arguments})", args)
    assert 0 == value_of(connection, "SELECT count(*) FROM scheduled_action")


def test_an_id_that_lives_or_stands_twice_refuses_all(connection: Connection) -> None:
    """With the SQLSTATE of a unique key, and the index of the second one."""
    value_of(connection, "SELECT schedule('http', %s, id => 'lives')", Jsonb(CALL))
    for ids, index in ((["a", "lives", "b"], 1), (["a", "b", "a"], 2)):
        with pytest.raises(psycopg.errors.UniqueViolation, match=rf"tasks\[{index}\]\.id"):
            connection.execute(MANY, (calls(3), None, ids))
    assert 1 == value_of(connection, "SELECT count(*) FROM scheduled_action")


async def test_cancel_does_what_delete_does(store: Store, connection: Connection) -> None:
    """In the caller's transaction; the action stays visible as cancelled."""
    value_of(connection, "SELECT schedule('http', %s, id => 'one')", Jsonb(CALL))
    with connection.transaction(force_rollback=True):
        assert value_of(connection, "SELECT cancel('one')") is True
    assert "pending" == value_of(connection, "SELECT status FROM tasks WHERE id = 'one'")
    assert value_of(connection, "SELECT cancel('one')") is True
    assert value_of(connection, "SELECT cancel('one')") is False
    action = await store.actions.get("one")
    assert action is not None
    assert (State.CANCELLED, "deleted") == (action.status.state, action.status.reason)
    assert "cancelled" == value_of(connection, "SELECT status FROM tasks WHERE id = 'one'")
    verbs = connection.execute("SELECT verb FROM audit ORDER BY at").fetchall()
    assert [("create",), ("delete",)] == verbs


def test_an_attempt_that_runs_is_logged_as_superseded(connection: Connection) -> None:
    """As when the action is deleted by any other way."""
    value_of(connection, "SELECT schedule('http', %s, id => 'one')", Jsonb(CALL))
    connection.execute(
        "INSERT INTO processing_queue (guid, shard_id, scheduled_at, attempt_id, began_at,"
        " attempts, priority, running, swept, queue, owner)"
        " SELECT guid, shard_id, now(), gen_random_uuid(),"
        " now(), 1, 5, true, false, 'default', 'w' FROM scheduled_action"
    )
    assert "processing" == value_of(connection, "SELECT status FROM tasks")
    assert value_of(connection, "SELECT cancel('one')") is True
    logged = connection.execute("SELECT id, outcome, attempt_no, owner FROM attempt_log").fetchall()
    assert [("one", "superseded", 1, "w")] == logged


@pytest.mark.plain  # see test_roles of integration/citus
def test_a_role_can_do_this_and_nothing_else(
    connection: Connection, installed_schema: PostgresSchema
) -> None:
    """No right on any table, none before the grant, and no way to grant itself more."""
    role = sql.Identifier(f"gnomon_sql_{uuid4().hex[:12]}")
    connection.execute(sql.SQL("CREATE ROLE {}").format(role))
    try:
        with connection.transaction(force_rollback=True):
            home = sql.Identifier(installed_schema.schema)
            connection.execute(sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(home, role))
            denied(connection, role, "SELECT schedule('http'::text, '{}'::jsonb)")
            value_of(connection, "SELECT grant_sql(%s)", role.as_string().strip('"'))
            connection.execute(sql.SQL("SET ROLE {}").format(role))
            value_of(connection, "SELECT schedule('http', %s, id => 'one')", Jsonb(CALL))
            assert 0 == value_of(connection, "SELECT count(*) FROM schedule_many('http', '{}')")
            assert "http" == value_of(connection, "SELECT task_type FROM tasks")
            assert value_of(connection, "SELECT cancel('one')") is True
            for statement in (
                "SELECT * FROM scheduled_action", "DELETE FROM incoming_queue",
                "UPDATE finished_action SET reason = ''", "SELECT * FROM token",
                "INSERT INTO audit VALUES (now(), gen_random_uuid(), 0, 1, '', '', '')",
                "SELECT grant_sql('public')", "SELECT shard_hash('a')",
            ):  # fmt: skip
                denied(connection, role, statement)
    finally:
        connection.execute(sql.SQL("DROP ROLE {}").format(role))


def denied(connection: Connection, role: sql.Identifier, statement: str) -> None:
    with connection.transaction(force_rollback=True):
        connection.execute(sql.SQL("SET LOCAL ROLE {}").format(role))
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(statement)


def test_a_spec_that_is_no_json_hides_no_other_task(connection: Connection) -> None:
    """The view shows what it can."""
    for name in ("good", "bad"):
        value_of(connection, "SELECT schedule('http', %s, id => %s)", Jsonb(CALL), name)
    connection.execute("UPDATE scheduled_action SET spec = '{' WHERE id = 'bad'")
    rows = connection.execute("SELECT id, task_type FROM tasks ORDER BY id").fetchall()
    assert [("bad", None), ("good", "http")] == rows


async def test_a_spec_that_cannot_be_read_ends_its_action_alone(
    connection: Connection, installed_schema: PostgresSchema
) -> None:
    """Dead, with the reason; the others of its batch are attempted."""
    app = App(installed_schema.dsn, schema=installed_schema.schema)

    @app.action(name="f")
    async def f(context: AttemptContext) -> None:
        del context

    broken = {
        "bad-0": "{",
        "bad-1": "{}",
        "bad-2": '{"action": {"type": "x"}}',
        "bad-3": "[" * 9999,
    }
    for name in (*broken, "good"):
        payload = Jsonb({"function": "f"})
        value_of(connection, "SELECT schedule('python', %s, id => %s)", payload, name)
    for name, text in broken.items():
        connection.execute("UPDATE scheduled_action SET spec = %s WHERE id = %s", (text, name))
    stop = asyncio.Event()
    async with app, asyncio.timeout(30):
        working = asyncio.create_task(app.work(stop))
        while value_of(connection, "SELECT count(*) FROM scheduled_action"):
            await asyncio.sleep(0.05)
        stop.set()
        await working
        ended = {name: (await app.scheduler.get(name)).status for name in (*broken, "good")}
    assert State.DONE == ended.pop("good").state
    assert {State.DEAD} == {status.state for status in ended.values()}
    assert all((status.reason or "").startswith("invalid spec: ") for status in ended.values())
    assert 4 == value_of(connection, "SELECT count(*) FROM tasks WHERE status = 'failed'")


def test_the_reference_page_names_what_there_is(
    connection: Connection, installed_schema: PostgresSchema
) -> None:
    """Arguments and columns as PostgreSQL knows them."""
    page = PAGE.read_text()
    names = value_of(
        connection,
        "SELECT array_agg(n) FROM pg_proc, unnest(proargnames) AS n "
        "WHERE pronamespace = %s::regnamespace "
        "AND proname IN ('schedule', 'schedule_many', 'cancel')",
        installed_schema.schema,
    )
    columns = value_of(
        connection,
        "SELECT array_agg(attname::text) FROM pg_attribute "
        "WHERE attrelid = 'tasks'::regclass AND attnum > 0",
    )
    assert 14 == len(names)
    assert [] == [name for name in (*names, *columns) if f"`{name}`" not in page]
