"""The database goes away: it crashes, or the network between it and us does."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import psycopg
import pytest

from gnomon.app import App
from gnomon.contracts.store import ChangeResult
from gnomon.model.action import State
from gnomon.model.errors import GnomonError, Unavailable
from gnomon.model.ids import shard_of
from gnomon.scheduler import Request
from tests.fault.program import SHARD_COUNT, note
from tests.fault.stage import (
    POLL_S,
    Stage,
    all_done,
    counted,
    create_all,
    insist,
    request,
    stop_all,
    until,
)
from tests.fixtures.postgres import PostgresServer
from tests.fixtures.processes import Processes
from tests.fixtures.proxy import Proxy

CREATORS = 8
CREATED_BETWEEN_LOOKS = 20
AHEAD_MAX = 400  # created and not yet begun: what is left to do at the end does not grow with time


@pytest.mark.slow
async def test_actions_survive_crashes_of_postgres(
    durable_postgres: PostgresServer, tmp_path: Path, processes: Processes
) -> None:
    """Two immediate restarts under load: workers and creators come back by themselves, and
    whatever was acknowledged is done."""
    stage = Stage(durable_postgres.dsn, "gnomon", folder=tmp_path, processes=processes)
    async with stage.app() as app:
        workers = [await stage.worker(), await stage.worker()]
        creating = asyncio.create_task(_create_for_ever(stage, app))
        for count in (300, 1_000):
            await stage.started(count)
            await asyncio.to_thread(durable_postgres.restart, "immediate")
        await stage.started(stage.start_count() + 500)
        creating.cancel()
        names = await creating
        await all_done(app, len(names))
        assert [True, True] == [worker.is_running for worker in workers]
        await stage.assert_kept(app, names)
        assert [0, 0] == await stop_all(*workers)


async def _create_for_ever(stage: Stage, app: App) -> list[str]:
    """Create with keys from several coroutines until cancelled, just ahead of the workers; the
    acknowledged ids."""
    names: list[str] = []
    stopping = asyncio.Event()

    async def create(creator: int) -> None:
        number = 0
        while not stopping.is_set():
            number += 1
            if number % CREATED_BETWEEN_LOOKS == 0:
                while len(names) - stage.start_count() > AHEAD_MAX and not stopping.is_set():
                    await asyncio.sleep(POLL_S)
            wanted = request(f"c-{creator}-{number}", note(number, 0.005), key="once")
            answer = await insist(lambda wanted=wanted: app.scheduler.create(wanted))  # type: ignore[misc]
            names.append(answer.action.meta.id)

    async with asyncio.TaskGroup() as group:
        for creator in range(CREATORS):
            group.create_task(create(creator))
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
            stopping.set()
    return names


@pytest.mark.slow
async def test_lost_answers_of_creates_are_resolved(postgres_stage: Stage) -> None:
    """A create whose answer was lost after the commit was applied whole, one that was reset is
    applied whole or not at all, and a repeat with the same key says which. On Citus that holds of
    each part of it."""
    stage = postgres_stage
    async with Proxy(stage.url) as proxy, stage.app() as direct:
        async with stage.app(url=proxy.dsn) as app:
            await create_all(app, [request("warm-up", note(0, 0.0))])
            applied = [await _create_cut(app, direct, proxy, n) for n in range(60)]
        print(f"\n  {len(applied)} cut creates, {sum(applied)} of them applied;", end="")
        print(f" {proxy.replies_dropped} answers dropped, {proxy.resets} connections reset")
        assert 20 <= proxy.replies_dropped
        assert 20 <= sum(applied)
        worker = await stage.worker()
        names = ["warm-up", *(f"cut-{n}-{part}" for n in range(60) for part in range(5))]
        await all_done(direct, len(names))
        await stage.assert_kept(direct, names)
        assert [0] == await stop_all(worker)


async def _create_cut(app: App, direct: App, proxy: Proxy, n: int) -> bool:
    """Create five actions in one call that is cut; whether it, or a part, was applied after all."""
    wanted = [request(f"cut-{n}-{part}", note(part, 0.0), key="once") for part in range(5)]
    proxy.cut_ports.clear()
    if n % 3 == 2:
        reset = asyncio.get_running_loop().call_later(random.random() * 0.004, proxy.reset)
    else:
        reset = None
        proxy.drop_reply()
    with_answer = await _answered(app, wanted)
    if reset is not None:
        reset.cancel()
    if not with_answer:
        await until(lambda: _all_ended(proxy), "end of the sessions that were cut")
    names = [r.id for r in wanted if r.id is not None]
    found = [action is not None for action in await direct.store.actions.get_many(names)]
    for whole in await _written_together(direct, names):
        assert len({found[place] for place in whole}) == 1, "half of a transaction was applied"
    assert all(found) or not with_answer, "an acknowledged create is not there"
    proxy.replies_to_drop = 0
    repeated = await direct.schedule_many(wanted)
    assert found == [isinstance(r, ChangeResult) and r.repeated for r in repeated]
    return any(found)


async def _written_together(app: App, names: list[str]) -> list[list[int]]:
    """The places of those that one call writes in one transaction: all, or on Citus those of one
    part."""
    part_of = {lock.shard: lock.part for lock in await app.store.leases.list_locks()}
    together: dict[int | None, list[int]] = {}
    for place, name in enumerate(names):
        together.setdefault(part_of[shard_of(name, SHARD_COUNT)], []).append(place)
    return list(together.values())


async def _all_ended(proxy: Proxy) -> bool:
    """Whether the server knows of every cut: until then what it was given may still be applied."""
    async with await psycopg.AsyncConnection.connect(proxy.server_dsn) as witness:
        query = "SELECT FROM pg_stat_activity WHERE client_port = ANY (%s)"
        return not (await witness.execute(query, [list(proxy.cut_ports)])).rowcount


async def _answered(app: App, wanted: list[Request]) -> bool:
    try:
        answers = await app.schedule_many(wanted)
    except Unavailable:
        return False
    assert not [answer for answer in answers if isinstance(answer, GnomonError)]
    return True


@pytest.mark.slow
async def test_workers_go_on_through_a_bad_network(postgres_stage: Stage) -> None:
    """Resets, lost answers to begins and finishes, and a black hole longer than the lease."""
    stage = postgres_stage
    chooser = random.Random()
    async with Proxy(stage.url) as proxy, stage.app() as app:
        workers = [await stage.worker(url=proxy.dsn), await stage.worker(url=proxy.dsn)]
        names = await create_all(app, [request(f"a-{n}", note(n, 0.01)) for n in range(2_000)])
        await stage.started(100)
        for number in range(20):
            if number % 2:
                proxy.reset()
            else:
                proxy.drop_reply(5)
            await stage.started(stage.start_count() + chooser.randrange(20, 60))
        proxy.black_hole()

        async def free() -> bool:
            locks = await app.store.leases.list_locks()
            return all(
                lock.silent_for is None or lock.silent_for.total_seconds() > 2.5 for lock in locks
            )

        await until(free, "silence of all workers")
        proxy.heal()
        await all_done(app, len(names))
        print(
            f"\n  {proxy.replies_dropped} answers dropped, {proxy.resets} connections reset", end=""
        )
        await stage.assert_kept(app, names)
        assert [] == [worker.log for worker in workers if not worker.is_running]
        assert 0 == (await counted(app))[State.ACTIVE]
        assert [0, 0] == await stop_all(*workers)


@pytest.mark.slow
async def test_sigterm_is_obeyed_while_the_database_is_away(postgres_stage: Stage) -> None:
    """A worker that can reach nobody still ends in bounded time; its attempts are found later."""
    stage = postgres_stage
    async with Proxy(stage.url) as proxy, stage.app() as app:
        worker = await stage.worker("--drain", "2", url=proxy.dsn)
        names = await create_all(app, [request(f"a-{n}", note(n, 0.2)) for n in range(300)])
        await stage.started(100)
        proxy.black_hole()
        began = time.monotonic()
        code = await asyncio.to_thread(worker.stop, timeout_s=40.0)
        print(f"\n  ended {time.monotonic() - began:.1f} s after SIGTERM, drain time 2 s", end="")
        assert 0 == code
        assert 20.0 > time.monotonic() - began
        successor = await stage.worker()
        await all_done(app, len(names))
        await stage.assert_kept(app, names)
        assert [0] == await stop_all(successor)
