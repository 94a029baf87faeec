"""A Citus cluster while nodes are away, parts are moved and the coordinator restarts.

Needs a cluster (`make test-citus`), and to stop nodes a command: see `tests.fixtures.citus`.
`GNOMON_FAULT_FULL=1` keeps a node away for a minute instead of ten seconds, and asks for 500
actions a second instead of 50.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import time
import uuid
from collections.abc import AsyncIterator, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from gnomon.app import App
from gnomon.cli.doctor import look
from gnomon.model.action import State
from gnomon.model.errors import Unavailable
from gnomon.model.ids import shard_of
from tests.fault.own_effects import EFFECTS, granted, login_of, wanted
from tests.fault.program import SHARD_COUNT, note
from tests.fault.stage import (
    Stage,
    all_attempts,
    all_done,
    counted,
    create_all,
    insist,
    request,
    stop_all,
    until,
)
from tests.fixtures.citus import CitusCluster, CitusNode
from tests.fixtures.postgres import drop_schema
from tests.fixtures.processes import Processes

IS_FULL = bool(os.environ.get("GNOMON_FAULT_FULL"))
AWAY_S = 60.0 if IS_FULL else 10.0
RATE = 500 if IS_FULL else 50  # a second; so many only on machines that can
BATCH_S = 0.2
DONE_WITHIN_S = 240.0
RESTARTS = 5
EFFECTS_PER_RESTART = 40

pytestmark = [pytest.mark.slow, pytest.mark.postgres]


@pytest.fixture
def citus_stage(citus: CitusCluster, tmp_path: Path, processes: Processes) -> Iterator[Stage]:
    schema = f"fault_{uuid.uuid4().hex[:12]}"
    yield Stage(citus.dsn, schema, folder=tmp_path, processes=processes)
    processes.close()
    drop_schema(citus.dsn, schema)


@pytest.fixture
def login(citus_stage: Stage) -> Iterator[str]:
    with login_of(citus_stage.url) as name:
        yield name


class Flow:
    """Creates actions at a rate, and knows which were acknowledged."""

    def __init__(self, app: App, *, rate: int = RATE) -> None:
        self._app = app
        self._per_batch = max(1, int(rate * BATCH_S))
        self._count = 0
        self.acknowledged: list[str] = []
        self.asked_at: dict[str, float] = {}
        self.refused = 0
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Flow:
        self._task = asyncio.create_task(self._keep_creating())
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled() and (failure := self._task.exception()):
            raise failure

    async def _keep_creating(self) -> None:
        """One by one within a batch: each is acknowledged, or refused, by itself."""
        while True:
            first, self._count = self._count, self._count + self._per_batch
            names = [f"a-{number}" for number in range(first, self._count)]
            await asyncio.gather(*map(self._create, names), asyncio.sleep(BATCH_S))

    async def _create(self, name: str) -> None:
        number = int(name.removeprefix("a-"))
        now = datetime.now(UTC)
        self.asked_at[name] = now.timestamp()
        wanted = request(name, note(number, 0.0), key=name, start_at=now)
        try:
            await self._app.scheduler.create(wanted)
        except Unavailable:
            self.refused += 1  # it may be stored all the same
        else:
            self.acknowledged.append(name)

    @property
    def doubtful(self) -> list[str]:
        known = set(self.acknowledged)
        return [name for name in (f"a-{n}" for n in range(self._count)) if name not in known]


async def settled(stage: Stage, app: App, flow: Flow, workers: int) -> None:
    """All that was stored is done; nothing was lost, and what came twice is explained."""

    async def nothing_left() -> bool:
        found = await counted(app)
        return bool(found) and not found[State.ACTIVE]

    await all_done(app, len(flow.acknowledged), timeout_s=DONE_WITHIN_S)
    # Some of the done ones may be others, whose creation was not answered.
    await until(nothing_left, "end of the last action", timeout_s=DONE_WITHIN_S)
    history = await stage.assert_kept(app, flow.acknowledged, unknown=flow.doubtful)
    print(
        f"  {workers} workers, {len(flow.asked_at)} asked for, {len(flow.acknowledged)} "
        f"acknowledged, {flow.refused} refused; {lateness(stage, flow)}"
    )
    assert history.runs


def lateness(
    stage: Stage,
    flow: Flow,
    shards: Collection[int] = range(SHARD_COUNT),
    since: float = 0.0,
    before: float = math.inf,
) -> str:
    """How late the first attempts in these shards began, of actions that were asked for between
    two moments and acknowledged."""
    known = set(flow.acknowledged)
    first: dict[str, float] = {}
    for run in stage.runs():
        first[run.id] = min(run.started_at.timestamp(), first.get(run.id, math.inf))
    late = sorted(
        began - flow.asked_at[name]
        for name, began in first.items()
        if name in known
        and shard_of(name, SHARD_COUNT) in shards
        and since <= flow.asked_at[name] <= before
    )
    if not late:
        return "none began"
    return (
        f"{len(late)} began {late[len(late) // 2]:.2f} s late in the middle, "
        f"{late[len(late) * 99 // 100]:.2f} at 99 %, {late[-1]:.2f} at most"
    )


@asynccontextmanager
async def aside(state: AbstractContextManager[None]) -> AsyncIterator[None]:
    """The cluster is in a state that takes long to reach and to leave, as it must whatever happens:
    the next test needs it. Meanwhile others have the loop."""
    with ExitStack() as stack:
        await asyncio.to_thread(stack.enter_context, state)
        try:
            yield
        finally:
            await asyncio.to_thread(stack.close)


def longest_wait(stage: Stage, shards: set[int], since: float, until: float) -> float:
    """How long, at most, no attempt began in these shards between two moments."""
    begun = sorted(
        run.started_at.timestamp()
        for run in stage.runs()
        if shard_of(run.id, SHARD_COUNT) in shards
    )
    moments = [since, *(moment for moment in begun if since <= moment <= until), until]
    return max(later - sooner for sooner, later in itertools.pairwise(moments))


async def test_a_node_that_is_away_stops_nobody_else(
    citus: CitusCluster, citus_stage: Stage
) -> None:
    """It is stopped at once and comes back: nothing is lost, and the shards of the others go on."""
    gone: CitusNode = citus.workers[-1]
    async with citus_stage.app() as app:
        workers = [await citus_stage.worker() for _ in range(2)]
        theirs = citus.shards_on(gone, citus_stage.schema, SHARD_COUNT)
        healthy = set(range(SHARD_COUNT)) - theirs
        async with Flow(app) as flow:
            await citus_stage.started(RATE)
            async with aside(citus.stopped(gone)):
                began = time.time()
                await asyncio.sleep(AWAY_S)
                ended = time.time()
                found = await look(app)
            assert f"{gone.host}:{gone.port}" in [
                finding.subject for finding in found if finding.rule == "cluster_node"
            ]
            waited_s = longest_wait(citus_stage, healthy, began, ended)
            print(f"\n  healthy shards: nothing began for {waited_s:.1f} s at most")
            print(f"  healthy shards: {lateness(citus_stage, flow, healthy, began, ended)}")
            before = citus_stage.start_count()
            await citus_stage.started(before + RATE)
        await settled(citus_stage, app, flow, len(workers))
        assert waited_s < AWAY_S, "healthy shards stood still for as long as the node was away"
        await stop_all(*workers)


async def performed(app: App, numbers: Iterable[int], shards: set[int]) -> list[str]:
    """SQL effects of these numbers, as far as they are in these shards; each is done."""
    names = {f"a-{n}": n for n in numbers if shard_of(f"a-{n}", SHARD_COUNT) in shards}
    assert shards == {shard_of(name, SHARD_COUNT) for name in names}

    async def is_done(name: str) -> bool:
        return (await app.scheduler.get(name)).status.state is State.DONE

    for name, n in names.items():
        await insist(partial(app.scheduler.create, wanted(name, n, key=name)))
    for name in names:
        await until(partial(is_done, name), f"end of {name}")
    return list(names)


async def test_sql_effects_of_healthy_shards_are_committed_while_a_node_is_away(
    citus: CitusCluster, citus_stage: Stage, login: str
) -> None:
    """In the installation's own database, each with the note of its success: that takes no node
    but the shard's own."""
    gone = citus.workers[-1]
    with psycopg.connect(citus.dsn, autocommit=True) as owner:
        async with citus_stage.app() as app:
            dsn = granted(owner, citus_stage, login)
            worker = await citus_stage.worker("--sql-dsn", dsn)
            theirs = citus.shards_on(gone, citus_stage.schema, SHARD_COUNT)
            healthy = set(range(SHARD_COUNT)) - theirs
            # From then on the worker has these shards; while a node is away it would get none.
            before = await performed(app, range(100), healthy)
            async with aside(citus.stopped(gone)):
                meanwhile = await performed(app, range(100, 200), healthy)
            logs = await all_attempts(app, meanwhile)
            await stop_all(worker)
        effects = owner.execute(sql.SQL(EFFECTS).format(sql.Identifier(citus_stage.schema)))
    print(f"\n  {len(meanwhile)} effects in {sum(map(len, logs.values()))} attempts")
    count = len(before) + len(meanwhile)
    assert (count, count) == effects.fetchone()


