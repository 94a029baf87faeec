"""The migrations add up to what schema.sql shows readers."""

from __future__ import annotations

import psycopg
import pytest

from tests.fixtures.postgres import PostgresServer
from tests.migration.dumps import STORES, postgres_schema, sqlite_schema

SHOWN_BY = 15  # the version of Debian 12


async def test_the_sqlite_schema_is_what_its_migrations_make() -> None:
    """`make schema` was not forgotten."""
    assert (STORES / "sqlite" / "schema.sql").read_text() == await sqlite_schema()


async def test_the_postgres_schema_is_what_its_migrations_make(postgres: object) -> None:
    """`make schema` was not forgotten."""
    if not isinstance(postgres, PostgresServer):
        pytest.skip("the given server is not ours: its schema `gnomon` is not touched")
    with psycopg.connect(postgres.dsn) as connection:
        if connection.info.server_version // 10_000 != SHOWN_BY:
            pytest.skip(f"schema.sql is as PostgreSQL {SHOWN_BY} shows it; others do it otherwise")
    assert (STORES / "postgres" / "schema.sql").read_text() == await postgres_schema(postgres.dsn)


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_migrations_are_numbered_without_gaps_and_say_how_the_release_before_copes(
    engine: str,
) -> None:
    """0001, 0002, …: each with a head that says what changes."""
    files = sorted((STORES / engine / "migrations").glob("*.sql"))
    assert [f"{number:04}" for number in range(1, len(files) + 1)] == [
        file.name[:4] for file in files
    ]
    for file in files:
        assert "revious release" in file.read_text().split("CREATE")[0], file.name
