"""A database of its own for pages that act on all of one."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import conninfo, sql

from tests.fixtures.postgres import SCHEMA_PREFIX, ExternalPostgres, PostgresServer


@pytest.fixture
def own_database(postgres: PostgresServer | ExternalPostgres) -> Iterator[dict[str, str]]:
    """`host`, `port`, `dbname`, `user` (its owner), `dsn`, and `admin`, which may do everything;
    it is gone afterwards."""
    if isinstance(postgres, ExternalPostgres):
        pytest.skip("needs a server on which databases may be made")
    name = f"{SCHEMA_PREFIX}{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres.dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(name)))
        admin.execute(sql.SQL("CREATE DATABASE {0} OWNER {0}").format(sql.Identifier(name)))
        parts = conninfo.conninfo_to_dict(postgres.dsn)
        place = f"{parts['host']}:{parts['port']}/{name}"
        yield {
            "host": str(parts["host"]),
            "port": str(parts["port"]),
            "dbname": name,
            "user": name,
            "dsn": f"postgresql://{name}@{place}",
            "admin": f"postgresql://{parts['user']}@{place}",
        }
        dropping = sql.SQL("DROP DATABASE {} WITH (FORCE)")
        admin.execute(dropping.format(sql.Identifier(name)))
        for role in (name, f"{name}_reports", f"{name}_ware"):
            admin.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(role)))
