"""Parts where they live: what is sent there, and what is known of where that is."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import asyncpg
import pytest

from gnomon.stores.postgres.cluster import DISTRIBUTED, REFERENCE
from gnomon.stores.postgres.errors import is_cut_off
from gnomon.stores.postgres.known_types import ARRAYS
from gnomon.stores.postgres.nodes import Home, Node, NodePools, Nodes, homes_of, texts_at
from gnomon.stores.postgres.texts import catalogue, texts_of

HERE, THERE = Node(1, "here", 5432), Node(2, "there", 5433)
TABLES = {name: f"gnomon.{name}_70" for names in DISTRIBUTED.values() for name in names}
WHOLE = {name for names in REFERENCE.values() for name in names}
CALLED = {"int": "int4", "bigint": "int8", "smallint": "int2", "boolean": "bool"}  # in SQL, by us


def home(part: int, node: Node) -> Home:
    return Home(part, node, TABLES)


class Cluster:
    """Says which nodes answer."""

    def __init__(self, *answering: Node) -> None:
        self.answering = set(answering)
        self.opened: list[Node] = []

    async def open(self, node: Node) -> NodePools:
        self.opened.append(node)
        pool = SimpleNamespace(acquire=lambda: self._acquired(node))
        return NodePools(work=pool, verbs=pool)

    @asynccontextmanager
    async def _acquired(self, node: Node) -> AsyncIterator[Any]:
        if node not in self.answering:
            raise ConnectionRefusedError
        yield node


async def is_ours(_connection: object, _home: Home) -> bool:
    return True


def test_a_part_has_its_own_tables() -> None:
    """Of each part the node, and what every table is called there."""
    rows = [
        {
            "part": part,
            "groupid": node.group,
            "nodename": node.host,
            "nodeport": node.port,
            "name": name,
            "shard_table": f"gnomon.{name}_{part}",
        }
        for part, node in ((70, HERE), (71, THERE))
        for name in ("audit", "shard_lock")
    ]
    homes = homes_of(rows)

    assert [(70, HERE), (71, THERE)] == [(home.part, home.node) for home in homes]
    assert {"audit": "gnomon.audit_71", "shard_lock": "gnomon.shard_lock_71"} == homes[1].tables
    assert 'SELECT "its own".hold_part(71, 2)' == homes[1].hold("its own")


def test_statements_there_name_the_tables_of_the_part_and_nothing_else() -> None:
    """What is about no shard, or about tables that every node has whole, is not sent there."""
    texts = texts_at(home(70, HERE), "gnomon")

    usual = texts_of("gnomon", many_shards=True)
    assert usual.keys() > texts.keys()
    assert usual.keys() - catalogue().keys() <= texts.keys(), "what is made of others is there, too"
    for name, text in texts.items():
        assert '"gnomon".' not in text, name
        assert "one-shard" not in text, name
    missing = {
        name for name, query in catalogue().items() if query.mark != "global" and name not in texts
    }
    assert all(
        any(f"/*schema*/{table}" in catalogue()[name].sql for table in WHOLE) for name in missing
    )
    assert {"now", "limit_lock", "limit_statement"} == {
        name for name, query in catalogue().items() if query.mark == "global" and name in texts
    }


def test_what_is_stored_is_compared_by_the_name_of_the_table() -> None:
    """Which is another one there: it is given as an alias."""
    text = texts_at(home(70, HERE), "gnomon")["log_attempt"]

    assert "INSERT INTO gnomon.attempt_log_70 AS attempt_log" in text


async def test_who_does_not_answer_is_asked_through_citus() -> None:
    """Each node by itself; with the others nothing is wrong."""
    cluster = Cluster(HERE)
    nodes = Nodes(cluster.open, "gnomon")
    await nodes.learn([home(70, HERE), home(71, THERE), home(72, HERE)], is_ours)

    assert [70, 72] == [part for part in (70, 71, 72) if nodes.home(part)]
    assert [False] == [nodes.are_all_reached]
    cluster.answering.add(THERE)
    await nodes.learn([home(70, HERE), home(71, THERE), home(72, HERE)], is_ours)
    assert nodes.are_all_reached
    assert [HERE, THERE] == cluster.opened, "its connections are opened once"


async def test_it_is_told_once_how_many_parts_are_reached() -> None:
    """An operator must see that all goes through Citus, for nobody else notices."""
    cluster = Cluster(HERE)
    nodes = Nodes(cluster.open, "gnomon")
    homes = [home(70, HERE), home(71, THERE)]
    await nodes.learn(homes, is_ours)
    assert (1, 2) == nodes.news()
    await nodes.learn(homes, is_ours)
    assert nodes.news() is None

    cluster.answering.add(THERE)
    await nodes.learn(homes, is_ours)
    assert (2, 2) == nodes.news()
    nodes.lose(homes[0])
    assert (1, 2) == nodes.news()


async def test_another_database_at_the_same_place_is_not_ours() -> None:
    """An address may lead somebody else than Citus elsewhere."""
    nodes = Nodes(Cluster(HERE).open, "gnomon")

    async def is_not_ours(_connection: object, _home: Home) -> bool:
        return False

    await nodes.learn([home(70, HERE)], is_not_ours)
    assert nodes.home(70) is None


async def test_a_part_that_has_moved_is_forgotten_and_a_lost_node_with_all_its_parts() -> None:
    """Until they are learned anew; who noticed late forgets nothing new."""
    nodes = Nodes(Cluster(HERE, THERE).open, "gnomon")
    homes = [home(70, HERE), home(71, THERE), home(72, HERE)]
    await nodes.learn(homes, is_ours)
    nodes.forget(homes[1])
    assert [True, False, True] == [nodes.home(part) is not None for part in (70, 71, 72)]

    moved = home(71, HERE)
    await nodes.learn([homes[0], moved, homes[2]], is_ours)
    nodes.forget(homes[1])
    assert nodes.home(71) is moved
    nodes.lose(homes[0])
    assert [None, None, None] == [nodes.home(part) for part in (70, 71, 72)]


async def test_parts_that_are_no_more_are_not_waited_for() -> None:
    """One was cut in two: its halves are other parts."""
    nodes = Nodes(Cluster(HERE).open, "gnomon")
    await nodes.learn([home(70, HERE), home(71, HERE)], is_ours)
    await nodes.learn([home(70, HERE), home(80, HERE), home(81, HERE)], is_ours)

    assert nodes.are_all_reached
    assert nodes.home(71) is None


async def test_it_is_asked_again_while_some_are_not_reached_and_not_at_once() -> None:
    """One heartbeat comes after the other, and a node may be away for long."""
    nodes = Nodes(Cluster(HERE).open, "gnomon")
    asked: list[int] = []

    async def ask() -> None:
        asked.append(1)

    await nodes.learn([home(70, HERE), home(71, THERE)], is_ours)
    for _ in range(3):
        nodes.ask_soon(ask)
    await nodes.close()
    assert len(asked) <= 1
    nodes.ask_soon(ask)
    assert len(asked) <= 1, "not at every heartbeat"


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (ConnectionRefusedError(), True),
        (TimeoutError(), True),
        (asyncpg.ConnectionDoesNotExistError(), True),
        (asyncpg.CannotConnectNowError(), True),
        (asyncpg.AdminShutdownError(), True),
        (asyncpg.QueryCanceledError(), False),
        (asyncpg.LockNotAvailableError(), False),
        (None, False),
    ],
)
def test_who_is_gone_is_told_from_who_is_slow(
    cause: BaseException | None, *, expected: bool
) -> None:
    """A statement that took too long says nothing of the node."""
    assert expected is is_cut_off(cause)


def test_no_statement_asks_for_the_type_of_an_array() -> None:
    """On a node with many tables the answer took longer than a statement may."""
    named = {
        CALLED.get(name, name)
        for query in catalogue().values()
        for name in re.findall(r"::(\w+)\[\]", query.sql)
    }
    assert {"tid", "uuid", "text"} <= named
    assert named <= {name for name, _ in ARRAYS.values()}
