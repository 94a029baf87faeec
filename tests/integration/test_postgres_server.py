"""The PostgreSQL fixture itself: who it is, what survives, how tests are kept apart."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import asyncpg
import psycopg
import pytest
from psycopg import sql

from tests.fixtures.postgres import (
    ExternalPostgres,
    PostgresSchema,
    PostgresServer,
    StopMode,
    drop_schema,
)
from tests.fixtures.processes import Processes


def owner_of(process_id: int) -> int:
    return Path(f"/proc/{process_id}").stat().st_uid


def test_server_is_not_root(durable_postgres: PostgresServer) -> None:
    """PostgreSQL runs as an unprivileged user, whoever runs the tests."""
    assert 0 != owner_of(durable_postgres.process_id)


def test_tcp_and_socket_reach_the_same_server(durable_postgres: PostgresServer) -> None:
    """Both addresses work, and both are the private server."""
    with (
        psycopg.connect(durable_postgres.dsn) as by_tcp,
        psycopg.connect(durable_postgres.socket_dsn) as by_socket,
    ):
        query = "SELECT current_setting('data_directory'), current_setting('max_connections')"
        expected = (str(durable_postgres.folder / "data"), "200")
        assert expected == by_tcp.execute(query).fetchone()
        assert expected == by_socket.execute(query).fetchone()


def test_durable_server_syncs(durable_postgres: PostgresServer) -> None:
    """A server for fault tests and benchmarks has PostgreSQL's own durability."""
    with psycopg.connect(durable_postgres.dsn) as connection:
        for name in ("fsync", "full_page_writes", "synchronous_commit"):
            assert ("on",) == connection.execute(
                "SELECT current_setting(%s)", (name,)
            ).fetchone(), name


def test_restart_keeps_what_was_committed(durable_postgres: PostgresServer) -> None:
    """After a crash the committed rows are there, no others, and the address is the same."""
    dsn = durable_postgres.dsn
    modes: tuple[StopMode, ...] = ("immediate", "kill", "fast")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE note (mode text)")
    for mode in modes:
        open_transaction = psycopg.connect(dsn)
        open_transaction.execute("INSERT INTO note VALUES ('never committed')")
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("INSERT INTO note VALUES (%s)", (mode,))

        durable_postgres.restart(mode)

        with pytest.raises(psycopg.OperationalError):
            open_transaction.execute("SELECT 1")
        open_transaction.close()

    assert dsn == durable_postgres.dsn
    with psycopg.connect(dsn) as connection:
        rows = connection.execute("SELECT mode FROM note").fetchall()
    assert list(modes) == [mode for (mode,) in rows]


def test_every_server_begins_as_a_new_one(durable_postgres: PostgresServer) -> None:
    """They are copies of one new cluster: what is written to a copy is in no other."""
    with psycopg.connect(durable_postgres.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE note (mode text)")
    durable_postgres.stop()
    with PostgresServer() as another, psycopg.connect(another.dsn) as connection:
        assert (None,) == connection.execute("SELECT to_regclass('note')").fetchone()


@pytest.mark.parametrize("_round", [1, 2])
async def test_schemas_are_apart(postgres_schema: PostgresSchema, _round: int) -> None:
    """Each test gets a name that nobody uses, and the same table name twice does not collide."""
    dsn, schema = postgres_schema
    connection = await asyncpg.connect(dsn)
    try:
        exists = "SELECT count(*) FROM pg_namespace WHERE nspname = $1"
        assert 0 == await connection.fetchval(exists, schema)
        await connection.execute(f'CREATE SCHEMA "{schema}"')
        await connection.execute(f'CREATE TABLE "{schema}".action (id text PRIMARY KEY)')
        await connection.execute(f'INSERT INTO "{schema}".action VALUES ($1)', "a")
        assert 1 == await connection.fetchval(f'SELECT count(*) FROM "{schema}".action')
    finally:
        await connection.close()


def test_schema_is_dropped_afterwards(postgres: PostgresServer | ExternalPostgres) -> None:
    """Nothing of a test is left in the shared server."""
    name = "gnomon_test_dropped"
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name)))
        drop_schema(postgres.dsn, name)
        drop_schema(postgres.dsn, name)
        query = "SELECT count(*) FROM pg_namespace WHERE nspname = %s"
        assert (0,) == connection.execute(query, (name,)).fetchone()


def test_killed_test_process_leaves_no_server(processes: Processes) -> None:
    """When the process that started a server is killed, server and folder go too."""
    child = processes.start_python(
        "-c",
        "import time; from tests.fixtures.postgres import PostgresServer\n"
        "server = PostgresServer(); server.start()\n"
        "print(f'up {server.process_id} {server.folder}'); time.sleep(600)",
    )
    told = child.wait_for_line(r"^up (\d+) (\S+)$", timeout_s=40)
    process_id, folder = int(told[1]), Path(told[2])
    assert folder.exists()

    child.kill()

    end = time.monotonic() + 15
    while folder.exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert not folder.exists()
    assert not is_alive(process_id)


def is_alive(process_id: int) -> bool:
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"  # reaping an orphan is up to the machine's first process


def test_child_process_is_watched_and_reaped(processes: Processes) -> None:
    """Log lines are waited for, signals arrive, and the exit code tells which one."""
    child = processes.start_python("-c", "import time; print('ready 7'); time.sleep(600)")
    assert "7" == child.wait_for_line(r"ready (\d+)")[1]
    child.send(signal.SIGTERM)
    assert -signal.SIGTERM == child.wait()
    assert not child.is_running

    other = processes.start_python("-c", "import time; time.sleep(600)")
    assert -signal.SIGKILL == other.kill()
    with pytest.raises(AssertionError, match="before"):
        other.wait_for_line("never")


def test_waiting_is_bounded(processes: Processes) -> None:
    """A wait that fails says so in time and shows the log."""
    child = processes.start_python("-c", "import time; print('quiet'); time.sleep(600)")
    child.wait_for_line("quiet")
    with pytest.raises(TimeoutError, match="quiet"):
        child.wait_for_line("never", timeout_s=0.1)
    assert child.process_id != os.getpid()
