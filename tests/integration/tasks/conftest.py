from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest
from psycopg import sql

from tests.fixtures.postgres import SCHEMA_PREFIX, ExternalPostgres, PostgresServer
from tests.integration.tasks.stand import Stand


@pytest.fixture
def admin_dsn(postgres: PostgresServer | ExternalPostgres) -> str:
    """An administrator's, on a server where databases and users may be made."""
    if isinstance(postgres, ExternalPostgres):
        pytest.skip("needs a server on which databases and users may be made")
    return postgres.dsn


@pytest.fixture
def database(admin_dsn: str) -> Iterator[str]:
    """The name of a database that is not there yet."""
    name = f"{SCHEMA_PREFIX}{uuid.uuid4().hex[:16]}"
    yield name
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        dropping = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
        admin.execute(dropping.format(sql.Identifier(name)))


@pytest.fixture
async def stand(admin_dsn: str, database: str) -> AsyncIterator[Stand]:
    """A table whose tasks are performed by a user who is no superuser; both are made for it."""
    async with Stand(admin_dsn, database) as stand:
        yield stand
