"""Tasks that are sent elsewhere: by which policy, and what becomes of them when that fails."""

from __future__ import annotations

import asyncio
import time

import msgspec
import psycopg
import pytest
from psycopg import conninfo

from gnomon.model.task import GroupKey, RemoteRefused
from gnomon.model.task.conf import RemotePolicy, TaskEntry
from tests.conformance.tasks.driving import Driver
from tests.fixtures.postgres import free_port

PASSWORD = "very-secret-word"


async def refusal(driver: Driver, remote: str) -> str:
    with pytest.raises(RemoteRefused) as caught:
        await driver.table.open(GroupKey("group", remote))
    return str(caught.value)


def changed(driver: Driver, **parts: str) -> str:
    return conninfo.make_conninfo(driver.dsn, **parts)


# -- the original's words -------------------------------------------------------------------------


async def test_a_closed_port_is_worded_as_the_original_does(driver: Driver) -> None:
    expected = (
        "ERROR:  PQconnectPoll failed\nDETAIL:  Connection refused\n"
        "\t\tIs the server running on that host and accepting TCP/IP connections?"
    )
    assert expected == await refusal(driver, changed(driver, port=str(free_port())))


async def test_a_missing_socket_is_worded_as_the_original_does(driver: Driver) -> None:
    expected = (
        "ERROR:  PQstatus == CONNECTION_BAD\nDETAIL:  connection to server on socket "
        '"/nonexistent/.s.PGSQL.1" failed: No such file or directory\n'
        "\t\tIs the server running locally and accepting connections on that socket?"
    )
    assert expected == await refusal(driver, "host=/nonexistent port=1")


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"dbname": "nodb"}, 'FATAL:  database "nodb" does not exist'),
        ({"user": "norole"}, 'FATAL:  role "norole" does not exist'),
    ],
)
async def test_what_is_missing_there_is_in_its_servers_words(
    driver: Driver, parts: dict[str, str], expected: str
) -> None:
    found = await refusal(driver, changed(driver, **parts))
    assert f"ERROR:  PQconnectPoll failed\nDETAIL:  {expected}" == found


async def test_an_unknown_host_is_worded_as_the_original_does(driver: Driver) -> None:
    found = await refusal(driver, "host=no.such.host.invalid")
    assert found.startswith(
        "ERROR:  PQstatus == CONNECTION_BAD\nDETAIL:  could not translate host name "
        '"no.such.host.invalid" to address: '
    )


async def test_a_string_that_is_none_is_worded_as_the_original_does(driver: Driver) -> None:
    expected = (
        'ERROR:  PQconninfoParse failed\nDETAIL:  missing "=" after "application_name" in '
        "connection info string"
    )
    assert expected == await refusal(driver, "application_name")


async def test_a_refused_task_fails_without_a_start_and_is_repeated(driver: Driver) -> None:
    """TAKE becomes FAIL; `start` and `pid` stay empty; the chain goes on."""
    task_id = driver.insert("SELECT 1", remote="x", repeat="1 hour")
    lease = {"lease_guid": driver.lease_guid}
    assert [task_id] == await driver.table.mark_taken([task_id], **lease)
    await driver.table.refuse(task_id, "ERROR:  why", **lease)
    row = driver.row(task_id)
    assert row is not None
    assert ("FAIL", None, None, "", "ERROR:  why") == tuple(
        row[name] for name in ("state", "start", "pid", "output", "error")
    )
    assert 1 == driver.value("SELECT count(*) FROM task WHERE parent = %s", [task_id])


async def test_both_forms_of_a_connection_string_lead_there(driver: Driver) -> None:
    """And the task is seen there by its name, with its pid of there."""
    for remote in (driver.dsn, conninfo.make_conninfo(driver.dsn)):
        task_id = driver.insert("SELECT pg_backend_pid()", remote=remote)
        await driver.perform(task_id)
        row = driver.row(task_id)
        assert row is not None
        assert "DONE" == row["state"]
        assert str(row["pid"]) == row["output"]


async def test_a_server_that_ends_the_connection_fails_the_task(driver: Driver) -> None:
    """It is not performed again, and nobody else is touched by it."""
    task_id = driver.insert("SELECT pg_sleep(60)", remote=driver.dsn)
    session, task = await driver.take(task_id)
    performing = asyncio.create_task(session.perform(task))
    end = time.monotonic() + 20
    with psycopg.connect(driver.dsn, autocommit=True) as other:
        running = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND state = 'active'"
        while other.execute(running, [session.pid]).fetchone() != (1,):
            assert time.monotonic() < end
            await asyncio.sleep(0.01)
        other.execute("SELECT pg_terminate_backend(%s)", [session.pid])
    outcome = await performing
    assert (await session.finish(task, outcome, lease_guid=driver.lease_guid)).recorded
    row = driver.row(task_id)
    assert row is not None
    assert ("FAIL", "") == (row["state"], row["output"])
    expected = (
        "FATAL:  terminating connection due to administrator command\n"
        "STATEMENT:  SELECT pg_sleep(60)"
    )
    assert expected == row["error"]


