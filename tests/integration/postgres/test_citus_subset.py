"""The SQL stays in the subset that Citus runs, checked on plain PostgreSQL.

Every table is partitioned by hash of the shard; a statement marked shard-local must touch at most
one partition of each. What a plan cannot show is checked by rules over the text.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg
import pytest

import gnomon.stores.postgres
from gnomon.contracts.observer import SilentObserver
from gnomon.contracts.store import Selection
from gnomon.model.action import State
from gnomon.queries import Query, in_schema
from gnomon.stores.postgres import connection as engine
from gnomon.stores.postgres.connection import Database, Row
from gnomon.stores.postgres.list_query import count_selected, list_page
from gnomon.stores.postgres.migrations import migrations
from gnomon.stores.postgres.parts import Parts
from gnomon.stores.postgres.pools import settings_for
from gnomon.stores.postgres.rows import Decoder
from gnomon.stores.postgres.texts import prepared_text
from tests.fixtures.postgres import PostgresSchema
from tests.integration.postgres.statements import LOCAL, MOMENT, STATEMENTS, connect, explain
from tests.integration.postgres.subset import (
    function_problems,
    functions_of,
    problems_of,
    runs_on_citus,
)

PARTITIONS = 8
TABLES = (
    "shard_lock",
    "scheduled_action",
    "incoming_queue",
    "processing_queue",
    "finished_action",
    "attempt_log",
    "entity",
    "entity_change",
    "stage_state",
    "stage_queue",
    "changed_entity",
    "stage_outbox",
    "stage_backfill",
)


class Partitioned(NamedTuple):
    """A schema whose tables are partitioned by shard."""

    connection: asyncpg.Connection[Any]
    schema: str


@pytest.fixture
async def partitioned(postgres_schema: PostgresSchema) -> AsyncIterator[Partitioned]:
    dsn, schema = postgres_schema
    connection = await connect(dsn, generic=False)
    await connection.execute(f'CREATE SCHEMA "{schema}"')
    for step in migrations():
        await connection.execute(in_schema(step.script, schema))
    for table in TABLES:
        await connection.execute(
            f'ALTER TABLE "{schema}".{table} RENAME TO {table}_template;'
            f'CREATE TABLE "{schema}".{table} (LIKE "{schema}".{table}_template INCLUDING ALL) '
            "PARTITION BY HASH (shard_id);"
            + "".join(
                f'CREATE TABLE "{schema}".{table}_h{number} PARTITION OF "{schema}".{table} '
                f"FOR VALUES WITH (MODULUS {PARTITIONS}, REMAINDER {number});"
                for number in range(PARTITIONS)
            )
        )
    yield Partitioned(connection, schema)
    await connection.close()


def touched(plan: str) -> dict[str, set[str]]:
    """Which partitions of which tables a plan reads or writes."""
    found: dict[str, set[str]] = defaultdict(set)
    for table, number in re.findall(r" on (\w+?)_h(\d+)\b", plan):
        found[table].add(number)
    return found


async def test_shard_local_statements_touch_one_partition_of_each_table(
    partitioned: Partitioned,
) -> None:
    """One shard is one node's business, whatever the statement."""
    problems = []
    for name in LOCAL:
        plan = await explain(
            partitioned.connection, STATEMENTS[name], partitioned.schema, one_shard=True
        )
        wide = {table: parts for table, parts in touched(plan).items() if len(parts) > 1}
        if wide:
            problems.append(f"{name} touches {wide}:\n{plan}")

    assert [] == problems


async def test_a_statement_without_its_shard_would_be_caught(partitioned: Partitioned) -> None:
    """The check above can fail."""
    bad = Query("bad", "shard-local", "SELECT a.id FROM /*schema*/scheduled_action AS a")
    plan = await explain(partitioned.connection, bad, partitioned.schema, one_shard=True)

    assert PARTITIONS == len(touched(plan)["scheduled_action"])


