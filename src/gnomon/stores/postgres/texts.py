"""The statements as they are sent: for all shards, for one of them, or for several of one part."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from gnomon.queries import Query, in_schema, load
from gnomon.stores.postgres.parts import PartShards

_ONE_SHARD = re.compile(r"/\*one-shard: (.*?)\*/")
# Citus sends a statement to the one part that has all shards of an array. It looks through the cast
# to another kind of number; the planner of the node does not, and so reads no index once for each.
_ITS_SHARD = re.compile(r"shard_id = \$(\d+)$")
# What a statement has for the rows that came last, and for more rows than there is room for. Citus
# plans all of it each time, on two nodes; and counting what is begun is a tenth of a begin.
_NEWEST = re.compile(r"/\*newest\*/.*?/\*end\*/", re.DOTALL)
_CROWDED = re.compile(r"/\*crowded\*/.*?/\*end\*/", re.DOTALL)
OLDEST = "{}_oldest"  # the name of the same statement without the first
ROOMY = "{}_roomy"  # and without either


@functools.cache
def catalogue() -> Mapping[str, Query]:
    """All statements as they stand in the files, which are read once."""
    return load("gnomon.stores.postgres.queries")


class Texts(dict[str, str]):
    """The statements by name, as they are sent."""

    of_part: Mapping[str, str] = MappingProxyType({})  # the same for several shards of one part

    def text(self, name: str, args: Sequence[object]) -> str:
        """As the last argument asks for it."""
        if args and isinstance(args[-1], PartShards):
            return self.of_part[name]
        return self[name]


def texts_of(schema: str, *, many_shards: bool) -> Texts:
    """All statements for a schema."""
    texts = Texts(
        (name, prepared_text(query, schema, one_shard=not many_shards))
        for name, query in catalogue().items()
    )
    if many_shards:
        texts |= {
            ROOMY.format(name): prepared_text(
                without(roomy, _NEWEST) or roomy, schema, one_shard=False
            )
            for name, query in catalogue().items()
            if (roomy := without(query, _CROWDED)) is not None
        }
    else:
        local = {name: query for name, query in catalogue().items() if query.mark == "shard-local"}
        local |= {
            OLDEST.format(name): oldest
            for name, query in local.items()
            if (oldest := without(query, _NEWEST)) is not None
        }
        texts |= {
            name: prepared_text(query, schema, one_shard=True) for name, query in local.items()
        }
        texts.of_part = {
            name: prepared_text(query, schema, one_shard=True, one_part=True)
            for name, query in local.items()
        }
    return texts


def without(query: Query, marked: re.Pattern[str]) -> Query | None:
    """The same without what is so marked; None if nothing is."""
    text = marked.sub("", query.sql)
    return None if text == query.sql else query._replace(sql=text)


def prepared_text(query: Query, schema: str, *, one_shard: bool, one_part: bool = False) -> str:
    """The statement for a schema, with or without what keeps it in one shard, or in one part."""

    def kept(marked: re.Match[str]) -> str:
        condition = marked[1] if one_shard else ""
        its = _ITS_SHARD.search(condition)
        if not one_part or its is None or f"${its[1]}::int" in query.sql:
            return condition  # the last: it is about one shard, whatever part that is of
        return _ITS_SHARD.sub(r"shard_id = ANY ($\1::oid[])", condition)

    text = _ONE_SHARD.sub(kept, query.sql)
    name = in_schema("/*schema*/", schema).removesuffix(".")
    return in_schema(text.replace("/*schema_name*/", name), schema).removesuffix(";")