async def test_a_dropped_connection_fails_the_task_in_the_originals_words(
    driver: Driver,
) -> None:
    """No farewell, only an end."""
    task_id = driver.insert("SELECT pg_sleep(60)")
    silent = await asyncio.start_server(Forwarding(driver.dsn).serve, "127.0.0.1", 0)
    host, port = silent.sockets[0].getsockname()
    remote = changed(driver, host=host, port=str(port), sslmode="disable")
    driver.user.execute("UPDATE task SET remote = %s", [remote])
    session, task = await driver.take(task_id)
    performing = asyncio.create_task(session.perform(task))
    end = time.monotonic() + 20
    while not driver.value(
        "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND query ~ 'pg_sleep'",
        [session.pid],
    ):
        assert time.monotonic() < end
        await asyncio.sleep(0.01)
    for writer in Forwarding.writers:
        writer.transport.abort()
    outcome = await performing
    silent.close()
    assert outcome.error is not None
    assert outcome.error.startswith("ERROR:  !PQconsumeInput\nDETAIL:  ")
    assert outcome.error.endswith("\nSTATEMENT:  SELECT pg_sleep(60)")
    assert (await session.finish(task, outcome, lease_guid=driver.lease_guid)).recorded


class Forwarding:
    """A way to the server that can be cut."""

    writers: list[asyncio.StreamWriter] = []  # noqa: RUF012 - of one test

    def __init__(self, dsn: str) -> None:
        parts = conninfo.conninfo_to_dict(dsn)
        self._host, self._port = str(parts["host"]), int(str(parts["port"]))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, to_there = await asyncio.open_connection(self._host, self._port)
        self.writers += [writer, to_there]
        await asyncio.gather(pump(reader, to_there), pump(there, writer), return_exceptions=True)


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()


# -- the policy -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "remote", "expected"),
    [
        ("off", "{dsn} password=" + PASSWORD, "ERROR:  remote is switched off for this table"),
        (
            "free", "host=127.0.0.1",
            "ERROR:  password is required\nDETAIL:  Non-superusers must provide a password in",
        ),
        ("free", "host=h passfile=/x password=" + PASSWORD, "\"passfile\" is not allowed"),
        ("free", "service=x password=" + PASSWORD, "\"service\" is not allowed"),
        (("127.0.0.1:1",), "{dsn} password=" + PASSWORD, "not on the list"),
        (("127.0.0.1:{port}/other",), "{dsn} password=" + PASSWORD, "not on the list"),
        (("127.0.0.1:{port}",), "{dsn} password=" + PASSWORD + " options=-csome", "not allowed"),
        (("127.0.0.1:{port}",), "host=/tmp dbname=x user=x password=" + PASSWORD, "not allowed"),
        (("127.0.0.1:{port}",), "{dsn}", "password is required"),
    ],
)  # fmt: skip
async def test_a_remote_that_is_not_allowed_is_refused(
    task_dsn: str, entry: TaskEntry, policy: RemotePolicy, remote: str, expected: str
) -> None:
    """Before anything is connected to; the password is not repeated."""
    parts = conninfo.conninfo_to_dict(task_dsn)
    filled = {"dsn": conninfo.make_conninfo(task_dsn), "port": parts["port"]}
    if isinstance(policy, tuple):
        policy = tuple(pattern.format(**filled) for pattern in policy)
    strict = msgspec.structs.replace(entry, remote=policy, superuser=False)
    table = Driver(task_dsn, strict)
    try:
        found = await refusal(table, remote.format(**filled))
        assert expected in found
        assert PASSWORD not in found
    finally:
        table.user.close()
        await table.table.close()


@pytest.mark.parametrize("pattern", ["127.0.0.1:{port}", "127.0.0.1:{port}/{dbname}"])
async def test_a_listed_remote_is_reached(task_dsn: str, entry: TaskEntry, pattern: str) -> None:
    """With its password, which is seen nowhere but in its column."""
    parts = conninfo.conninfo_to_dict(task_dsn)
    listed = msgspec.structs.replace(entry, remote=(pattern.format(**parts),))
    async with Driver(task_dsn, listed) as driver:
        row = await driver.performed(
            "SELECT current_setting('application_name')",
            remote=conninfo.make_conninfo(task_dsn, password=PASSWORD),
        )
        assert row is not None
        assert ("DONE", "pg_task public task group") == (row["state"], row["output"])
        assert 0 == driver.value(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name ~ %s", [PASSWORD]
        )
