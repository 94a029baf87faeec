"""Connections that need not ask for built-in types."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from gnomon.stores.postgres.known_types import ARRAYS, KnowingConnection
from tests.fixtures.postgres import PostgresSchema

COLUMNS = "SELECT $1::uuid[] AS a, $2::int4[] AS b, $3::timestamptz[] AS c, $4::text[] AS d"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[frozenset[int]]:
    """For what the server was asked."""
    asked: list[frozenset[int]] = []
    introspect = asyncpg.Connection._introspect_types  # type: ignore[attr-defined]

    async def counted(self: Any, typeoids: Any, timeout: Any) -> Any:
        asked.append(frozenset(typeoids))
        return await introspect(self, typeoids, timeout)

    monkeypatch.setattr(asyncpg.Connection, "_introspect_types", counted)
    return asked


async def fetched(dsn: str, query: str, *args: object, cached: int = 100) -> list[Any]:
    connection = await asyncpg.connect(
        dsn, connection_class=KnowingConnection, statement_cache_size=cached
    )
    try:
        row = await connection.fetchrow(query, *args)
        assert row is not None
        return list(row)
    finally:
        await connection.close()


@pytest.mark.parametrize("cached", [100, 0])
async def test_nobody_asks_for_built_in_types(
    postgres_schema: PostgresSchema, asked: list[frozenset[int]], cached: int
) -> None:
    """With prepared statements and without; values come through."""
    args: tuple[list[Any], ...] = ([uuid4()], [1, None], [], ["a"])
    assert list(args) == await fetched(postgres_schema.dsn, COLUMNS, *args, cached=cached)
    assert [] == asked


async def test_they_are_what_the_server_says_of_them(postgres_schema: PostgresSchema) -> None:
    """Name for name; and an empty one and one with a NULL come through."""
    connection = await asyncpg.connect(postgres_schema.dsn)
    rows = await connection.fetch(
        "SELECT a.oid::int, e.typname::text, e.oid::int AS element FROM pg_type AS a"
        " JOIN pg_type AS e ON e.oid = a.typelem"
        " WHERE a.oid::int = ANY ($1::int[]) AND a.typdelim = ','",
        list(ARRAYS),
    )
    await connection.close()
    assert dict(ARRAYS) == {row["oid"]: (row["typname"], row["element"]) for row in rows}
    for name, _ in ARRAYS.values():
        query = f"SELECT ARRAY[NULL]::{name}[] AS a, ARRAY[]::{name}[] AS b"
        assert [[None], []] == await fetched(postgres_schema.dsn, query)


async def test_types_of_a_user_are_asked_for_by_every_connection(
    postgres_schema: PostgresSchema, asked: list[frozenset[int]]
) -> None:
    """Their numbers mean something else in the next database; what is known is not asked again."""
    dsn, schema = postgres_schema
    connection = await asyncpg.connect(dsn)
    await connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
    await connection.execute(f"CREATE TYPE \"{schema}\".colour AS ENUM ('red', 'green')")
    await connection.close()
    for _ in range(2):
        query = f'SELECT ARRAY[$1::text]::"{schema}".colour[] AS c, ARRAY[1] AS d'
        assert [["red"], [1]] == await fetched(dsn, query, "red")
    assert [1, 1] == [len(types) for types in asked]
    assert not asked[0] & set(ARRAYS)