def test_what_keeps_a_statement_in_its_shard_keeps_it_in_its_part() -> None:
    """Every condition on the shard becomes one on some shards, and none of them is for an index.
    What is about one lane stays as it is."""
    unchanged = set()
    for name in LOCAL:
        query = STATEMENTS[name]
        one = prepared_text(query, "s", one_shard=True)
        part = prepared_text(query, "s", one_shard=True, one_part=True)
        kept = query.sql.count("/*one-shard: ")
        if kept and part == one:
            unchanged.add(name)
        else:
            assert kept == part.count("::oid[])"), name
        assert one == re.sub(r"ANY \((\$\d+)::oid\[\]\)", r"\1", part), name
    assert {"begin_lane"} == unchanged


async def test_the_many_shards_form_of_the_same_text_reaches_them_all(
    partitioned: Partitioned,
) -> None:
    """What keeps a statement in its shard is the text behind `one-shard:`, and nothing else."""
    query = STATEMENTS["finish_take"]
    connection, schema = partitioned
    one = await explain(connection, query, schema, one_shard=True)
    many = await explain(connection, query, schema, one_shard=False)

    assert 1 == len(touched(one)["processing_queue"])
    assert PARTITIONS == len(touched(many)["processing_queue"])


def test_the_catalogue_keeps_the_rules() -> None:
    """No statement that Citus has to run uses what Citus refuses or does differently."""
    checked = [query for query in STATEMENTS.values() if runs_on_citus(query)]

    assert [] == [problem for query in checked for problem in problems_of(query)]
    assert len(LOCAL) > 20


BAD = {
    "has the mark ''": Query("x", "", "SELECT 1"),
    "uses MERGE": Query("x", "global", "MERGE INTO t USING u ON true"),
    "changes shard_id": Query(
        "x", "shard-local", "UPDATE t AS a SET b = 1, shard_id = 2 WHERE a.shard_id = $1"
    ),
    "locks rows": Query("x", "global", "SELECT a FROM t FOR NO KEY UPDATE"),
    "calls gen_random_uuid": Query(
        "x", "shard-local", "UPDATE t AS a SET b = gen_random_uuid() WHERE a.shard_id = $1"
    ),
    "asks for the time": Query(
        "x", "global", "INSERT INTO t VALUES (1) ON CONFLICT (a) DO UPDATE SET b = now()"
    ),
    "uses now()": Query("x", "global", "SELECT now()"),
    "has no `shard_id = $n`": Query("x", "shard-local", "SELECT a FROM t AS a"),
    "modifies a table twice": Query(
        "x",
        "shard-local",
        "WITH d AS (DELETE FROM t WHERE shard_id = $1) UPDATE t AS a SET b = 1",
    ),
    "inserts out of a modification": Query(
        "x",
        "shard-local",
        "WITH d AS (DELETE FROM t AS a WHERE a.shard_id = $1 RETURNING a.b) "
        "INSERT INTO u SELECT d.b FROM d AS d",
    ),
    "inserts without reading a table": Query(
        "x",
        "shard-local",
        "INSERT INTO t SELECT u.a FROM unnest($2::int[]) AS u (a) WHERE shard_id = $1",
    ),
    "assigns part of an array": Query(
        "x", "global", "UPDATE t AS a SET c = 1, b = (a.d || $1::text[])[2:] WHERE a.e = 2"
    ),
    "chooses the time": Query(
        "x", "global", "UPDATE t AS a SET b = CASE WHEN a.c THEN statement_timestamp() END"
    ),
    "adds more than a parameter to the time": Query(
        "x", "global", "UPDATE t AS a SET b = statement_timestamp() + a.c * interval '1 second'"
    ),
    "adds an interval to a column's time": Query(
        "x",
        "global",
        "INSERT INTO t AS a VALUES (1) ON CONFLICT (b) DO UPDATE SET c = 2 "
        "WHERE a.d < excluded.d - $1::interval",
    ),
    "calls cancel, which reads tables": Query(
        "x", "global", "SELECT /*schema*/cancel(a.id) FROM /*schema*/t AS a"
    ),
    "selects nothing": Query("x", "global", "SELECT EXISTS (SELECT FROM t)"),
    "names rows by ctid": Query(
        "x", "global", "DELETE FROM t AS a WHERE a.ctid = ANY (ARRAY(SELECT b.ctid FROM t AS b))"
    ),
    "asks another table in its RETURNING": Query(
        "x",
        "shard-local",
        "INSERT INTO t SELECT l.a FROM l AS l WHERE l.shard_id = $1 "
        "RETURNING a, EXISTS (SELECT 1 FROM u) AS b",
    ),
    "joins a UNION": Query(
        "x",
        "global",
        "SELECT 1 FROM t AS a LEFT JOIN (SELECT b FROM u UNION ALL SELECT c FROM v) "
        "AS d ON d.b = a.b",
    ),
    "returns the time": Query(
        "x",
        "shard-local",
        "WITH d AS (DELETE FROM t AS a WHERE a.shard_id = $1 "
        "RETURNING a.b, statement_timestamp() AS now) SELECT d.b FROM d",
    ),
    "uses lock_timeout": Query("x", "global", "SELECT set_config('lock_timeout', '1', true)"),
    "uses pg_advisory": Query("x", "global", "SELECT pg_advisory_lock(1)"),
    "uses pg_notify": Query("x", "global", "SELECT pg_notify('a', 'b')"),
}


