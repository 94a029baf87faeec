"""Every node is a door: the SQL way in, workers, hints, and new days."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from psycopg import sql
from psycopg.types.json import Jsonb

from gnomon.app import App
from gnomon.config import DatabaseConfig, Settings
from gnomon.contracts.store import Selection, Store
from gnomon.executors.python import AttemptContext
from gnomon.model.action import State
from gnomon.model.errors import ConfigurationError, InvalidRequest
from gnomon.model.spec import Python
from gnomon.stores.postgres.logins import grant_sql
from gnomon.stores.postgres.partitions import partition_name
from tests.fixtures.citus import CitusCluster
from tests.fixtures.postgres import PostgresSchema
from tests.integration.citus.conftest import SHARD_COUNT, Opener

CALL = {"method": "POST", "url": "http://127.0.0.1:9/ok"}
DAY = timedelta(days=1)


async def test_the_sql_way_in_works_through_every_node(
    citus: CitusCluster, store: Store, place: PostgresSchema
) -> None:
    """Schedule one, schedule many, look, cancel; and each node sees what the others did."""
    schema = place.schema
    made: list[str] = []
    for node in citus.nodes:
        dsn = citus.dsn_of(node)
        made += [
            name
            for (name,) in citus.ask(
                f"SELECT {schema}.schedule('http', %s, id => %s)",
                Jsonb(CALL), f"one-{node.port}", dsn=dsn,
            )
        ]  # fmt: skip
        payloads = [Jsonb(CALL)] * 5
        query = f"SELECT {schema}.schedule_many('http', %s::jsonb[])"
        made += [name for (name,) in citus.ask(query, payloads, dsn=dsn)]
    for node, name in zip(citus.nodes, made, strict=False):
        rows = citus.ask(f"SELECT id FROM {schema}.tasks", dsn=citus.dsn_of(node))
        assert sorted(made) == sorted(found for (found,) in rows)
        cancelled = citus.ask(f"SELECT {schema}.cancel(%s)", name, dsn=citus.dsn_of(node))
        assert [(True,)] == cancelled

    page = await store.actions.list(Selection(states=(State.CANCELLED,)), after=None, limit=10)
    assert len(citus.nodes) == len(page.actions)
    assert [] == list(await store.installation.doctor())


async def test_a_granted_role_schedules_and_cancels_but_cannot_read(
    citus: CitusCluster, store: Store, place: PostgresSchema
) -> None:
    """The nodes ask for rights of the session's own role, so the view is the owner's there."""
    role = f"gnomon_sql_{uuid.uuid4().hex[:12]}"
    citus.ask(f"CREATE ROLE {role} LOGIN")
    try:
        citus.ask(f"SELECT {place.schema}.grant_sql(%s)", role)
        for node in citus.nodes:
            with psycopg.connect(citus.dsn_of(node), autocommit=True) as connection:
                connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
                schedule = f"SELECT {place.schema}.schedule('http', %s, id => 'one')"
                connection.execute(schedule.encode(), [Jsonb(CALL)])
                cancelled = connection.execute(f"SELECT {place.schema}.cancel('one')".encode())
                assert (True,) == cancelled.fetchone()
                for refused in ("tasks", "scheduled_action"):
                    with pytest.raises(psycopg.errors.InsufficientPrivilege):
                        connection.execute(f"SELECT * FROM {place.schema}.{refused}".encode())
    finally:
        citus.ask(f"DROP OWNED BY {role}")
        citus.ask(f"DROP ROLE {role}")
    assert [] == list(await store.installation.doctor())


async def test_an_action_and_a_table_that_citus_knows_are_one_commit(
    citus: CitusCluster, store: Store, place: PostgresSchema
) -> None:
    """The shard is another node's: it is prepared there before either is committed. A commit that
    fails here leaves no action."""
    del store
    citus.ask(f"CREATE TABLE {place.schema}.mine (n int)")
    citus.ask(f"SELECT citus_add_local_table_to_metadata('{place.schema}.mine')")
    insert = f"INSERT INTO {place.schema}.mine SELECT count(*) FROM {place.schema}.mine"
    schedule = f"SELECT {place.schema}.schedule('http', %s, id => 'one')"
    with psycopg.connect(citus.dsn) as first, psycopg.connect(citus.dsn) as second:
        for session in (first, second):
            session.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        first.execute(insert.encode())
        first.execute(schedule.encode(), [Jsonb(CALL)])
        second.execute(insert.encode())
        second.commit()
        with pytest.raises(psycopg.errors.SerializationFailure):
            first.commit()
    assert [(1,)] == citus.ask(f"SELECT count(*) FROM {place.schema}.mine")
    assert [] == citus.ask(f"SELECT id FROM {place.schema}.tasks")


async def test_workers_work_through_every_node(
    citus: CitusCluster, store: Store, place: PostgresSchema
) -> None:
    """Who it is is asked of the coordinator; hints stay on their node, and the poll covers it."""
    done: set[str] = set()
    stop = asyncio.Event()
    async with AsyncExitStack() as open_apps:
        apps = [
            await open_apps.enter_async_context(app_on(citus.dsn_of(node), place.schema, done))
            for node in citus.nodes
        ]
        working = [asyncio.create_task(app.work(stop)) for app in apps]
        names = [f"a-{number}" for number in range(60)]
        for number, name in enumerate(names):
            app = apps[number % len(apps)]
            await app.schedule(Python(function="note", args=[name]), id=name)
        async with asyncio.timeout(60):
            while len(done) < len(names):
                await asyncio.sleep(0.02)
        stop.set()
        await asyncio.gather(*working)
    assert set(names) == done
    assert [] == list(await store.installation.doctor())


def app_on(dsn: str, schema: str, done: set[str]) -> App:
    app = App(settings=Settings(database=DatabaseConfig(url=dsn, schema=schema)))

    @app.action(name="note")
    async def note(attempt: AttemptContext, name: str) -> None:
        del attempt
        done.add(name)

    return app


@pytest.mark.parametrize("door", ["coordinator", "worker"])
async def test_new_days_are_made_through_any_node(
    citus: CitusCluster, store: Store, place: PostgresSchema, opened: Opener, door: str
) -> None:
    """And old ones go; on a worker node the coordinator is told to."""
    today = datetime.now(UTC).date()
    later = partition_name("audit", today + 2 * DAY)
    old = partition_name("audit", today - 200 * DAY)
    day = today - 200 * DAY
    citus.ask(f"DROP TABLE {place.schema}.{later}")
    citus.ask(
        f"CREATE TABLE {place.schema}.{old} PARTITION OF {place.schema}.audit "
        f"FOR VALUES FROM ('{day} 00:00+00') TO ('{day + DAY} 00:00+00')"
    )
    node = citus.nodes[0] if door == "coordinator" else citus.workers[0]

    async with opened(citus.dsn_of(node)) as other:
        await other.installation.purge(limit=10)

    for node in citus.nodes:
        dsn = citus.dsn_of(node)
        made = citus.ask("SELECT to_regclass(%s)::text", f"{place.schema}.{later}", dsn=dsn)
        assert [(f"{place.schema}.{later}",)] == made
        assert [(None,)] == citus.ask("SELECT to_regclass(%s)", f"{place.schema}.{old}", dsn=dsn)
    assert [] == list(await store.installation.doctor())


async def test_what_is_wrong_with_the_cluster_is_found(
    citus: CitusCluster, store: Store, place: PostgresSchema
) -> None:
    """A table that lives apart from the others."""
    citus.ask(f"SELECT undistribute_table('{place.schema}.entity')")
    citus.ask(
        f"SELECT create_distributed_table('{place.schema}.entity', 'shard_id', "
        "colocate_with => 'none', shard_count => 3)"
    )

    (found,) = await store.installation.doctor()

    assert ("cluster_colocation", "entity") == (found.rule, found.subject)
    assert SHARD_COUNT == len(await store.leases.list_locks())


async def test_logins_are_set_up_on_the_coordinator(
    citus: CitusCluster, store: Store, place: PostgresSchema
) -> None:
    """It tells the nodes; who comes by another door is told which one it is."""
    del store
    door = citus.dsn_of(citus.workers[0])
    with pytest.raises(ConfigurationError, match="set logins up through its coordinator at"):
        await grant_sql(door, place.schema, ["anybody"])
    with pytest.raises(InvalidRequest, match="no role"):
        await grant_sql(citus.dsn, place.schema, [f"nobody_{uuid.uuid4().hex[:12]}"])
