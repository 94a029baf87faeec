"""What asyncpg need not ask the server for: the arrays of built-in types.

It looks up each array type that it meets, once for each connection, by a query over the catalogue
that takes 10 ms under the planner settings of our pools: longer than all that a worker does first.
PostgreSQL gives the numbers of built-in types by hand and never changes them. Should asyncpg call
this method by another name one day, it asks again; nothing else changes.
"""

from __future__ import annotations

from collections.abc import Collection
from types import MappingProxyType, SimpleNamespace
from typing import Any

import asyncpg

# An array's number: its element's name and number.
ARRAYS = MappingProxyType(
    {
        199: ("json", 114),
        1000: ("bool", 16),
        1001: ("bytea", 17),
        1003: ("name", 19),
        1005: ("int2", 21),
        1007: ("int4", 23),
        1009: ("text", 25),
        1010: ("tid", 27),
        1015: ("varchar", 1043),
        1016: ("int8", 20),
        1021: ("float4", 700),
        1022: ("float8", 701),
        1028: ("oid", 26),
        1115: ("timestamp", 1114),
        1182: ("date", 1082),
        1185: ("timestamptz", 1184),
        1187: ("interval", 1186),
        1231: ("numeric", 1700),
        2951: ("uuid", 2950),
        3807: ("jsonb", 3802),
    }
)
_NAMED = SimpleNamespace(name="known")  # in place of the query's statement: none was disturbed


class KnowingConnection(asyncpg.Connection):
    """A connection that asks for a user's own types only."""

    async def _introspect_types(
        self,
        typeoids: Collection[int],
        timeout: float | None,  # noqa: ASYNC109
    ) -> Any:
        known = [_array(oid) for oid in typeoids if oid in ARRAYS]
        unknown = [oid for oid in typeoids if oid not in ARRAYS]
        if not unknown:
            return known, _NAMED
        introspected, asked_by = await super()._introspect_types(unknown, timeout)  # type: ignore[misc]
        return [*known, *introspected], asked_by


def _array(oid: int) -> dict[str, Any]:
    """What asyncpg reads of the server's answer for an array."""
    name, element = ARRAYS[oid]
    return {
        "oid": oid,
        "ns": "pg_catalog",
        "name": f"_{name}",
        "kind": b"b",
        "basetype": None,
        "elemtype": element,
        "elemdelim": b",",
        "range_subtype": None,
        "attrtypoids": None,
        "elemtype_name": name,
    }
