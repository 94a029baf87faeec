"""Gnomon as the bench uses it: by the app's own verbs, and by the store's for what needs leases."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import msgspec

from benchmarks.processes import Crew, Program, crew_of
from benchmarks.profiling import StoreProfile, profile_table, statement_table
from benchmarks.stand import Stand
from gnomon.app import App
from gnomon.contracts.store import HeldShard, LeaseRequest, Selection
from gnomon.model.action import State
from gnomon.model.spec import Python, Spec
from gnomon.scheduler import Request
from gnomon.scheduler.scheduler import BULK_MAX

WORKER = "benchmarks.sides.gnomon_worker"
BALANCED_S = 30.0
RECORDED_S = 15.0  # without any progress
LOOK_EVERY_S = 0.005
NOOP = Spec(action=Python(function="noop"))


@asynccontextmanager
async def opened(stand: Stand, url: str) -> AsyncIterator[App]:
    """An app for creating and looking; it does not work."""
    profile = StoreProfile()
    async with App(url, migrate=True) as app:
        if stand.profiled:
            profile.attach(app)
        yield app
    if stand.profiled:
        stand.say("verbs of the bench itself:\n" + profile_table([profile.rows()]))


@asynccontextmanager
async def gnomon_crew(
    stand: Stand,
    url: str,
    *,
    size: int | None = None,
    signed: str | None = None,
    timed: bool = False,
    tallied: bool = True,
) -> AsyncIterator[Crew]:
    """Worker processes, ready; with a profile their account is shown when they have ended.

    `signed`: a URL on this machine that they may call, and sign their calls to; `timed`: they note
    when each action was due and when its function was called; `tallied`: they keep the history of
    attempts, as workers do.
    """
    options = {
        "url": url, "profiled": stand.profiled, "signed": signed, "timed": timed, "tallied": tallied
    }  # fmt: skip
    size = size or stand.worker_count
    async with crew_of(Program(WORKER, options), size=size, folder=stand.folder) as crew:
        yield crew
        await crew.stop()
    if stand.profiled:
        stand.say("verbs of the workers:\n" + profile_table(w["profile"] for w in crew.last_words))
        if stand.server is not None:
            stand.say("statements:\n" + await statement_table(url))


def requests(prefix: str, due: Sequence[datetime | None]) -> list[Request]:
    """One no-op one-shot each; None is due at once. Ids are given: reading back goes by prefix."""
    specs = {at: msgspec.structs.replace(NOOP, start_at=at) for at in set(due)}
    return [Request(id=f"{prefix}-{number:07d}", spec=specs[at]) for number, at in enumerate(due)]


async def create_all(app: App, wanted: Sequence[Request]) -> None:
    """Create in bulk, through the scheduler; a refusal is the end of the benchmark."""
    for start in range(0, len(wanted), BULK_MAX):
        for answer in await app.scheduler.create_many(wanted[start : start + BULK_MAX]):
            if isinstance(answer, Exception):
                raise answer


async def all_recorded(app: App, crew: Crew) -> None:
    """Wait until no live action is left, as long as they become fewer. Whether one is left is a
    short question; how many there are would take longer than their last attempts."""
    live, fewest, end = Selection(states=(State.ACTIVE,)), math.inf, time.monotonic() + RECORDED_S
    while True:
        page = await app.store.actions.list(live, after=None, limit=1)
        if not page.actions and page.next is None:
            return
        crew.check()
        if time.monotonic() > end:
            left = (await app.store.actions.count()).get(State.ACTIVE, 0)
            if left >= fewest:
                logs = "".join(worker.errors for worker in crew.workers)
                raise TimeoutError(f"{left} are not recorded; the workers' logs:\n{logs}")
            fewest, end = left, time.monotonic() + RECORDED_S
        await asyncio.sleep(LOOK_EVERY_S)


async def balanced(app: App, worker_count: int) -> None:
    """Wait until all shards are held, and each worker has its share."""
    end = time.monotonic() + BALANCED_S
    share = app.installation.shard_count // worker_count
    while time.monotonic() < end:
        owners = Counter(
            lock.owner for lock in await app.store.leases.list_locks() if lock.lease_guid
        )
        if sum(owners.values()) == app.installation.shard_count and all(
            abs(owned - share) <= 1 for owned in owners.values()
        ):
            return
        await asyncio.sleep(0.05)
    raise TimeoutError(f"leases are not balanced after {BALANCED_S} s")


@asynccontextmanager
async def held(app: App, shards: Iterable[int]) -> AsyncIterator[list[HeldShard]]:
    """Hold shards for a while, as a worker would; nobody else may work meanwhile."""
    leases = app.store.leases
    wanted = frozenset(shards)
    requests = [
        LeaseRequest(seen=lock, lease_guid=app.env.entropy.token())
        for lock in await leases.list_locks()
        if lock.shard in wanted
    ]
    holdings = list(await leases.acquire(requests, owner="bench", lease_for=timedelta(seconds=10)))
    if len(holdings) < len(requests):
        raise RuntimeError("somebody else holds some of the shards")
    yield holdings
    await leases.release(holdings)