@pytest.mark.parametrize("problem", sorted(BAD))
def test_each_rule_catches_a_bad_statement(problem: str) -> None:
    """A rule that cannot fail is none."""
    assert any(problem in found for found in problems_of(BAD[problem]))


FINE = (
    "UPDATE t AS a SET b = greatest(a.b, statement_timestamp() + $1::interval), c = a.c + 1",
    "UPDATE t AS a SET b = coalesce(($2::int[])[a.c], 0) FROM u AS d WHERE a.e = d.e[1]",
    "UPDATE t AS a SET b = p.b FROM (SELECT statement_timestamp() + q.c AS b FROM q) AS p",
    "INSERT INTO t AS a VALUES (1) ON CONFLICT (b) DO UPDATE SET c = $2::timestamptz",
)


@pytest.mark.parametrize("text", FINE)
def test_what_citus_runs_is_let_through(text: str) -> None:
    """As it was seen on a cluster."""
    assert [] == problems_of(Query("x", "global", text))


BAD_FUNCTIONS = {
    "chooses a kind of plan": ("f() LANGUAGE plpgsql SET plan_cache_mode = x", "BEGIN END"),
    "reads a table in SQL": ("f(a int) LANGUAGE sql", "SELECT 1 FROM /*schema*/t WHERE b = a"),
    "selects nothing": ("f() LANGUAGE plpgsql", "PERFORM FROM /*schema*/t AS a"),
    "without their shard": ("f() LANGUAGE plpgsql", "SELECT 1 FROM /*schema*/t AS a FOR UPDATE"),
    "asks all shards": (
        "f() LANGUAGE plpgsql",
        "RETURN EXISTS (SELECT 1 FROM /*schema*/scheduled_action AS a WHERE a.guid = p_guid)",
    ),
    "counts what it inserted": (
        "f() LANGUAGE plpgsql",
        "INSERT INTO /*schema*/t SELECT 1; GET DIAGNOSTICS n = ROW_COUNT;",
    ),
}


@pytest.mark.parametrize("problem", sorted(BAD_FUNCTIONS))
def test_each_rule_catches_a_bad_function(problem: str) -> None:
    """As above."""
    assert any(problem in found for found in function_problems(*BAD_FUNCTIONS[problem]))


def test_the_functions_keep_the_rules() -> None:
    """The SQL way in works through every node."""
    functions = [found for step in migrations() for found in functions_of(step.script)]

    assert [] == [problem for found in functions for problem in function_problems(*found)]
    assert len(functions) > 20


