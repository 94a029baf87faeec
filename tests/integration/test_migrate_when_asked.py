"""A program that merely opens a PostgreSQL database never changes its schema."""

from __future__ import annotations

from pathlib import Path

import asyncpg
import pytest

import gnomon
from gnomon.model.errors import SchemaMismatch
from tests.fixtures.postgres import PostgresSchema
from tests.fixtures.processes import Processes

NAMES_THE_COMMAND = "run `gnomon migrate`"


async def tables_of(place: PostgresSchema) -> int:
    connection = await asyncpg.connect(place.dsn)
    try:
        count = "SELECT count(*) FROM pg_tables WHERE schemaname = $1"
        found: int = await connection.fetchval(count, place.schema)
    finally:
        await connection.close()
    return found


async def test_a_missing_schema_is_an_error(postgres_schema: PostgresSchema) -> None:
    """Which names the command, and leaves nothing behind."""
    app = gnomon.App(postgres_schema.dsn, schema=postgres_schema.schema)
    with pytest.raises(SchemaMismatch, match=f"there is no schema.*{NAMES_THE_COMMAND}"):
        await app.open()
    assert not app.is_open
    assert 0 == await tables_of(postgres_schema)


@pytest.mark.parametrize("place", ["app", "open"])
async def test_it_is_made_when_asked_for(place: str, postgres_schema: PostgresSchema) -> None:
    """Where the app is made, or where it is opened; from then on nobody needs to ask."""
    dsn, schema = postgres_schema
    app = gnomon.App(dsn, schema=schema, migrate=True if place == "app" else None)
    await app.open(migrate=True if place == "open" else None)
    await app.close()
    async with gnomon.App(dsn, schema=schema) as other:
        assert other.installation.schema_version > 0


async def test_an_outdated_schema_is_an_error(postgres_schema: PostgresSchema) -> None:
    """As it is in a rolling deploy that forgot its first step."""
    dsn, schema = postgres_schema
    async with gnomon.App(dsn, schema=schema, migrate=True):
        pass
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(f"UPDATE {schema}.installation SET schema_version = 1")
    finally:
        await connection.close()
    with pytest.raises(SchemaMismatch, match=f"is at 1.*{NAMES_THE_COMMAND}"):
        await gnomon.App(dsn, schema=schema).open()


def test_the_blocking_app_does_not_either(postgres_schema: PostgresSchema) -> None:
    app = gnomon.App(postgres_schema.dsn, schema=postgres_schema.schema)
    with pytest.raises(SchemaMismatch, match=NAMES_THE_COMMAND):
        app.blocking.open()


def test_a_server_does_not_either(postgres_schema: PostgresSchema, processes: Processes) -> None:
    """It ends with a sentence; a worker, and `gnomon up`, bring the schema in step themselves."""
    where = ("--database", postgres_schema.dsn, "--schema", postgres_schema.schema)
    server = processes.start_gnomon("server", *where, "--port", "0")
    assert 10 == server.wait()
    assert NAMES_THE_COMMAND in server.log
    worker = processes.start_gnomon("worker", *where)
    worker.wait_for_line("working on")
    assert 0 == worker.stop()


async def test_a_file_installs_itself(tmp_path: Path) -> None:
    """Embedded means that there is nobody else to do it; unless that is not wanted."""
    url = f"sqlite:///{tmp_path}/gnomon.db"
    with pytest.raises(SchemaMismatch):
        await gnomon.App(url, migrate=False).open()
    async with gnomon.App(url) as app:
        assert app.installation.schema_version > 0
