"""The schema that tests share one after the other: each finds it as `migrate` leaves it."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from gnomon.app import App
from gnomon.model.spec import Mock
from tests.fixtures.installed import INSTALLED_SHARD_COUNT, InstalledSchema
from tests.fixtures.postgres import ExternalPostgres, PostgresServer


@pytest.fixture
def installed(postgres: PostgresServer | ExternalPostgres) -> Iterator[InstalledSchema]:
    found = InstalledSchema(postgres.dsn)
    found.ready()
    yield found
    found.close()


def execute(installed: InstalledSchema, text: str) -> list[tuple[object, ...]]:
    with psycopg.connect(installed.dsn, autocommit=True) as user:
        cursor = user.execute(sql.SQL(text).format(sql.Identifier(installed.schema)))
        return cursor.fetchall() if cursor.description else []


async def test_rows_are_taken_out_and_the_installation_stays(installed: InstalledSchema) -> None:
    """The same schema, with its locks and its identity, and nothing of what was written."""
    dsn, schema = installed.ready()
    async with App(dsn, schema=schema, migrate=True) as app:
        await app.schedule(Mock(), id="left-behind")
    execute(installed, "UPDATE {}.installation SET timeline = 99")
    execute(installed, "UPDATE {}.shard_lock SET owner = 'somebody'")
    installed.empty()

    assert (dsn, schema) == installed.ready()
    async with App(dsn, schema=schema, migrate=True) as app:
        assert {} == {state: n for state, n in (await app.store.actions.count()).items() if n}
        assert None is await app.store.installation.verify_identity()
        assert [None] * INSTALLED_SHARD_COUNT == [
            lock.owner for lock in await app.store.leases.list_locks()
        ]


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE {}.audit RENAME TO away",
        "ALTER TABLE {}.audit ADD COLUMN more text",
        "ALTER TABLE {}.audit ALTER COLUMN actor DROP NOT NULL",
        "ALTER TABLE {}.audit ADD CHECK (true)",
        "CREATE INDEX ON {}.audit (actor)",
        "CREATE TABLE {}.beside ()",
        "GRANT SELECT ON {}.audit TO PUBLIC",
        "GRANT USAGE ON SCHEMA {} TO PUBLIC",
        "CREATE FUNCTION {}.beside() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "DROP VIEW {}.tasks CASCADE",
        "DROP SCHEMA {} CASCADE",
    ],
)
def test_a_schema_that_was_changed_is_not_used_again(
    installed: InstalledSchema, change: str
) -> None:
    """Whatever a test did to more than rows, the next one does not see it."""
    _, before = installed.ready()
    execute(installed, change)
    installed.empty()

    assert before != installed.ready().schema
    assert [(INSTALLED_SHARD_COUNT,)] == execute(installed, "SELECT count(*) FROM {}.shard_lock")
    assert [(None,)] == execute(installed, f"SELECT to_regnamespace('{before}')::text")


def test_an_open_transaction_is_noticed(installed: InstalledSchema) -> None:
    """Who leaves one behind fails, and the next test gets another schema."""
    _, before = installed.ready()
    installed._connection.execute("SET lock_timeout = '100ms'")
    with psycopg.connect(installed.dsn) as leak:
        leak.execute(sql.SQL("SELECT FROM {}.audit").format(sql.Identifier(before)))
        with pytest.raises(psycopg.errors.LockNotAvailable):
            installed.empty()
    assert before != installed.ready().schema
