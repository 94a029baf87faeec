"""`migrate` on a cluster: what it distributes, what it refuses, and the migrations to come."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gnomon.clock import SystemClock, SystemEntropy
from gnomon.contracts.store import Store
from gnomon.model.errors import ConfigurationError, InvalidRequest
from gnomon.stores._upkeep import Migration
from gnomon.stores.postgres import cluster, installation, open_postgres
from gnomon.stores.postgres.migrations import migrations
from tests.fixtures.citus import CitusCluster
from tests.fixtures.postgres import PostgresSchema, drop_schema
from tests.integration.citus.conftest import SHARD_COUNT, Opener

LATER = Migration(
    3,
    "0003_later",
    """
    ALTER TABLE /*schema*/scheduled_action ADD COLUMN colour text;
    CREATE INDEX scheduled_action_colour_idx ON /*schema*/scheduled_action (shard_id, colour);
    CREATE TABLE /*schema*/painted (
        shard_id int NOT NULL, colour text NOT NULL, PRIMARY KEY (shard_id, colour)
    );
    CREATE TABLE /*schema*/palette (colour text PRIMARY KEY);
    """,
)


async def test_all_tables_are_distributed_and_it_says_so(
    citus: CitusCluster, store: Store, place: PostgresSchema
) -> None:
    """Beside each other by shard, or whole on every node; and again, nothing is left to do."""
    told = await store.installation.placement()

    assert told is not None
    assert f"on {len(citus.workers)} nodes" in told
    assert [] == list(await store.installation.migrate(shard_count=SHARD_COUNT))
    assert told == await store.installation.placement()
    rows = citus.ask(
        "SELECT count(DISTINCT colocationid) FROM pg_dist_partition "
        "WHERE partmethod = 'h' AND logicalrelid::text LIKE %s",
        f"{place.schema}.%",
    )
    assert [(1,)] == rows


async def test_an_installation_is_moved_and_cut_by_itself(
    citus: CitusCluster, store: Store, place: PostgresSchema
) -> None:
    """Citus puts tables with as many parts beside each other, unless it is told not to: another
    installation is told so, and a table of the user's may be."""
    del store
    async with another_installation(place) as other:
        assert colocation_of(citus, place.schema) != colocation_of(citus, other)

    table = f'"{place.schema}".apart'
    citus.ask(f"CREATE TABLE {table} (shard_id int NOT NULL)")
    cut = (
        "SELECT create_distributed_table("
        "%s::regclass, 'shard_id', shard_count => %s, colocate_with => 'none')"
    )
    citus.ask(cut, table, len(parts_of(citus, place.schema)))
    assert colocation_of(citus, place.schema) != colocation_of(citus, place.schema, "apart")


@asynccontextmanager
async def another_installation(place: PostgresSchema) -> AsyncIterator[str]:
    """In the same database, with as many parts; its schema, which is dropped."""
    schema = f"{place.schema}_other"
    other = await open_postgres(
        place.dsn, schema=schema, clock=SystemClock(), entropy=SystemEntropy()
    )
    try:
        await other.installation.migrate(shard_count=SHARD_COUNT)
        yield schema
    finally:
        await other.close()
        drop_schema(place.dsn, schema)


def colocation_of(citus: CitusCluster, schema: str, table: str = "shard_lock") -> int:
    """Tables with the same number are moved and cut together."""
    ours = "SELECT colocationid FROM pg_dist_partition WHERE logicalrelid = %s::regclass"
    ((found,),) = citus.ask(ours, f'"{schema}".{table}')
    return int(found)


def parts_of(citus: CitusCluster, schema: str) -> list[int]:
    looking = "SELECT shardid FROM pg_dist_shard WHERE logicalrelid = %s::regclass"
    return [part for (part,) in citus.ask(looking, f'"{schema}".shard_lock')]


