"""Nodes of a Citus cluster, reached straight: what is asked of one part goes where it lives.

Through Citus a statement is planned on two nodes and written out in between, and costs a hundred
times what it finds. Straight at its node a part is a few tables, and the statements of one machine
do for them, prepared once. Citus moves parts, and must know who is at one: so each transaction
there begins with what its own begin with, a lock that is shared by all who write and kept from who
moves, and then looks whether the part still lives here (`hold_part`). If it does not, nothing is
done, and the next call goes through Citus, as all do whose node this process does not reach.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from gnomon.queries import in_schema, quoted
from gnomon.stores.postgres.errors import DRIVER_ERRORS
from gnomon.stores.postgres.texts import Texts, catalogue, texts_of

Pool = "asyncpg.Pool[asyncpg.Record]"

HOLD = "hold_part"  # the function that each transaction at a node begins with
# What it says of a part that lives elsewhere by now; and the server, when somebody took it away.
GONE = frozenset({"GN001", "42883"})
REACHED_WITHIN_S = 2.0
ASKED_EVERY_S = 5.0  # where parts live, while some are not reached

# Of the statements that are about no shard: what a transaction at a node may need.
_ANYWHERE = frozenset({"now", "limit_lock", "limit_statement"})


class Node(NamedTuple):
    """Where a part lives."""

    group: int  # as Citus numbers its nodes
    host: str
    port: int


class Home(NamedTuple):
    """A part, at its node."""

    part: int
    node: Node
    tables: Mapping[str, str]  # what each table is called there

    def hold(self, schema: str) -> str:
        """What a transaction at the node begins with."""
        return f"SELECT {quoted(schema)}.{HOLD}({self.part}, {self.node.group})"


class NodePools(NamedTuple):
    """The connections to one node, by what they are for."""

    work: Any
    verbs: Any


OpenPools = Callable[[Node], Awaitable[NodePools]]


def homes_of(rows: Iterable[Any]) -> list[Home]:
    """Out of the rows of `cluster_homes`."""
    nodes: dict[int, Node] = {}
    tables: dict[int, dict[str, str]] = {}
    for row in rows:
        part = row["part"]
        nodes[part] = Node(row["groupid"], row["nodename"], row["nodeport"])
        tables.setdefault(part, {})[row["name"]] = row["shard_table"]
    return [Home(part, nodes[part], MappingProxyType(names)) for part, names in tables.items()]


def texts_at(home: Home, schema: str) -> Texts:
    """The statements of one machine, about the tables of one part. What is about no shard, or about
    tables that are whole on every node, is not for here."""
    prefix = re.escape(in_schema("/*schema*/", schema))
    table = re.compile(rf"{prefix}(\w+)")
    # What is stored may be compared with what was there, by the name of the table.
    into = re.compile(rf"(INSERT INTO {prefix}(\w+))\b(?! AS\b)")
    texts = Texts()
    for name, text in texts_of(schema, many_shards=True).items():
        query = catalogue().get(name)  # or it is made of one, and has its tables
        is_elsewhere = query is not None and query.mark == "global" and name not in _ANYWHERE
        if not is_elsewhere and set(table.findall(text)) <= home.tables.keys():
            named = into.sub(r"\1 AS \2", text)
            texts[name] = table.sub(lambda one: home.tables[one[1]], named)
    return texts


class Nodes:
    """Where the parts live, as far as this process reaches them."""

    def __init__(self, open_pools: OpenPools, schema: str) -> None:
        self._open_pools = open_pools
        self._schema = schema
        self._homes: dict[int, Home] = {}
        self._texts: dict[int, Texts] = {}
        self._pools: dict[Node, NodePools] = {}
        self._all_parts = 0
        self._told = (0, 0)  # parts that are reached, and all of them
        self._learning = asyncio.Lock()  # or two who learn at once connect twice
        self._asked_at: float | None = None
        self._asking: asyncio.Task[None] | None = None

    @property
    def are_all_reached(self) -> bool:
        """Whether no part is asked for through Citus."""
        return 0 < self._all_parts <= len(self._homes)

    def news(self) -> tuple[int, int] | None:
        """Of how many parts' nodes how many are reached, if that has changed since it was told."""
        now = len(self._homes), self._all_parts
        if now == self._told:
            return None
        self._told = now
        return now

    def home(self, part: int) -> Home | None:
        return self._homes.get(part)

    def texts(self, home: Home) -> Texts:
        return self._texts[home.part]

    def pools(self, home: Home) -> NodePools:
        return self._pools[home.node]

    def forget(self, home: Home) -> None:
        """It lives there no more, or its node is not reached: until it is asked for again it is
        reached through Citus, which knows better."""
        if self._homes.get(home.part) is home:
            del self._homes[home.part]
        self._asked_at = asyncio.get_running_loop().time()

    def lose(self, home: Home) -> None:
        """Its node does not answer."""
        for other in list(self._homes.values()):
            if other.node == home.node:
                self.forget(other)

    def ask_soon(self, ask: Callable[[], Awaitable[None]]) -> None:
        """Ask again where parts live, beside all else, if some are not reached."""
        if self.are_all_reached or (self._asking is not None and not self._asking.done()):
            return
        now = asyncio.get_running_loop().time()
        if self._asked_at is not None and now < self._asked_at + ASKED_EVERY_S:
            return
        self._asked_at = now
        self._asking = asyncio.ensure_future(self._asked(ask))

    async def _asked(self, ask: Callable[[], Awaitable[None]]) -> None:
        await ask()

    async def learn(
        self, homes: Sequence[Home], is_ours: Callable[[Any, Home], Awaitable[bool]]
    ) -> None:
        """Note which of these are reached. `is_ours`: whether a connection leads there."""
        self._all_parts = len(homes)
        parts = {home.part for home in homes}
        self._homes = {part: home for part, home in self._homes.items() if part in parts}
        by_node: dict[Node, list[Home]] = {}
        for home in homes:
            by_node.setdefault(home.node, []).append(home)
        async with self._learning:
            reached = await asyncio.gather(
                *(self._is_reached(node, of_node[0], is_ours) for node, of_node in by_node.items())
            )
        for of_node, is_reached in zip(by_node.values(), reached, strict=True):
            for home in of_node if is_reached else ():
                if self._homes.get(home.part) != home:
                    self._texts[home.part] = texts_at(home, self._schema)
                    self._homes[home.part] = home

    async def _is_reached(
        self, node: Node, home: Home, is_ours: Callable[[Any, Home], Awaitable[bool]]
    ) -> bool:
        try:
            async with asyncio.timeout(REACHED_WITHIN_S):
                if node not in self._pools:
                    self._pools[node] = await self._open_pools(node)
                async with self._pools[node].work.acquire() as connection:
                    return await is_ours(connection, home)
        except DRIVER_ERRORS:
            return False

    async def close(self) -> list[Any]:
        """Ask no more; the pools, to be closed."""
        if self._asking is not None:
            self._asking.cancel()
        return [pool for pools in self._pools.values() for pool in pools]
