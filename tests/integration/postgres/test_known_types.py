"""Connections that need not ask for built-in types."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from gnomon.stores.postgres import known_types
from gnomon.stores.postgres.known_types import KnowingConnection
from tests.fixtures.postgres import PostgresSchema

ARRAYS = "SELECT $1::uuid[] AS a, $2::int4[] AS b, $3::timestamptz[] AS c, $4::text[] AS d"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[frozenset[int]]:
    """For what the server was asked, from now on, by a process that knows nothing yet."""
    asked: list[frozenset[int]] = []
    introspect = asyncpg.Connection._introspect_types  # type: ignore[attr-defined]

    async def counted(self: Any, typeoids: Any, timeout: Any) -> Any:
        asked.append(frozenset(typeoids))
        return await introspect(self, typeoids, timeout)

    monkeypatch.setattr(asyncpg.Connection, "_introspect_types", counted)
    monkeypatch.setattr(known_types, "_known", {})
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
async def test_built_in_types_are_asked_for_once(
    postgres_schema: PostgresSchema, asked: list[frozenset[int]], cached: int
) -> None:
    """By all connections together, with prepared statements and without; values come through."""
    args: tuple[list[Any], ...] = ([uuid4()], [1, None], [], ["a"])
    for _ in range(3):
        assert list(args) == await fetched(postgres_schema.dsn, ARRAYS, *args, cached=cached)
    assert 1 == len(asked)


async def test_types_of_a_user_are_asked_for_by_every_connection(
    postgres_schema: PostgresSchema, asked: list[frozenset[int]]
) -> None:
    """Their numbers mean something else in the next database."""
    dsn, schema = postgres_schema
    connection = await asyncpg.connect(dsn)
    await connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
    await connection.execute(f"CREATE TYPE \"{schema}\".colour AS ENUM ('red', 'green')")
    await connection.close()
    for _ in range(2):
        query = f'SELECT ARRAY[$1::text]::"{schema}".colour[] AS c'
        assert [["red"]] == await fetched(dsn, query, "red")
    assert 2 == len(asked)
    assert {} == known_types._known
