"""Stages for fault tests, one per engine."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fault.stage import Stage
from tests.fixtures.citus import CITUS_VARIABLE
from tests.fixtures.postgres import (
    ExternalPostgres,
    PostgresMissing,
    PostgresServer,
    drop_schema,
)
from tests.fixtures.processes import Processes


@pytest.fixture(scope="session")
def syncing_postgres() -> Iterator[PostgresServer | ExternalPostgres]:
    """A server that really syncs, shared by the tests that leave it alone; or somebody's Citus."""
    if dsn := os.environ.get(CITUS_VARIABLE):
        yield ExternalPostgres(dsn)
        return
    try:
        server = PostgresServer(durable=True)
    except PostgresMissing as exc:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(exc))
    with server:
        yield server


@pytest.fixture
def sqlite_stage(tmp_path: Path, processes: Processes) -> Stage:
    url = f"sqlite:///{tmp_path / 'gnomon.db'}"
    return Stage(url, "gnomon", folder=tmp_path, processes=processes)


@pytest.fixture
def postgres_stage(
    syncing_postgres: PostgresServer | ExternalPostgres, tmp_path: Path, processes: Processes
) -> Iterator[Stage]:
    schema = f"fault_{uuid.uuid4().hex[:12]}"
    yield Stage(syncing_postgres.dsn, schema, folder=tmp_path, processes=processes)
    processes.close()  # or their transactions would hold the schema
    drop_schema(syncing_postgres.dsn, schema)


@pytest.fixture(
    params=[
        pytest.param("sqlite_stage", id="sqlite"),
        pytest.param("postgres_stage", id="postgres", marks=pytest.mark.postgres),
    ]
)
def stage(request: pytest.FixtureRequest) -> Stage:
    """Each engine in turn."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Stage)
    return found
