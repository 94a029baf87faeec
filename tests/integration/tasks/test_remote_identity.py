"""Remote tasks come by their own password: with servers that would let this machine in without."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import conninfo

from gnomon.model.task import GroupKey, RemoteRefused
from gnomon.model.task.conf import RemotePolicy, TaskEntry
from tests.conformance.tasks.driving import Driver
from tests.fixtures.postgres import PostgresMissing, PostgresServer

PASSWORD = "very-secret-word"
ROLES = ("trusted", "scrammed", "cleartext", "certified")
HBA = """
local all all trust
host all postgres 127.0.0.1/32 trust
host all trusted 127.0.0.1/32 trust
host all scrammed 127.0.0.1/32 scram-sha-256
host all cleartext 127.0.0.1/32 password
hostssl all certified 127.0.0.1/32 cert
"""
NOT_ASKED = (
    "ERROR:  password is required\n"
    "DETAIL:  Non-superuser cannot connect if the server does not request a password.\n"
    "HINT:  Target server's authentication method must be changed."
)


class Guarded:
    """A server with a way in of each kind, and the certificate that one of them asks for."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        data = server.folder / "data"
        self.key, self.certificate = server.folder / "client.key", server.folder / "client.crt"
        _made(data / "server.key", data / "server.crt", "localhost")
        _made(self.key, self.certificate, "certified")
        shutil.copy(self.certificate, data / "root.crt")  # it vouches for itself
        (data / "pg_hba.conf").write_text(HBA)
        for file in data.glob("*.[ck][re][ty]"):
            shutil.chown(file, data.stat().st_uid, data.stat().st_gid)
            file.chmod(0o600)
        with psycopg.connect(server.dsn, autocommit=True) as admin:
            for role in ROLES:
                admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'".encode())
        server.stop()
        server._settings.update({"ssl": "on", "ssl_ca_file": "root.crt"})
        server.start()

    def remote(self, user: str, **parts: str) -> str:
        return conninfo.make_conninfo(self.server.dsn, user=user, password=PASSWORD, **parts)

    def driver(self, policy: RemotePolicy, *, superuser: bool = False) -> Driver:
        entry = TaskEntry(data="postgres", user="postgres", superuser=superuser, remote=policy)
        return Driver(self.server.dsn, entry)


def _made(key: Path, certificate: Path, name: str) -> None:
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", f"/CN={name}", "-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    key.chmod(0o600)


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl")
    try:
        server = PostgresServer()
    except PostgresMissing as exc:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(exc))
    with server:
        yield Guarded(server)


async def opened(driver: Driver, remote: str) -> str:
    """As whom the server sees us; or why not."""
    try:
        session = await driver.table.open(GroupKey("group", remote))
    except RemoteRefused as exc:
        return str(exc)
    else:
        found = driver.value("SELECT usename FROM pg_stat_activity WHERE pid = %s", [session.pid])
        await session.close()
        return str(found)
    finally:
        driver.user.close()
        await driver.table.close()


@pytest.fixture(params=["free", "listed"])
def policy(request: pytest.FixtureRequest, guarded: Guarded) -> RemotePolicy:
    return "free" if request.param == "free" else (f"127.0.0.1:{guarded.server.port}",)


@pytest.mark.parametrize("user", ["scrammed", "cleartext"])
async def test_a_password_that_was_asked_for_leads_in(
    guarded: Guarded, policy: RemotePolicy, user: str
) -> None:
    assert user == await opened(guarded.driver(policy), guarded.remote(user))


@pytest.mark.parametrize("user", ["trusted", "postgres"])
async def test_a_server_that_trusts_this_machine_is_refused(
    guarded: Guarded, policy: RemotePolicy, user: str
) -> None:
    """Any password would do there, and any user: also its superuser."""
    assert NOT_ASKED == await opened(guarded.driver(policy), guarded.remote(user))


async def test_the_certificate_of_this_process_is_not_shown(
    guarded: Guarded, policy: RemotePolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment names one, and the server would take it."""
    monkeypatch.setenv("PGSSLCERT", str(guarded.certificate))
    monkeypatch.setenv("PGSSLKEY", str(guarded.key))
    remote = guarded.remote("certified", sslmode="require")
    with psycopg.connect(remote) as direct:  # so it would
        assert "certified" == direct.info.user
    found = await opened(guarded.driver(policy), remote)
    assert found.startswith(("ERROR:  PQconnectPoll failed", "ERROR:  password is required"))


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"host": "/tmp"}, "must name a host"),
        ({"host": ""}, "must name a host"),
        ({"host": "@gnomon"}, "must name a host"),
        ({"gssencmode": "prefer"}, '"gssencmode" is not allowed'),
        ({"require_auth": "none"}, '"require_auth" is not allowed'),
        ({"sslcertmode": "allow"}, '"sslcertmode" is not allowed'),
        ({"sslcert": "/x"}, '"sslcert" is not allowed'),
    ],
)
async def test_ways_of_this_process_are_closed_where_any_server_is_allowed(
    guarded: Guarded, parts: dict[str, str], expected: str
) -> None:
    driver = guarded.driver("free")
    text = " ".join(
        f"{name}='{value}'"
        for name, value in {
            "host": "127.0.0.1", "port": str(guarded.server.port), "user": "scrammed",
            "password": PASSWORD, **parts,
        }.items()
    )  # fmt: skip
    assert expected in await opened(driver, text)


async def test_a_table_of_a_superuser_connects_as_it_likes(guarded: Guarded) -> None:
    """As with pg_task."""
    driver = guarded.driver("free", superuser=True)
    assert "trusted" == await opened(driver, guarded.remote("trusted"))
