"""Statements over TLS: the bound on what a server may say stands there, too."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvloop

from gnomon.clock import SystemClock
from gnomon.executors.sql import SqlExecutor, SqlTarget
from gnomon.model.outcome import Failed, Outcome, Succeeded
from gnomon.model.secret import Secret
from gnomon.model.spec import Sql
from tests.conformance.executor.suite import order_of
from tests.fixtures.postgres import PostgresMissing, PostgresServer

SECURE = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"


@pytest.fixture(scope="module")
def secure_dsn() -> Iterator[str]:
    """A server that speaks TLS, with a certificate of its own making."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl")
    try:
        server = PostgresServer()
    except PostgresMissing as exc:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(exc))
    with server:
        data = server.folder / "data"
        key, certificate = data / "server.key", data / "server.crt"
        options = [
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-subj",
            "/CN=localhost",
            "-days",
            "2",
        ]
        files = ["-keyout", str(key), "-out", str(certificate)]
        subprocess.run(["openssl", *options, *files], check=True, capture_output=True)
        for file in (key, certificate):
            shutil.chown(file, data.stat().st_uid, data.stat().st_gid)
            file.chmod(0o600)
        server.stop()
        server._settings["ssl"] = "on"
        server.start()
        yield server.dsn.replace("postgres@", "postgres:x@") + "?sslmode=require"


async def performed(dsn: str, statement: str) -> Outcome:
    executor = SqlExecutor({"a": SqlTarget(name="a", dsn=Secret(dsn))}, clock=SystemClock())
    outcome = await executor.execute(order_of(Sql(target="a", statement=statement), timeout_s=20.0))
    await executor.close()
    return outcome


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_statements_are_performed_and_bounded(
    secure_dsn: str, make_loop: Callable[[], Any]
) -> None:
    """On both event loops: an answer comes, a flood ends, a hanging statement is cancelled."""
    with asyncio.Runner(loop_factory=make_loop) as runner:
        found = runner.run(performed(secure_dsn, SECURE))
        assert Succeeded(answer='[{"ssl":true}]') == found
        flood = runner.run(performed(secure_dsn, "SELECT repeat('x', 100000000)"))
        assert Failed(error="the result is too large", retryable=False) == flood

        async def cancelled() -> None:
            async with asyncio.timeout(0.2):
                await performed(secure_dsn, "SELECT pg_sleep(100)")

        with pytest.raises(TimeoutError):
            runner.run(cancelled())