class Asked(Database):
    """Takes note of the listings that are put together, and finds nothing."""

    def __init__(self) -> None:
        self.schema = "s"
        self.many_shards = False
        self.parts = Parts(is_citus=False)
        self.texts: list[str] = []

    async def fetch_text(self, operation: str, sql: str, *args: object) -> Sequence[Row]:
        del operation, args
        self.texts.append(sql)
        return [{"count": 0}] if "count(*)" in sql else []

    async def shard_count(self, session: object = None) -> int:
        del session
        return 1

    async def fetch(self, name: str, *args: object) -> Sequence[Row]:
        del name, args
        return []


SELECTIONS = (
    Selection(),
    Selection(states=(State.PAUSED,), queue="mail", id_prefix="a", labels={"a": "b"}),
    Selection(due_before=MOMENT, function="f", error_contains="e", search="s"),
    Selection(arguments={"a.b": "7"}, recurring=True, paused_for="r"),
)


@pytest.mark.parametrize("selection", SELECTIONS)
async def test_listings_that_are_put_together_keep_the_rules(selection: Selection) -> None:
    """They are in no catalogue, but Citus has to run them all the same."""
    asked = Asked()
    await list_page(asked, Decoder(), selection, after=None, limit=10)
    await count_selected(asked, selection, after=None, limit=10)

    found = [problems_of(Query("list", "global", text)) for text in asked.texts]
    assert [[]] * len(asked.texts) == found
    assert len(asked.texts) >= 2


@pytest.mark.parametrize("prepared", [True, False])
async def test_no_session_on_citus_forces_a_generic_plan(
    installed_schema: PostgresSchema, prepared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it is for: it cannot be sent to the node of one shard."""

    async def yes(_dsn: str) -> bool:
        return True

    monkeypatch.setattr(engine, "_is_citus", yes)
    database = await engine.open_database(
        installed_schema.dsn, schema=installed_schema.schema, pool_size=2, prepared=prepared,
        many_shards=None, observer=SilentObserver(),
    )  # fmt: skip
    database.queries["told"] = "SELECT current_setting('plan_cache_mode') AS mode"
    asked = [
        await database.fetch("told"),
        await database.for_work().fetch("told"),
        await database.for_leases().fetch("told"),
        await database.fetch_wide("told"),
        await database.fetch_text("list", database.queries["told"]),
    ]
    await database.close()

    assert ["auto"] * len(asked) == [rows[0]["mode"] for rows in asked]


def test_on_citus_plans_are_made_for_their_shard() -> None:
    """A generic plan names no shard, and so no node; on one machine it is the one we test."""
    plain, citus = settings_for(is_citus=False), settings_for(is_citus=True)

    assert "force_generic_plan" == plain.narrow["plan_cache_mode"]
    assert "auto" == citus.narrow["plan_cache_mode"]
    assert plain.narrow.keys() < citus.narrow.keys()
    assert {"off"} == {each["citus.override_table_visibility"] for each in citus}


def test_the_tables_have_no_volatile_defaults() -> None:
    """Neither sequences nor triggers nor computed defaults: each node would have its own."""
    script = "\n".join(re.sub(r"--[^\n]*", "", step.script) for step in migrations())

    assert [] == re.findall(r"(?i)\b(?:serial|bigserial|identity|trigger|nextval)\b", script)
    assert [] == re.findall(r"(?i)\bDEFAULT\s+\w+\s*\(", script)


def test_the_engine_learns_from_rows_and_codes_only() -> None:
    """Row counts and constraint names differ on Citus: the program asks for neither."""
    folder = Path(gnomon.stores.postgres.__file__).parent
    forbidden = re.compile(r"constraint_name|table_name|\.rowcount|statusmessage|INSERT 0")
    found = [path.name for path in folder.rglob("*.py") if forbidden.search(path.read_text())]

    assert [] == found
