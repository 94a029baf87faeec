"""A real worker whose receivers misbehave in every way: it stays small, and others stay on time."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gnomon.app import App
from gnomon.contracts.store import Selection
from gnomon.model.action import Action, State
from gnomon.model.spec import Http, Mock, Periodic, Spec
from gnomon.scheduler import Request
from tests.fixtures.bombs import Bombs
from tests.fixtures.postgres import PostgresSchema
from tests.fixtures.processes import ChildProcess, Processes
from tests.fixtures.receiver import receiving

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.alone]

SECOND = timedelta(seconds=1)
MEMORY_BYTES_MAX = 256 * 1024 * 1024
BOMBS_PER_WAY = 10  # 150 in all, more than the 100 slots of their queue
SECONDS = 6  # for which others are planned
OTHERS_PER_SECOND = 20
LAST_ERRORS = {
    "hang": "timed out after 2 s",
    "slow-head": "timed out after 2 s",
    "redirect": "answered 307",
    "endless-continue": "answer too large",
    "endless-head": "answer too large",
    "huge": None,  # the status is known, and it is good
    "gzip": None,
    "drip": None,
}


def peak_bytes(process: ChildProcess) -> int:
    """The most memory it ever had."""
    text = Path(f"/proc/{process.process_id}/status").read_text()
    found = re.search(r"^VmHWM:\s+(\d+) kB$", text, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def bombing(bombs: Bombs) -> list[Request]:
    """Every way again and again, each call with some seconds to do its worst."""
    return [
        Request(
            id=f"{way}-{number}",
            spec=Spec(
                action=Http("POST", bombs.url(way), json={"n": number}), queue="bombs",
                policy=Periodic(SECOND), timeout=2 * SECOND,
            ),
        )
        for number in range(BOMBS_PER_WAY)
        for way in bombs.ways
    ]  # fmt: skip


def others(url: str, first: datetime) -> list[Request]:
    """Well-behaved calls and effects without any network, planned for whole seconds."""
    effects = (Http("POST", f"{url}/ok"), Mock())
    return [
        Request(
            id=f"other-{second}-{number}",
            spec=Spec(action=effects[number % 2], start_at=first + second * SECOND),
        )
        for second in range(SECONDS)
        for number in range(OTHERS_PER_SECOND)
    ]


async def listed(app: App, queue: str) -> Sequence[Action]:
    return (await app.scheduler.list(Selection(queue=queue), limit=1000)).actions


async def ended_others(app: App) -> Sequence[Action]:
    """All of them, once they are over."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        found = await listed(app, "default")
        if all(action.status.state.is_terminal for action in found):
            return found
        await asyncio.sleep(0.2)
    raise TimeoutError("the others did not end")


def lateness(action: Action) -> timedelta:
    """As the store has it."""
    attempt, planned = action.status.last_attempt, action.spec.start_at
    assert attempt is not None
    assert planned is not None
    return attempt.began_at - planned


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """A database, each engine in turn: URL and schema."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'gnomon.db'}", "gnomon"
    found: PostgresSchema = request.getfixturevalue("postgres_schema")
    return found.dsn, found.schema


async def test_bombs_cost_little_memory_and_nobody_elses_second(
    place: tuple[str, str], processes: Processes
) -> None:
    """Hanging, resetting, 100 MB, redirects to this machine, packed bombs, drips, heads and
    interim answers without end: under 256 MB, and what is planned for a second begins in it."""
    url, schema = place
    environ = {"GNOMON_HTTP_ALLOW_LOOPBACK": "true"}
    async with (
        Bombs().listening() as bombs,
        receiving() as good,
        App(url, schema=schema, migrate=True) as app,
    ):
        await app.schedule_many(bombing(bombs))
        worker = processes.start_gnomon(
            "worker", "--database", url, "--schema", schema, env=environ
        )
        await asyncio.to_thread(worker.wait_until, lambda: all_called(bombs), "every bomb")
        first = datetime.fromtimestamp(math.ceil(time.time()) + 1, UTC)
        await app.schedule_many(others(good.url, first))

        ended = await ended_others(app)

        assert SECONDS * OTHERS_PER_SECOND == len(ended)
        assert {State.DONE} == {action.status.state for action in ended}
        late = max(map(lateness, ended))
        peak = peak_bytes(worker)
        print(f"\n  {bombs.calls.total()} bombs; latest {late}; peak {peak / 2**20:.0f} MiB")
        assert SECOND > late
        assert timedelta(0) <= min(map(lateness, ended))
        assert MEMORY_BYTES_MAX > peak
        check_bombs(bombs, await listed(app, "bombs"))
        assert 0 == await asyncio.to_thread(worker.stop)


def all_called(bombs: Bombs) -> bool:
    return all(bombs.calls[way] for way in bombs.ways)


def check_bombs(bombs: Bombs, actions: Sequence[Action]) -> None:
    """All of them went on all the time, each attempt ended as it should, no redirect was taken."""
    assert 0 == bombs.calls["inner"]
    attempts: Counter[str] = Counter()
    for action in actions:
        attempts[action.meta.id.rpartition("-")[0]] += action.status.attempts
    assert all(attempts[way] > BOMBS_PER_WAY for way in bombs.ways), attempts
    errors: defaultdict[str, set[str | None]] = defaultdict(set)
    for action in actions:
        assert action.status.last_attempt is not None
        errors[action.meta.id.rpartition("-")[0]].add(action.status.last_attempt.error)
    # Among others: all share a host, so any call may be given a connection just reset by another.
    for way, error in LAST_ERRORS.items():
        assert error in errors[way], errors
