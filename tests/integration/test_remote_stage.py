"""A stage in a process of its own, and a real worker: killed, restarted, upgraded."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.wrappers_pb2 import Int64Value

from gnomon.app import App
from gnomon.config import Settings
from gnomon.gateways.config import ServerConfig
from gnomon.gateways.grpc.server import GrpcServer
from gnomon.stages import Stages
from gnomon.stages.codec import decode_document
from gnomon.stages.config import StagesConfig
from gnomon.v1 import entity_pb2, stage_pb2
from gnomon.v1.entity_pb2_grpc import StateServiceStub
from tests.fixtures.postgres import free_port
from tests.fixtures.processes import ChildProcess, Processes

WAIT_S = 120.0
COUNT = 300  # more than one batch
pytestmark = pytest.mark.timeout(400)  # a busy machine is no reason to fail
SETTINGS = Settings(
    stages=StagesConfig(poll=timedelta(milliseconds=50), retry_min=timedelta(milliseconds=100))
)


async def start(processes: Processes, address: str, revision: int = 1) -> tuple[ChildProcess, str]:
    """The service, and where it is: on a port that no outgoing connection can take meanwhile."""
    child = processes.start_python(
        "-m", "tests.fixtures.stage_service", address, str(revision), name="stage"
    )
    found = await asyncio.to_thread(child.wait_for_line, r"serving (\S+)", timeout_s=WAIT_S)
    return child, found[1]


@asynccontextmanager
async def working(app: App) -> AsyncIterator[None]:
    stop = asyncio.Event()
    task = asyncio.create_task(app.work(stop))
    try:
        yield
    finally:
        stop.set()
        await task


async def until(condition: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not await condition():
            await asyncio.sleep(0.05)


async def documents(stages: Stages[Any]) -> dict[str, dict[str, Any]]:
    page = await stages.entities.list("ad", limit=1000)
    return {each.id: decode_document(each.doc or "{}") for each in page}


def is_doubled(document: dict[str, Any]) -> bool:
    return bool(2 * document["n"] == document.get("doubled"))


async def test_it_works_in_batches_survives_a_kill_and_is_upgraded(
    processes: Processes, tmp_path: Path
) -> None:
    """Batches of up to 256; while it is away nothing is lost and nothing counts as a failure; a
    raised revision walks over all entities again."""
    child, address = await start(processes, f"127.0.0.1:{free_port()}")
    async with App(f"sqlite:///{tmp_path / 'remote.db'}", settings=SETTINGS) as app:
        stages: Stages[Any] = Stages(app, "ad")
        stages.remote("double", address, tls=False, parallel=2)
        await stages.entities.put_many("ad", {f"e{n}": {"n": n} for n in range(COUNT)})

        async def all_doubled() -> bool:
            return all(is_doubled(each) for each in (await documents(stages)).values())

        async with working(app):
            await until(all_doubled)
            await until(lambda: _has(child, rf"saved ad/e{COUNT - 1}/"))
            sizes = [int(size) for size in re.findall(r"batch (\d+)", child.log)]
            assert (256, True) == (max(sizes), sum(sizes) >= COUNT)

            child.kill()
            await stages.entities.put_many("ad", {f"e{n}": {"n": n + 1000} for n in range(100)})

            async def noticed() -> bool:
                told = await stages.explain("e50")
                return any("the stage is away" in (row.last_error or "") for row in told.stages)

            await until(noticed)
            assert {0} == {row.attempts for row in (await stages.explain("e50")).stages}
            child, _ = await start(processes, address)
            await until(all_doubled)
            assert {"1"} == set(re.findall(r"attempt (\d+)", child.log))
            await until(lambda: _has(child, r"saved ad/e99/"))

            child.kill()
            await stages.put("e50", {"n": 7})
            await until(noticed)
            child, _ = await start(processes, address, revision=2)

            async def declared() -> bool:
                return [2] == [each.revision for each in await stages.stages()]

            await until(declared)
            await until(lambda: _asked_about(child, {f"e{n}" for n in range(COUNT)}))
            await until(all_doubled)


async def test_a_state_set_over_grpc_wakes_it(processes: Processes, tmp_path: Path) -> None:
    """A message of the stage's own type, by compare-and-set: the stage sees it and patches."""
    _, address = await start(processes, f"127.0.0.1:{free_port()}")
    stop = asyncio.Event()
    async with App(f"sqlite:///{tmp_path / 'remote.db'}", settings=SETTINGS) as app:
        stages: Stages[Any] = Stages(app, "ad")
        stages.remote("double", address, tls=False)
        server = GrpcServer(app.scheduler, ServerConfig(grpc_port=0), entities=app.entities)
        serving = asyncio.create_task(server.serve(stop=stop))
        async with working(app), grpc.aio.insecure_channel(server.address) as channel:
            await stages.put("ad", {"n": 21})

            async def seen(number: int) -> bool:
                return number == (await documents(stages))["ad"].get("seen")

            await until(lambda: seen(0))
            await until(stages.stages)
            states: Any = StateServiceStub(channel)
            message = AnyMessage()
            message.Pack(Int64Value(value=7))
            answer = await states.CompareAndSet(
                entity_pb2.CompareAndSetRequest(
                    kind="ad",
                    stage="double",
                    entity_id="ad",
                    state=stage_pb2.StageState(message=message),
                )
            )
            assert (True, 1) == (answer.stored, answer.current.version)
            await until(lambda: seen(7))
            read = await states.Read(
                entity_pb2.ReadRequest(kind="ad", stage="double", entity_id="ad")
            )
            assert message == read.state.message
            told = await stages.explain("ad")
            assert "stage:double" == told.changes[0].author
        stop.set()
        await serving


async def test_a_worker_that_starts_before_the_stage_loses_nothing(
    processes: Processes, tmp_path: Path
) -> None:
    """Everything is kept until the service is there and has said what it is."""
    child, address = await start(processes, f"127.0.0.1:{free_port()}")
    child.kill()
    async with App(f"sqlite:///{tmp_path / 'remote.db'}", settings=SETTINGS) as app:
        stages: Stages[Any] = Stages(app, "ad")
        stages.remote("double", address, tls=False)
        async with working(app):
            await stages.put("ad", {"n": 21})

            async def queued() -> bool:
                return bool((await stages.explain("ad")).stages)

            await until(queued)
            await start(processes, address)

            async def doubled() -> bool:
                return is_doubled((await documents(stages))["ad"])

            await until(doubled)


async def _asked_about(child: ChildProcess, ids: set[str]) -> bool:
    return ids <= set(re.findall(r"asked (\S+)", child.log))


async def _has(child: ChildProcess, pattern: str) -> bool:
    return re.search(pattern, child.log) is not None
