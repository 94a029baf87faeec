"""Parts of a real cluster: a statement about several shards of one is one task of one node."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import asyncpg
import psycopg
import pytest
from psycopg.rows import dict_row

from gnomon.contracts.observer import SilentObserver
from gnomon.contracts.store import Store
from gnomon.executors.python import AttemptContext
from gnomon.model.errors import AlreadyExists, Unavailable
from gnomon.model.spec import Python
from gnomon.stores.postgres.cluster import node_findings
from gnomon.stores.postgres.connection import Database, open_database
from gnomon.stores.postgres.parts import PartShards
from gnomon.stores.postgres.pools import settings_for
from gnomon.stores.postgres.texts import prepared_text
from tests.fixtures.citus import CitusCluster
from tests.fixtures.postgres import PostgresSchema
from tests.integration.citus.conftest import SHARD_COUNT
from tests.integration.citus.test_doors import app_on
from tests.integration.postgres.statements import (
    LOCAL,
    SHARD,
    STATEMENTS,
    literal,
    parameters_of,
)

ONE_TASK = re.compile(r"\bTask Count: 1\b")


async def opened_database(citus: CitusCluster, place: PostgresSchema) -> Database:
    database = await open_database(
        citus.dsn, schema=place.schema, pool_size=2, prepared=True, many_shards=None,
        observer=SilentObserver(),
    )  # fmt: skip
    await database.learn_parts()
    return database


async def part_of_shard(citus: CitusCluster, place: PostgresSchema) -> list[int]:
    """All shards of the part that has the one which statements are tried with."""
    database = await opened_database(citus, place)
    groups = list(database.groups(range(SHARD_COUNT)))
    await database.close()
    return next(list(group.places) for group in groups if SHARD in group.places)


async def test_shards_go_together_as_citus_keeps_them(
    citus: CitusCluster, store: Store, place: PostgresSchema
) -> None:
    """As many transactions as there are parts with shards."""
    del store
    database = await opened_database(citus, place)
    groups = list(database.groups(range(SHARD_COUNT)))
    await database.close()
    rows = citus.ask(
        "SELECT array_agg(n ORDER BY n) FROM generate_series(0, %s - 1) AS s (n) "
        "GROUP BY get_shard_id_for_distribution_column(%s, n)",
        SHARD_COUNT, f'"{place.schema}".shard_lock',
    )  # fmt: skip

    assert sorted(shards for (shards,) in rows) == sorted(list(group.places) for group in groups)
    several = [group for group in groups if len(group.places) > 1]
    assert several, "this cluster is cut into too many parts to see any go together"
    assert all(isinstance(group.shards[0], PartShards) for group in several)


async def test_every_statement_about_a_part_is_one_task(
    citus: CitusCluster, store: Store, place: PostgresSchema
) -> None:
    """Whatever it reads and writes: nothing of it is planned for another part."""
    del store
    shards = await part_of_shard(citus, place)
    settings = dict(settings_for(is_citus=True).narrow)
    connection: asyncpg.Connection[Any] = await asyncpg.connect(citus.dsn, server_settings=settings)
    problems = []
    for name in LOCAL:
        query = STATEMENTS[name]
        text = prepared_text(query, place.schema, one_shard=True, one_part=True)
        if "::oid[]" in text:
            plan = await explained(connection, name, re.sub(r"--[^\n]*", "", text), shards)
            if not ONE_TASK.search(plan):
                problems.append(f"{name}:\n{plan}")
    await connection.close()

    assert [] == problems


async def explained(
    connection: asyncpg.Connection[Any], name: str, text: str, shards: list[int]
) -> str:
    """The plan of a statement about all shards of the part, the others of its values made up."""
    types, values = parameters_of(name, text)
    values[types.index("oid[]")] = shards
    given = ", ".join(
        f"{literal(value)}::{kind}" for value, kind in zip(values, types, strict=True)
    )
    await connection.execute(f"PREPARE planned ({', '.join(types)}) AS {text}")
    try:
        rows = await connection.fetch(f"EXPLAIN (COSTS off) EXECUTE planned ({given})")
    except asyncpg.PostgresError as exc:
        return f"{type(exc).__name__}: {exc}"
    finally:
        await connection.execute("DEALLOCATE planned")
    return "\n".join(row[0] for row in rows)


async def test_a_part_that_is_cut_in_two_is_learned_anew(
    citus: CitusCluster, store: Store, place: PostgresSchema
) -> None:
    """Who knew the whole of it is refused once; nothing is lost, nothing is done twice."""
    del store
    done: list[str] = []
    stop = asyncio.Event()
    app = app_on(citus.dsn, place.schema, set())

    @app.action(name="count")
    async def count(attempt: AttemptContext, name: str) -> None:
        del attempt
        done.append(name)

    async with app:
        working = asyncio.create_task(app.work(stop))
        await all_done(app, done, "before", 40)
        await asyncio.to_thread(cut_in_two, citus, place)  # it waits for what the worker does
        await all_done(app, done, "after", 40)
        stop.set()
        await working
        assert [] == list(await app.store.installation.doctor())
    assert 80 == len(done) == len(set(done))


async def all_done(app: Any, done: list[str], prefix: str, count: int) -> None:
    """So many more, as one bulk; what is refused for a moment is asked for again."""
    names = [f"{prefix}-{number}" for number in range(count)]
    async with asyncio.timeout(60):
        for name in names:
            while True:
                try:
                    action = Python(function="count", args=[name])
                    await app.schedule(action, id=name)
                    break
                except AlreadyExists:  # what was refused had been stored
                    break
                except Unavailable:
                    await asyncio.sleep(0.1)
        while not set(names) <= set(done):
            await asyncio.sleep(0.02)


def cut_in_two(citus: CitusCluster, place: PostgresSchema) -> None:
    """The part with the most shards, in the middle of its hashes, on the node where it lives."""
    ((part, low, high, node),) = citus.ask(
        "SELECT s.shardid, s.shardminvalue::bigint, s.shardmaxvalue::bigint, n.nodeid "
        "FROM pg_dist_shard AS s JOIN pg_dist_placement AS p USING (shardid) "
        "JOIN pg_dist_node AS n USING (groupid) "
        "WHERE s.logicalrelid = %s::regclass "
        "ORDER BY (SELECT count(*) FROM generate_series(0, %s - 1) AS g (n) "
        "          WHERE get_shard_id_for_distribution_column(%s, g.n) = s.shardid) DESC LIMIT 1",
        f'"{place.schema}".shard_lock', SHARD_COUNT, f'"{place.schema}".shard_lock',
    )  # fmt: skip
    middle = str((low + high) // 2)
    citus.ask(
        "SELECT citus_split_shard_by_split_points(%s, %s::text[], %s::int[], 'block_writes')",
        part, [middle], [node, node],
    )  # fmt: skip


@pytest.mark.parametrize("setting", ["metadatasynced", "isactive"])
def test_a_node_that_is_told_off_is_found(citus: CitusCluster, setting: str) -> None:
    """As the catalogue of the coordinator says it; nobody else sees this one."""
    node = citus.workers[-1]
    change = f"UPDATE pg_dist_node SET {setting} = false WHERE nodename = %s AND nodeport = %s"
    with psycopg.connect(citus.dsn, row_factory=dict_row) as connection:
        connection.execute(change.encode(), (node.host, node.port))
        rows = connection.execute(STATEMENTS["cluster_nodes"].sql.encode()).fetchall()
        connection.rollback()

    rule = "cluster_metadata" if setting == "metadatasynced" else "cluster_node"
    (found,) = node_findings(rows)
    assert (rule, f"{node.host}:{node.port}") == (found.rule, found.subject)


async def test_a_prepared_transaction_is_counted_where_it_is(
    citus: CitusCluster, store: Store
) -> None:
    """The doctor waits five minutes before it speaks of one; here nobody does."""
    del store
    node = citus.workers[-1]
    text = STATEMENTS["cluster_prepared"].sql.replace("5 minutes", "0 seconds")
    with citus.prepared(node) as name:
        assert name
        counted = {row[0]: row[2] for row in citus.ask(text)}
    assert "1" == counted[f"{node.host}:{node.port}"]
    assert {"0"} == {row[2] for row in citus.ask(text)}
