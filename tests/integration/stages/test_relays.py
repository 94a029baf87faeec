"""Saved versions on their way to a broker, a receiver or a function, from a worker's outbox."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aio_pika
import aio_pika.abc
import pytest

from gnomon.app import App
from gnomon.config import DatabaseConfig, HttpConfig, Settings, StagesConfig, WorkerConfig
from gnomon.config.targets import TargetTable
from gnomon.executors._kafka_client import Record
from gnomon.executors.kafka import KafkaTarget
from gnomon.model.errors import ConfigurationError
from gnomon.model.secret import Secret
from gnomon.model.signature import verify
from gnomon.stages import EntityView, SavedVersion, Stage, Stages, Update
from gnomon.stages.relay import RelayTarget
from gnomon.stages.relays import FunctionRelay
from tests.fixtures.kafka import NOT_ENOUGH_REPLICAS, MockKafka, consumed
from tests.fixtures.rabbitmq import RabbitmqServer
from tests.fixtures.receiver import receiving

SIGNING_KEY = "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVowMTIzNDU="
WAIT_S = 60.0


class Double(Stage[dict[str, Any], dict[str, int]]):
    """Writes `b`, and remembers in its state what it made it from."""

    name, watch, writes = "double", ("a",), ("b",)
    backfill = False  # a walk over the base could come in between

    async def process(
        self, it: EntityView[dict[str, Any], dict[str, int]]
    ) -> Update[dict[str, int]]:
        return Update({"b": it.entity["a"] * 2}, state={"from": it.entity["a"]})


@asynccontextmanager
async def working(
    folder: Path, *targets: TargetTable, to: RelayTarget | None = None, **options: Any
) -> AsyncIterator[Stages[dict[str, Any]]]:
    """A worker on a file, with its stage and the settings' relay."""
    settings = Settings(
        database=DatabaseConfig(url=f"sqlite:///{folder / 'gnomon.db'}", shard_count=4),
        worker=WorkerConfig(poll=timedelta(milliseconds=100)),
        http=HttpConfig(allow_loopback=True),
        targets={target.name: target for target in targets},
        stages=StagesConfig(poll=timedelta(milliseconds=100), **options),
    )
    async with App(settings=settings, migrate=True) as app:
        stages: Stages[dict[str, Any]] = Stages(app, "ad", relay=to)
        stages.add(Double())
        stop = asyncio.Event()
        at_work = asyncio.create_task(app.work(stop))
        try:
            yield stages
        finally:
            stop.set()
            await at_work


