"""Real parameters for every statement, and EXPLAIN for it as the engine prepares it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg

from gnomon.queries import Query
from gnomon.stores.postgres.pools import NARROW_SETTINGS
from gnomon.stores.postgres.texts import catalogue, prepared_text

SHARD = 3
GUID = UUID(int=7)
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
STATEMENTS: Mapping[str, Query] = catalogue()
LOCAL = tuple(sorted(name for name, query in STATEMENTS.items() if query.mark == "shard-local"))

_PARAMETER = re.compile(r"\$(\d+)::(\w+)(\[\])?")
_VALUES: Mapping[str, Any] = {
    "int": SHARD,
    "smallint": 5,
    "bigint": 9,
    "float8": 0.5,
    "text": "one",
    "uuid": GUID,
    "timestamptz": MOMENT,
    "interval": timedelta(seconds=5),
    "boolean": False,
    "bytea": b"\x01",
    "tid": (0, 1),
    "oid": SHARD,
}
_ANY_PARAMETER = re.compile(r"\$(\d+)")


def parameters_of(name: str, text: str) -> tuple[list[str], list[Any]]:
    """Types and values of a statement's parameters; every int is the shard, and so a limit of 3."""
    kinds: dict[int, tuple[str, bool]] = {}
    for number, kind, array in _PARAMETER.findall(text):
        kinds.setdefault(int(number), (kind, bool(array)))
    for number in _ANY_PARAMETER.findall(text):
        kinds.setdefault(int(number), ("int", False))  # the shard behind `one-shard:` has no cast
    assert sorted(kinds) == list(range(1, len(kinds) + 1)), f"{name}: a parameter is not used"
    ordered = [kinds[number] for number in sorted(kinds)]
    types = [kind + ("[]" if array else "") for kind, array in ordered]
    values = [[_VALUES[kind]] if array else _VALUES[kind] for kind, array in ordered]
    return types, values


async def explain(
    connection: asyncpg.Connection[Any],
    query: Query,
    schema: str,
    *,
    one_shard: bool,
    values: Sequence[Any] | None = None,
) -> str:
    """The plan as text, for these or for made-up values."""
    text = re.sub(r"--[^\n]*", "", prepared_text(query, schema, one_shard=one_shard))
    types, made_up = parameters_of(query.name, text)
    head = f"PREPARE planned ({', '.join(types)}) AS " if types else "PREPARE planned AS "
    await connection.execute(head + text)
    given = ", ".join(
        f"{literal(value)}::{kind}"
        for value, kind in zip(made_up if values is None else values, types, strict=True)
    )
    rows = await connection.fetch(
        "EXPLAIN (COSTS off) EXECUTE planned" + (f" ({given})" if types else "")
    )
    await connection.execute("DEALLOCATE planned")
    return "\n".join(row[0] for row in rows)


def literal(value: Any) -> str:
    match value:
        case list():
            return "ARRAY[" + ", ".join(map(literal, value)) + "]"
        case None:
            return "NULL"
        case bool() | int():
            return str(value)
        case bytes():
            return f"'\\x{value.hex()}'"
        case timedelta():
            return f"'{value.total_seconds()} seconds'"
        case _:
            return f"'{value}'"


async def connect(dsn: str, *, generic: bool) -> asyncpg.Connection[Any]:
    """A connection with the settings of the engine; with custom plans, parameters are seen."""
    settings = dict(NARROW_SETTINGS)
    if not generic:
        settings["plan_cache_mode"] = "force_custom_plan"
    connection: asyncpg.Connection[Any] = await asyncpg.connect(dsn, server_settings=settings)
    return connection
