"""Parts: which shards live in the same place, so that one statement may touch them all.

Citus cuts the tables into parts by a hash of the shard. A statement that names shards of one part
is one task of one node, whichever node has it at the moment. So this has nothing to do with where a
part lives: it may move while a statement is on its way. Only who cuts a part in two makes this
wrong, and then Citus refuses statements: see `Parts.excuse`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

PARTED_LIKE = "shard_lock"  # all tables by shard are cut into parts as this one is
ON_NODES = "create_one"  # the function that the node of a shard performs by itself
REFUSED = "0A000"  # of a statement over two parts that locks rows
NODE_LOST = "XX000"  # "could not commit", "failure on connection": Citus has no better code for it


class PartShards(list[int]):
    """Several shards of one part: the last argument of a shard-local statement about them."""


# The last arguments of shard-local statements: none where one statement may touch all shards.
Only: TypeAlias = tuple[int | PartShards, ...]


class Parts:
    """What is known of them. While nothing is, every shard counts as a part of its own; or with a
    count, where there is no Citus to ask, all shards as so many parts."""

    def __init__(self, *, is_citus: bool, count: int = 0) -> None:
        self.is_citus = is_citus
        self._count = 0 if is_citus else count
        self._parts: dict[int, int] = {}
        self.has_functions = False  # see `ON_NODES`

    @property
    def are_known(self) -> bool:
        """Or there is nobody to ask."""
        return bool(self._parts) or not self.is_citus

    def learn(self, parts: Mapping[int, int]) -> None:
        """By shard, any number that its part has alone, from 0."""
        self._parts = dict(parts)

    @property
    def may_be_wrong(self) -> bool:
        """Whether a statement that is sent now relies on them."""
        return bool(self._parts)

    def excuse(self, sqlstate: str | None, *, relied: bool) -> str:
        """Why an error that elsewhere is a mistake of ours will pass on Citus; empty: it is one.
        `relied`: whether parts were known when the statement was sent. If so, a refusal may mean
        that one was cut in two, and they are forgotten; others may be on their way just then."""
        if sqlstate == REFUSED and relied:
            self._parts = {}
            return "parts were cut anew"
        if sqlstate == NODE_LOST and self.is_citus:
            return "a node of the cluster did not do it"
        return ""

    def of(self, shard: int) -> int:
        if self._count:
            return shard % self._count
        return self._parts.get(shard, ~shard)


def only_these(shards: Iterable[int]) -> Only:
    """The last argument of a statement about shards of one part. Most often it is one shard, whose
    statements are the cheaper ones to plan."""
    unique = sorted(set(shards))
    return (unique[0],) if len(unique) == 1 else (PartShards(unique),)
