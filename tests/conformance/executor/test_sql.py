"""The executor of SQL statements, on a real server, without anything that makes them once."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, NamedTuple

import psycopg
import pytest
from psycopg import sql

from gnomon.clock import SystemClock
from gnomon.executors.sql import SqlExecutor, SqlTarget
from gnomon.model.errors import ConfigurationError
from gnomon.model.outcome import Failed, Interrupted, Outcome, Succeeded
from gnomon.model.secret import Secret
from gnomon.model.spec import Effect, Sql
from tests.conformance.executor.suite import ExecutorSuite, order_of
from tests.fixtures.postgres import PostgresSchema

DSN = "postgresql://shop:canary@db.example/shop"
FAIL = """
CREATE FUNCTION {0}.fail(state text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM nextval('sent');
    RAISE EXCEPTION 'as you wish' USING ERRCODE = state;
END $$
"""


class Place(NamedTuple):
    """Where the statements go."""

    owner: psycopg.Connection[Any]
    dsn: str
    schema: str


@pytest.fixture
def place(postgres_schema: PostgresSchema) -> Iterator[Place]:
    """A login that owns nothing, a sequence that counts what was sent, and an inbox."""
    dsn, schema = postgres_schema
    login = f"sql_{uuid.uuid4().hex[:12]}"
    names = (sql.Identifier(schema), sql.Identifier(login))
    with psycopg.connect(dsn, autocommit=True) as owner:
        for text in (
            "CREATE SCHEMA {0}",
            "CREATE ROLE {1} LOGIN",
            "CREATE SEQUENCE {0}.sent",
            "CREATE TABLE {0}.effect (n int)",
            "CREATE TABLE {0}.gnomon_inbox (key text PRIMARY KEY, at timestamptz DEFAULT now())",
            FAIL,
            "GRANT USAGE ON SCHEMA {0} TO {1}",
            "GRANT ALL ON ALL TABLES IN SCHEMA {0} TO {1}",
            "GRANT ALL ON ALL SEQUENCES IN SCHEMA {0} TO {1}",
        ):
            owner.execute(sql.SQL(text).format(*names))
        owner.execute(sql.SQL("SET search_path = {0}").format(*names))
        yield Place(owner, dsn.replace("postgres@", f"{login}@"), schema)
        owner.execute(sql.SQL("DROP OWNED BY {1}").format(*names))
        owner.execute(sql.SQL("DROP ROLE {1}").format(*names))


@pytest.fixture
async def executor(place: Place) -> AsyncIterator[SqlExecutor]:
    plain: dict[str, Any] = {"dsn": Secret(place.dsn), "search_path": place.schema}
    targets = {
        "shop": SqlTarget(name="shop", **plain),
        "once": SqlTarget(name="once", inbox=f"{place.schema}.gnomon_inbox", **plain),
        "nowhere": SqlTarget(name="nowhere", dsn=Secret("postgresql://a:canary@127.0.0.1:1/b")),
    }
    found = SqlExecutor(targets, clock=SystemClock())
    yield found
    await found.close()


class SqlStand:
    def __init__(self, place: Place, executor: SqlExecutor) -> None:
        self._place = place
        self.executor = executor

    @property
    def sent_count(self) -> int:
        row = self._place.owner.execute(
            "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM sent"
        ).fetchone()
        assert row is not None
        return int(row[0])

    def succeeding(self) -> Effect:
        return Sql(target="shop", statement="SELECT nextval('sent')")

    def failing(self) -> Effect:
        return Sql(target="shop", statement="SELECT fail('40001')")

    def hanging(self) -> Effect:
        return Sql(target="shop", statement="SELECT pg_sleep(60)")

    def talkative(self) -> Effect:
        return Sql(target="shop", statement="SELECT repeat('x', 5000)")

    def broken(self) -> Sequence[Effect]:
        return [
            Sql(target="x", statement="SELECT 1"),
            Sql(target="nowhere", statement="SELECT 1"),
            *(
                Sql(target="shop", statement=text)
                for text in ("nonsense", "\x00", "\ud800", "SELECT 1; SELECT 2", "COMMIT")
            ),
            Sql(target="shop", statement="SELECT $1::int", parameters=[]),
            Sql(target="shop", statement="SELECT $1::int", parameters=["a"]),
            Sql(target="shop", statement="SELECT $1::text", parameters=[object()]),
            Sql(target="shop", statement="SELECT 1", parameters=[1]),
        ]


@pytest.fixture
def stand(place: Place, executor: SqlExecutor) -> SqlStand:
    return SqlStand(place, executor)


class TestSql(ExecutorSuite):
    """The common promises."""


async def perform(
    executor: SqlExecutor, statement: str, *parameters: Any, target: str = "shop", **options: Any
) -> Outcome:
    effect = Sql(target=target, statement=statement, parameters=list(parameters), **options)
    return await executor.execute(order_of(effect))


async def test_rows_are_the_answer(executor: SqlExecutor) -> None:
    """As JSON; a statement without rows says what it did."""
    expected = Succeeded(answer='[{"a":1,"b":"2030-01-02"}]')
    assert expected == await perform(executor, "SELECT 1 AS a, $1::date AS b", "2030-01-02")
    done = await perform(executor, "INSERT INTO effect VALUES ($1), ($2)", 1, 2)
    assert Succeeded(answer="INSERT 0 2") == done


async def test_parameters_come_as_json(executor: SqlExecutor) -> None:
    """Times, numbers and documents need no casts."""
    text = "SELECT $1::timestamptz < now() AS a, $2::numeric + 1 AS b, $3::jsonb->>'k' AS c"
    outcome = await perform(executor, text, "2020-01-01T00:00:00Z", "1.5", {"k": "v"})
    assert Succeeded(answer='[{"a":true,"b":"2.5","c":"v"}]') == outcome


@pytest.mark.parametrize(
    ("state", "is_retryable"),
    [("40001", True), ("40P01", True), ("55P03", True), ("57P01", True), ("08006", True),
     ("53300", True), ("23505", False), ("42501", False), ("22012", False)],
)  # fmt: skip
async def test_the_state_says_whether_to_try_again(
    executor: SqlExecutor, state: str, is_retryable: bool
) -> None:
    """What passes may be tried again; what is wrong with the statement stays wrong."""
    expected = Failed(
        error=f"refused with SQLSTATE {state}", retryable=is_retryable, answer="as you wish"
    )
    assert expected == await perform(executor, f"SELECT fail('{state}')")


async def test_an_inbox_makes_it_once(executor: SqlExecutor, place: Place) -> None:
    """The second attempt of an occurrence finds its key and does nothing."""
    text = "INSERT INTO effect VALUES (1)"
    assert Succeeded(answer="INSERT 0 1") == await perform(executor, text, target="once")
    done = Succeeded(answer="done by an earlier attempt")
    assert done == await perform(executor, text, target="once")
    assert [(1,)] == place.owner.execute("SELECT count(*) FROM effect").fetchall()


async def test_a_failure_leaves_no_key_in_the_inbox(executor: SqlExecutor, place: Place) -> None:
    """What failed may be tried again."""
    assert isinstance(await perform(executor, "SELECT 1/0", target="once"), Failed)
    assert [(0,)] == place.owner.execute("SELECT count(*) FROM gnomon_inbox").fetchall()


async def test_autocommit_is_outside_of_a_transaction(executor: SqlExecutor) -> None:
    """For what PostgreSQL refuses inside of one."""
    assert isinstance(await perform(executor, "VACUUM effect"), Failed)
    outcome = await perform(executor, "VACUUM effect", autocommit=True)
    assert Succeeded(answer="VACUUM") == outcome


async def test_addresses_and_passwords_are_not_shown(executor: SqlExecutor) -> None:
    """Users learn that there is no connection, and nothing else."""
    assert Failed(error="cannot connect") == await perform(executor, "SELECT 1", target="nowhere")
    assert "canary" not in repr(SqlTarget(name="a", dsn=Secret(DSN))) + repr(executor)


def test_a_lost_commit_is_unknown() -> None:
    """Where the next attempt can see it; elsewhere it counts as failed."""
    from gnomon.executors._sql_attempt import SqlAttempt

    effect = Sql(target="a", statement="SELECT 1")
    failed = Failed(error="the connection was lost")
    for inbox, expected in ((None, Failed), ("gnomon_inbox", Interrupted)):
        target = SqlTarget(name="a", dsn=Secret(DSN), inbox=inbox)
        attempt = SqlAttempt(order_of(effect), effect, target)
        assert failed == attempt.ended(failed)
        attempt.is_committing = True
        assert isinstance(attempt.ended(failed), expected)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("dsn", Secret("")),
        ("dsn", Secret("mysql://a@b/c")),
        ("dsn", Secret("postgresql://db.example/shop")),
        ("dsn", Secret("postgresql://a@/shop")),
        ("dsn", Secret("postgresql://a@b:x/c")),
        ("place", "elsewhere"),
        ("inbox", "a b"),
        ("inbox", 'a"; DROP TABLE x'),
        ("search_path", "a; b"),
        ("in_flight_max", 0),
    ],
)
def test_wrong_options_are_refused(option: str, value: Any) -> None:
    """When the worker starts, and the error names the option but not the password."""
    options: dict[str, Any] = {"name": "shop", "dsn": Secret(DSN), option: value}
    with pytest.raises(ConfigurationError, match=rf"targets\.shop\.{option}"):
        SqlTarget(**options)


@pytest.mark.parametrize("own", ["sqlite:///gnomon.db", "postgresql://shop:x@db.example/shop"])
def test_local_needs_a_login_of_its_own(own: str) -> None:
    """And an installation on PostgreSQL."""
    target = SqlTarget(name="own", place="local", dsn=Secret(DSN))
    with pytest.raises(ConfigurationError, match=r"targets\.own"):
        SqlExecutor({"own": target}, clock=SystemClock(), database_url=own)