async def test_sql_effects_are_committed_once_while_the_coordinator_restarts(
    citus: CitusCluster, citus_stage: Stage, login: str
) -> None:
    """They are in a table of its own, and the notes of them on other nodes: whatever it was at when
    it was stopped, both are there in the end."""
    async with citus_stage.app() as app:
        with psycopg.connect(citus.dsn, autocommit=True) as owner:
            dsn = granted(owner, citus_stage, login)
        count = EFFECTS_PER_RESTART * RESTARTS
        await create_all(app, [wanted(f"a-{n}", n) for n in range(count)])
        worker = await citus_stage.worker("--sql-dsn", dsn, "--concurrency", "8")
        for number in range(RESTARTS):
            await all_done(app, number * EFFECTS_PER_RESTART, timeout_s=DONE_WITHIN_S)
            async with aside(citus.stopped(citus.nodes[0])):
                pass
        await all_done(app, count, timeout_s=DONE_WITHIN_S)
        await stop_all(worker)
        logs = await all_attempts(app, [f"a-{n}" for n in range(count)])
        found_done = sum("earlier" in (one.answer or "") for log in logs.values() for one in log)
        print(f"\n  {sum(map(len, logs.values()))} attempts at {count}, {found_done} found done")
    with psycopg.connect(citus.dsn) as owner:
        effects = owner.execute(sql.SQL(EFFECTS).format(sql.Identifier(citus_stage.schema)))
        assert (count, count) == effects.fetchone()