async def until(predicate: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not predicate():
            await asyncio.sleep(0.02)


async def live(stages: Stages[dict[str, Any]], look: Callable[[], Awaitable[None]]) -> list[str]:
    """An entity is born, changed and deleted; `look` waits for each. The roots of its first four
    versions, as `explain` shows them."""
    await stages.put("ad-1", {"a": 1})
    await look()
    await stages.patch("ad-1", {"a": 2}, by="Zoë")
    await look()
    notes = (await stages.explain("ad-1")).changes
    await stages.delete("ad-1")
    await look()
    return [str(note.root) for note in reversed(notes)]


LIFE = [
    (1, "user", False), (2, "stage:double", False), (3, "Zoë", False),
    (4, "stage:double", False), (5, "user", True),
]  # fmt: skip


def shown(messages: list[dict[str, Any]]) -> list[tuple[int, str, bool]]:
    return [(each["version"], each["author"], each["deleted"]) for each in messages]


async def quiet(stages: Stages[dict[str, Any]]) -> None:
    """Wait until the stage has had its say."""

    async def is_done() -> bool:
        found = [each for each in await stages.entities.list("ad") if each.id == "ad-1"]
        documents = [json.loads(each.doc or "{}") for each in found]
        return all(document.get("b") == document["a"] * 2 for document in documents)

    async with asyncio.timeout(WAIT_S):
        while not await is_done():
            await asyncio.sleep(0.02)


async def records(bootstrap: str, topic: str, count: int) -> list[Record]:
    found: list[Record] = []
    options = KafkaTarget(name="cluster", bootstrap=bootstrap).options()
    async with asyncio.timeout(WAIT_S), aclosing(consumed(options, topic)) as all_records:
        async for record in all_records:
            found.append(record)
            if len(found) == count:
                break
    return found


async def test_kafka_gets_every_version_in_order_keyed_by_the_entity(
    mock_kafka: MockKafka, tmp_path: Path
) -> None:
    """All records of one entity, with its state, and the headers that name the version; an error
    of the cluster in between changes nothing."""
    topic = f"ads-{uuid.uuid4().hex[:8]}"
    target = TargetTable("cluster", "kafka", {"bootstrap": mock_kafka.bootstrap})
    mock_kafka.fail(NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS)
    async with working(tmp_path, target, relay="cluster", relay_topic=topic) as stages:
        roots = await live(stages, lambda: quiet(stages))
        found = await records(mock_kafka.bootstrap, topic, 5)
    assert {b"ad/ad-1"} == {record.key for record in found}
    messages = [json.loads(record.value or b"") for record in found]
    assert LIFE == shown(messages)
    assert {"version": 2, "revision": 1, "json": {"from": 2}} == messages[3]["state"]
    assert {"a": 2, "b": 4} == messages[3]["entity"]
    headers = dict(found[2].headers)
    assert b"3" == headers["entity-version"]
    assert b"Zo%C3%AB" == headers["entity-author"]
    assert messages[2]["key"].encode() == headers["gnomon-key"]
    assert roots == [dict(record.headers)["entity-root"].decode() for record in found[:4]]
    assert 2 == len(set(roots))


async def test_rabbitmq_gets_every_version_and_what_no_queue_takes_waits(
    rabbitmq: RabbitmqServer, tmp_path: Path
) -> None:
    """Confirmed, persistent, with the key as message id; nothing is lost while the queue is not
    there yet."""
    queue = f"ads-{uuid.uuid4().hex[:8]}"
    target = TargetTable("broker", "rabbitmq", {"url": Secret(rabbitmq.url)})
    async with (
        working(tmp_path, target, relay="broker", relay_routing_key=queue) as stages,
        await aio_pika.connect(rabbitmq.url) as connection,
    ):
        await stages.put("ad-1", {"a": 1})
        await quiet(stages)
        channel = await connection.channel()
        declared = await channel.declare_queue(queue, durable=True, auto_delete=False)
        try:
            await stages.patch("ad-1", {"a": 2}, by="Zoë")
            await quiet(stages)
            notes = (await stages.explain("ad-1")).changes
            await stages.delete("ad-1")
            found: list[aio_pika.abc.AbstractIncomingMessage] = []
            async with asyncio.timeout(WAIT_S):
                while len(found) < 5:
                    message = await declared.get(fail=False)
                    found += [message] if message is not None else []
                    await asyncio.sleep(0.02)
        finally:
            await declared.delete(if_unused=False, if_empty=False)
    bodies = [json.loads(message.body) for message in found]
    assert LIFE == shown(bodies)
    assert [each["key"] for each in bodies] == [m.message_id for m in found]
    roots = [str(note.root) for note in reversed(notes)]
    assert roots == [message.headers["entity-root"] for message in found[:4]]
    assert [aio_pika.DeliveryMode.PERSISTENT] * 5 == [m.delivery_mode for m in found]


async def test_http_gets_every_version_signed(tmp_path: Path) -> None:
    """Standard Webhooks: the id is the save's key, the signature covers the body."""
    async with receiving() as receiver:
        target = TargetTable(
            "hooks",
            "http",
            {"url_prefix": f"{receiver.url}/hooks/", "signing_keys": (Secret(SIGNING_KEY),)},
        )
        url = f"{receiver.url}/hooks/ads"
        async with working(tmp_path, target, relay="hooks", relay_url=url) as stages:
            roots = await live(stages, lambda: quiet(stages))
            await until(lambda: len(receiver.bodies) >= 5)
        bodies = [json.loads(body) for body in receiver.bodies]
        assert LIFE == shown(bodies)
        for request, body in zip(receiver.requests, receiver.bodies, strict=True):
            told = verify(request.headers, body, [SIGNING_KEY], now=datetime.now(UTC))
            assert json.loads(body)["key"] == told.key
        assert "/hooks/ads" == receiver.requests[0].path
        assert roots == [request.headers["Entity-Root"] for request in receiver.requests[:4]]


async def test_a_function_is_told_every_version_and_again_after_a_failure(tmp_path: Path) -> None:
    """In process: at least once, in order, with the same key."""
    told: list[SavedVersion[Any, Any]] = []
    keys: list[str] = []

    async def tell(saved: SavedVersion[Any, Any]) -> None:
        keys.append(saved.key)
        if len(keys) == 1:
            raise ConnectionError("not now")
        told.append(saved)

    async with working(tmp_path, to=FunctionRelay(tell)) as stages:
        roots = await live(stages, lambda: quiet(stages))
        await until(lambda: len(told) >= 5)
    assert LIFE == [(each.version, each.author, each.deleted) for each in told]
    assert keys[0] == keys[1]
    assert {"from": 2} == told[3].state
    assert roots == [str(each.root) for each in told[:4]]


@pytest.mark.parametrize("relay", ["nobody", "own"])
async def test_a_relay_must_be_a_target_that_takes_messages(relay: str, tmp_path: Path) -> None:
    """A name that is none, and one of the wrong kind, stop the worker at its start."""
    target = TargetTable("own", "grpc", {"address": "127.0.0.1:1", "tls": False})
    with pytest.raises(ConfigurationError, match=r"stages\.relay"):
        async with working(tmp_path, target, relay=relay):
            await asyncio.sleep(0)
