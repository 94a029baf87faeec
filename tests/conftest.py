"""Fixtures for all tests live in `tests/fixtures`, one family per file."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

from tests.fixtures.authority import NOBODY

settings.register_profile("gnomon", deadline=None)  # a busy machine is no reason to fail
settings.load_profile("gnomon")

# Servers are started as their own users, hence by a real fork. What gRPC does at one, if a test has
# used it before, has ended a child before it became a server.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what it sends to the background so, and the programs that tests start and stop
    # with Ctrl-C would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = [
    "tests.fixtures.asyncpg_types",
    "tests.fixtures.postgres",
    "tests.fixtures.citus",
    "tests.fixtures.pgbouncer",
    "tests.fixtures.installed",
    "tests.fixtures.processes",
    "tests.fixtures.rabbitmq",
    "tests.fixtures.kafka",
    "tests.fixtures.task_databases",
    "tests.fixtures.task_tables",
    "tests.fixtures.browser",
]

HERE = Path(__file__).parent

# Whoever speaks TLS, and whoever imports aiohttp, reads all authorities of the machine: 60 ms each
# time, twice in every server that a test starts. No test speaks to anybody out there, but for pip.
os.environ.setdefault("SSL_CERT_FILE", str(NOBODY))

# The whole of a test that starts processes or lives through many worlds, on a machine that has much
# else to do. It is there for what hangs: the waits in a test are shorter.
TIMEOUTS_S = {"fault": 600, "acceptance": 600, "simulation": 600}
POSTGRES_FIXTURES = frozenset(
    {"postgres", "postgres_schema", "installed_schema", "durable_postgres", "syncing_postgres"}
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Set the marks that follow from a test's fixtures or folder: nobody has to remember them."""
    for item in items:
        if POSTGRES_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.postgres)
        if "citus" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.citus)
        if HERE / "fault" in item.path.parents:
            item.add_marker(pytest.mark.fault)
        if HERE / "acceptance" in item.path.parents:
            item.add_marker(pytest.mark.acceptance)
        folder = item.path.relative_to(HERE).parts[0]
        if folder in TIMEOUTS_S and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUTS_S[folder]))