async def test_the_coordinator_restarts(citus: CitusCluster, citus_stage: Stage) -> None:
    """Everybody comes in through it, so everybody waits; and goes on."""
    async with citus_stage.app() as app:
        workers = [await citus_stage.worker() for _ in range(2)]
        async with Flow(app) as flow:
            await citus_stage.started(RATE)
            coordinator = citus.nodes[0]
            async with aside(citus.stopped(coordinator)):
                pass
            before = citus_stage.start_count()
            await citus_stage.started(before + RATE)
        await settled(citus_stage, app, flow, len(workers))
        await stop_all(*workers)


async def test_parts_are_moved_while_everybody_works(
    citus: CitusCluster, citus_stage: Stage
) -> None:
    """To the other node and back, as a rebalance does it."""
    first, second = citus.workers[:2]
    async with citus_stage.app() as app:
        workers = [await citus_stage.worker() for _ in range(2)]
        async with Flow(app) as flow:
            await citus_stage.started(RATE)
            part = citus.parts_on(first, citus_stage.schema)[0]
            for source, target in ((first, second), (second, first)):
                await asyncio.to_thread(citus.move_part, part, source, target)
            before = citus_stage.start_count()
            await citus_stage.started(before + RATE)
        await settled(citus_stage, app, flow, len(workers))
        await stop_all(*workers)


async def test_a_rebalance_while_everybody_works(citus: CitusCluster, citus_stage: Stage) -> None:
    """All parts go to one node, and are then shared out again by Citus itself."""
    first, second = citus.workers[:2]
    async with citus_stage.app() as app:
        workers = [await citus_stage.worker() for _ in range(2)]
        async with Flow(app) as flow:
            await citus_stage.started(RATE)
            for part in citus.parts_on(second, citus_stage.schema):
                await asyncio.to_thread(citus.move_part, part, second, first)
            assert [] == citus.parts_on(second, citus_stage.schema)
            await asyncio.to_thread(citus.rebalance, citus_stage.schema)
            before = citus_stage.start_count()
            await citus_stage.started(before + RATE)
        assert citus.parts_on(second, citus_stage.schema)
        await settled(citus_stage, app, flow, len(workers))
        await stop_all(*workers)


async def test_a_node_is_added_while_everybody_works(
    citus: CitusCluster, citus_stage: Stage
) -> None:
    """It gets its part of the parts, and gives them back when it goes."""
    spare = citus.spare
    async with citus_stage.app() as app:
        workers = [await citus_stage.worker() for _ in range(2)]
        async with Flow(app) as flow:
            await citus_stage.started(RATE)
            async with aside(citus.with_node(spare)):
                await asyncio.to_thread(citus.rebalance, citus_stage.schema)
                assert citus.parts_on(spare, citus_stage.schema)
                before = citus_stage.start_count()
                await citus_stage.started(before + RATE)
            before = citus_stage.start_count()
            await citus_stage.started(before + RATE)
        await settled(citus_stage, app, flow, len(workers))
        await stop_all(*workers)


async def test_a_worker_is_killed(citus: CitusCluster, citus_stage: Stage) -> None:
    """As on one machine: its attempts are interrupted and tried again."""
    del citus
    async with citus_stage.app() as app:
        names = await create_all(
            app, [request(f"a-{n}", note(n, n % 7 / 200)) for n in range(1_000)]
        )
        workers = [await citus_stage.worker() for _ in range(2)]
        await citus_stage.started(300)
        citus_stage.kill(workers.pop(0))
        workers.append(citus_stage.launch())
        await all_done(app, len(names), timeout_s=DONE_WITHIN_S)
        await citus_stage.assert_kept(app, names)
        await stop_all(*workers)