async def test_what_was_installed_before_citus_is_distributed_with_its_rows(
    citus: CitusCluster, store: Store, place: PostgresSchema
) -> None:
    """Whoever grows out of one machine migrates once more."""
    undistribute(citus, place, ["everything"])

    await store.installation.migrate(shard_count=SHARD_COUNT)

    told = await store.installation.placement()
    assert told is not None
    assert "17 tables by shard" in told
    locks = await store.leases.list_locks()
    assert SHARD_COUNT == len(locks)
    assert [] == list(await store.installation.doctor())


BY_SHARD = cluster.tables_until(2, cluster.DISTRIBUTED)


@pytest.mark.parametrize(
    ("taken", "why", "found"),
    [
        (["entity", "stage"], "half distributed", {"entity", "stage"}),
        # What the others live beside: the first to be there again, cut as `migrate` cuts it.
        (["shard_lock", "token"], "live apart", {*BY_SHARD, "token"}),
        (BY_SHARD, "half distributed", set(BY_SHARD)),
    ],
    ids=["some", "the first", "all by shard"],
)
async def test_a_half_distributed_schema_is_refused_with_the_way_out(
    citus: CitusCluster,
    store: Store,
    place: PostgresSchema,
    taken: list[str],
    why: str,
    found: set[str],
) -> None:
    """The statements that it names are those that mend it."""
    before = await store.installation.placement()
    undistribute(citus, place, taken)

    with pytest.raises(InvalidRequest, match=why) as caught:
        await store.installation.migrate(shard_count=SHARD_COUNT)
    assert found == {finding.subject for finding in await store.installation.doctor()}

    for statement in str(caught.value).partition("coordinator: ")[2].split(";"):
        if statement.strip():
            citus.ask(statement)
    await store.installation.migrate(shard_count=SHARD_COUNT)
    assert [] == list(await store.installation.doctor())
    assert before == await store.installation.placement()


async def test_it_is_refused_on_another_node_than_the_coordinator(
    citus: CitusCluster, place: PostgresSchema, opened: Opener
) -> None:
    """A table made there would stay there alone."""
    async with opened(citus.dsn_of(citus.workers[0])) as store:
        with pytest.raises(ConfigurationError, match="through its coordinator at"):
            await store.installation.migrate(shard_count=SHARD_COUNT)
    assert [(None,)] == citus.ask("SELECT to_regclass(%s)", f"{place.schema}.shard_lock")


async def test_a_later_migration_works_on_every_node(
    citus: CitusCluster,
    store: Store,
    place: PostgresSchema,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that adds a column, an index, a table by shard and one for every node."""
    monkeypatch.setattr(installation, "migrations", lambda: [*migrations(), LATER])
    monkeypatch.setattr(installation, "VERSION", 3)
    monkeypatch.setattr(cluster, "DISTRIBUTED", {**cluster.DISTRIBUTED, 3: ("painted",)})
    monkeypatch.setattr(cluster, "REFERENCE", {**cluster.REFERENCE, 3: ("palette",)})

    assert ["0003_later"] == list(await store.installation.migrate(shard_count=SHARD_COUNT))

    for node in citus.nodes:
        dsn, schema = citus.dsn_of(node), place.schema
        citus.ask(f"INSERT INTO {schema}.palette VALUES (%s)", str(node.port), dsn=dsn)
        for shard in range(SHARD_COUNT):
            values = (shard, str(node.port))
            citus.ask(f"INSERT INTO {schema}.painted VALUES (%s, %s)", *values, dsn=dsn)
        citus.ask(f"UPDATE {schema}.scheduled_action SET colour = 'red'", dsn=dsn)
    counted = citus.ask(f"SELECT count(*) FROM {place.schema}.painted")
    assert [(SHARD_COUNT * len(citus.nodes),)] == counted
    assert [] == list(await store.installation.doctor())


def undistribute(citus: CitusCluster, place: PostgresSchema, names: list[str]) -> None:
    """Take tables back onto the coordinator, as if Citus had come later."""
    every = [*cluster.tables_until(2, cluster.DISTRIBUTED)]
    every += cluster.tables_until(2, cluster.REFERENCE)
    for name in every if names == ["everything"] else names:
        citus.ask(f"SELECT undistribute_table('{place.schema}.{name}')")
