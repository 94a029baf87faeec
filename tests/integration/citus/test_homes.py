"""Parts that are asked where they live: nothing is written beside a move, and nothing gets lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gnomon.clock import SystemClock, SystemEntropy
from gnomon.contracts.observer import SilentObserver
from gnomon.contracts.store import Store
from gnomon.model.errors import StoreUnavailable
from gnomon.model.spec import Python, Spec
from gnomon.scheduler import Request
from gnomon.stores.postgres import open_postgres
from gnomon.stores.postgres.connection import Database, open_database
from gnomon.stores.postgres.errors import PartMoved
from gnomon.stores.postgres.nodes import Home, Nodes
from tests.fixtures.citus import CitusCluster, CitusNode
from tests.fixtures.postgres import PostgresSchema
from tests.integration.citus.test_doors import app_on

SHARD = 3


async def opened_database(citus: CitusCluster, place: PostgresSchema) -> Database:
    database = await open_database(
        citus.dsn, schema=place.schema, pool_size=2, prepared=True, many_shards=None,
        observer=SilentObserver(),
    )  # fmt: skip
    await database.learn_parts()
    await database.learn_homes()
    return database


def where(citus: CitusCluster, place: PostgresSchema, part: int) -> tuple[CitusNode, CitusNode]:
    """The node that has a part, and one that has not."""
    nodes = citus.workers
    having = next(node for node in nodes if part in citus.parts_on(node, place.schema))
    return having, next(node for node in nodes if node != having)


async def test_every_part_is_reached(
    citus: CitusCluster, store: Store, place: PostgresSchema
) -> None:
    """By who opens what is installed; he need not gather what he does."""
    del store
    other = await open_postgres(
        citus.dsn, schema=place.schema, clock=SystemClock(), entropy=SystemEntropy()
    )
    await other.close()
    assert 0.0 == other.capabilities.pace_s
    database = await opened_database(citus, place)
    at_home = [database.at_home(shard) for shard in range(8)]
    locks = [
        {row["shard_id"] for row in await there.fetch("list_lanes", [0])}
        for there in at_home
        if there is not None
    ]
    await database.close()
    assert not database.is_through_citus
    assert [set()] * 8 == locks


async def test_who_moves_a_part_waits_for_who_is_there(
    citus: CitusCluster, store: Store, place: PostgresSchema
) -> None:
    """And who comes later is told that it lives elsewhere; through Citus it is found."""
    del store
    database = await opened_database(citus, place)
    part = database.parts.of(SHARD)
    source, target = where(citus, place, part)
    there = database.at_home(SHARD)
    assert there is not None
    async with there.transaction("test") as session:
        await session.fetch("adopt_lock", SHARD, None, "at home")
        moving = asyncio.create_task(asyncio.to_thread(citus.move_part, part, source, target))
        await until_waited_for(citus, source)
        assert not moving.done()
    await moving

    with pytest.raises(PartMoved):
        await there.fetch("adopt_lock", SHARD, None, "too late")
    assert database.at_home(SHARD) is None
    (row,) = citus.ask(f'SELECT owner FROM "{place.schema}".shard_lock WHERE shard_id = {SHARD}')
    assert ("at home",) == row
    await database.learn_homes()
    anew = database.at_home(SHARD)
    assert anew is not None
    await anew.fetch("adopt_lock", SHARD, None, "at its new home")
    (row,) = citus.ask(f'SELECT owner FROM "{place.schema}".shard_lock WHERE shard_id = {SHARD}')
    assert ("at its new home",) == row
    await database.close()


@pytest.mark.parametrize("key", [None, "key"])
async def test_a_caller_is_not_told_of_a_move(
    citus: CitusCluster, store: Store, place: PostgresSchema, key: str | None
) -> None:
    """What finds its part gone is stored through Citus in the same call, once."""
    del store
    spec = Spec(action=Python(function="note", args=["x"]))
    async with app_on(citus.dsn, place.schema, set()) as app:
        requests = [
            Request(id=f"move-{number}", spec=spec, key=key and f"{key}-{number}")
            for number in range(40)
        ]
        node, other = citus.workers[:2]
        for part in citus.parts_on(node, place.schema):
            await asyncio.to_thread(citus.move_part, part, node, other)
        for request in requests[:20]:
            await app.scheduler.create(request)
        answers = await app.scheduler.create_many(requests[20:])
        assert [] == [answer for answer in answers if isinstance(answer, Exception)]
    (row,) = citus.ask(f'SELECT count(*) FROM "{place.schema}".incoming_queue')
    assert (40,) == row


async def until_waited_for(citus: CitusCluster, node: CitusNode) -> None:
    """Somebody waits for a lock of a part there."""
    query = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    async with asyncio.timeout(30):
        while not citus.ask(query, dsn=citus.dsn_of(node))[0][0]:
            await asyncio.sleep(0.02)


async def test_a_part_whose_node_is_not_reached_is_asked_through_citus(
    citus: CitusCluster, store: Store, place: PostgresSchema, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process may know the coordinator alone."""
    del store

    async def not_reached(*_args: Any) -> bool:
        return False

    monkeypatch.setattr(Nodes, "_is_reached", not_reached)
    database = await opened_database(citus, place)
    assert database.is_through_citus
    assert database.at_home(SHARD) is None
    rows = await database.fetch("adopt_lock", SHARD, None, "through Citus")
    await database.close()
    assert [SHARD] == [row["shard_id"] for row in rows]


async def test_who_takes_the_function_away_has_all_go_through_citus(
    citus: CitusCluster, store: Store, place: PostgresSchema
) -> None:
    """Also those who work; what is asked for then is refused once, and nothing is done."""
    del store
    database = await opened_database(citus, place)
    there = database.at_home(SHARD)
    assert there is not None
    citus.ask(f'DROP FUNCTION "{place.schema}".hold_part')
    with pytest.raises(PartMoved):
        await there.fetch("adopt_lock", SHARD, None, "too late")
    await database.learn_homes()
    assert database.at_home(SHARD) is None
    await database.fetch("adopt_lock", SHARD, None, "through Citus")
    (row,) = citus.ask(f'SELECT owner FROM "{place.schema}".shard_lock WHERE shard_id = {SHARD}')
    await database.close()
    assert ("through Citus",) == row


async def test_a_node_that_goes_is_asked_through_citus_until_it_is_back(
    citus: CitusCluster, store: Store, place: PostgresSchema
) -> None:
    """One refused connection tells it; whoever else lives there is not asked in vain."""
    del store
    database = await opened_database(citus, place)
    there = database.at_home(SHARD)
    assert there is not None
    home: Home | None = there._home
    assert home is not None
    parts = {database.parts.of(shard) for shard in range(8)}
    of_node = {part for part in parts if at_same_node(database, part, home)}
    for pool in database._nodes.pools(home) if database._nodes else ():
        pool.terminate()
    with pytest.raises(StoreUnavailable):
        await there.fetch("list_lanes", [SHARD])

    assert of_node
    gone = {part for part in parts if database._nodes and database._nodes.home(part) is None}
    assert of_node == gone
    await database.close()


def at_same_node(database: Database, part: int, home: Home) -> bool:
    other = database._nodes.home(part) if database._nodes else None
    return other is not None and other.node == home.node
