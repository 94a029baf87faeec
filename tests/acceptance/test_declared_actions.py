"""Recurring actions declared in code, with real workers: a new release, a roll-back."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest
import pytest_asyncio

import gnomon
from gnomon.contracts.store import AuditSelection
from gnomon.model.spec import Periodic
from tests.fixtures.processes import ChildProcess, Processes

WAIT_S = 40.0
RELEASE = """
import gnomon

app = gnomon.App("sqlite:///:memory:", program="shop")


@app.every("{period}", retry={retry})
async def ping(ctx: gnomon.Attempt) -> None: ...
"""
NIGHTLY = """

@app.cron("0 3 * * *", timezone="Europe/Berlin")
def nightly(ctx: gnomon.Attempt) -> None: ...
"""
OTHER = """
import gnomon

app = gnomon.App("sqlite:///:memory:")


@app.every("7h")
def mail(ctx: gnomon.Attempt) -> None: ...
"""


class Fleet(NamedTuple):
    """An open installation, how to start a worker of a release, and how to make time pass."""

    app: gnomon.App
    start: Callable[[str], ChildProcess]
    forget_the_living: Callable[[], None]

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not await holds():
                await asyncio.sleep(0.1)

    async def shows(self, name: str, **wanted: object) -> None:
        """Wait until an action is as wanted."""

        async def holds() -> bool:
            action = await self.app.store.actions.get(name)
            return action is not None and wanted == {
                key: {
                    "period": getattr(action.spec.policy, "period", None),
                    "retry": action.spec.retry.max,
                    "state": action.status.state.value,
                    "reason": action.status.reason,
                }[key]
                for key in wanted
            }

        await self.until(holds)

    async def audit(self, name: str) -> list[str]:
        entries = await self.app.store.tokens.list_audit(AuditSelection(), limit=100)
        return [entry.verb for entry in reversed(entries) if entry.id == name]


@pytest_asyncio.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def fleet(
    request: pytest.FixtureRequest, tmp_path: Path, processes: Processes
) -> AsyncIterator[Fleet]:
    url, schema = f"sqlite:///{tmp_path}/gnomon.db", "gnomon"
    if request.param == "postgres":
        url, schema = request.getfixturevalue("postgres_schema")
    first = RELEASE.format(period="6h", retry=1) + NIGHTLY
    (tmp_path / "first.py").write_text(first)
    (tmp_path / "second.py").write_text(RELEASE.format(period="6h", retry=2))
    (tmp_path / "other.py").write_text(OTHER)

    def start(module: str) -> ChildProcess:
        worker = processes.start_gnomon(
            "worker", "--database", url, "--schema", schema, "--import", f"{module}:app",
            env={"PYTHONPATH": str(tmp_path)},
        )  # fmt: skip
        worker.wait_for_line("working on")
        return worker

    def forget_the_living() -> None:
        """As if nobody had said for an hour that he declares the current set."""
        if request.param == "postgres":
            with psycopg.connect(url) as connection:
                connection.execute(
                    f"UPDATE {schema}.program SET seen_at = seen_at - interval '1 hour'"
                )
        else:
            with closing(sqlite3.connect(tmp_path / "gnomon.db")) as file, file:
                file.execute("UPDATE program SET seen_at = seen_at - 3600000000")

    async with gnomon.App(url, schema=schema, migrate=True) as app:
        yield Fleet(app, start, forget_the_living)
        processes.close()  # or their transactions would hold the schema


async def test_declared_actions_follow_a_deploy_and_a_roll_back(fleet: Fleet) -> None:
    """Several workers start at once, a new release comes, an old worker starts again, and the new
    release is taken back: nobody undoes what is right, and each change is made once."""
    old = [fleet.start("first") for _ in range(2)]
    fleet.start("other")
    await fleet.shows("ping", retry=1, state="active")
    await fleet.shows("nightly", state="active", reason=None)
    await fleet.shows("mail", state="active")
    assert ["declare"] == await fleet.audit("ping")

    new = fleet.start("second")
    gone = "the program shop does not declare it any more"
    await fleet.shows("nightly", state="paused", reason=gone)
    await fleet.shows("ping", retry=2)

    old[0].kill()
    fleet.start("first").wait_for_line("declarations_wait")
    await fleet.shows("ping", retry=2)
    await fleet.shows("nightly", state="paused")

    new.kill()
    fleet.forget_the_living()
    await fleet.shows("ping", retry=1)
    await fleet.shows("nightly", state="active", reason=None)
    assert ["declare"] * 3 == await fleet.audit("ping")
    assert ["declare", "remove_declared", "declare"] == await fleet.audit("nightly")
    assert ["declare"] == await fleet.audit("mail")


async def test_what_an_operator_changes_survives_a_restart(fleet: Fleet) -> None:
    """His pause and his own period stay, and counters go on."""
    first = fleet.start("first")
    await fleet.shows("ping", state="active")
    await fleet.shows("nightly", state="active")

    async def has_run() -> bool:
        return (await fleet.app.scheduler.get("ping")).status.succeeded == 1

    await fleet.until(has_run)
    first.kill()
    await fleet.app.scheduler.pause("nightly")
    ping = await fleet.app.scheduler.get("ping")
    await fleet.app.schedule(ping.spec.action, id="ping", every="9h", if_exists="replace")
    fleet.start("first")
    fleet.start("second")
    await fleet.shows("ping", retry=2)

    assert "paused" == (await fleet.app.scheduler.get("nightly")).status.state.value
    assert None is (await fleet.app.scheduler.get("nightly")).status.reason
    policy = (await fleet.app.scheduler.get("ping")).spec.policy
    assert isinstance(policy, Periodic)
    assert ["declare", "replace", "declare"] == await fleet.audit("ping")
