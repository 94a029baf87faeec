"""Brokers spoken to with TLS: an authority of the test's own, the right one and a wrong one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path
from typing import Any

import aio_pika
import pytest

from gnomon.clock import SystemClock
from gnomon.contracts.executor import Executor
from gnomon.contracts.observer import SilentObserver
from gnomon.executors.kafka import KafkaExecutor, KafkaTarget
from gnomon.executors.rabbitmq import RabbitmqExecutor, RabbitmqTarget
from gnomon.model.outcome import Failed, Outcome, Succeeded
from gnomon.model.secret import Secret
from gnomon.model.spec import Effect, Kafka, Rabbitmq
from tests.conformance.executor.suite import order_of
from tests.fixtures.authority import Authority
from tests.fixtures.kafka import MockKafka, consumed
from tests.fixtures.kafka_tls import kafka_behind_tls
from tests.fixtures.rabbitmq import RabbitmqServer

QUEUE = "gnomon-tls"
MESSAGE = Rabbitmq(target="broker", routing_key=QUEUE, body="hello")
RECORD = Kafka(target="cluster", topic="gnomon-tls", value="hello")
NOT_VERIFIED = "CERTIFICATE_VERIFY_FAILED"


class Noting(SilentObserver):
    def __init__(self) -> None:
        self.details: list[str] = []

    def event(self, _name: str, /, **fields: object) -> None:
        self.details.append(str(fields["detail"]))


async def sent(executor: Executor, effect: Effect) -> Outcome:
    try:
        return await executor.execute(order_of(effect, timeout_s=20.0))
    finally:
        await executor.close()


def to_rabbitmq(url: str, noting: Noting, **options: Any) -> RabbitmqExecutor:
    target = RabbitmqTarget(name="broker", url=Secret(url), **options)
    return RabbitmqExecutor({"broker": target}, clock=SystemClock(), observer=noting)


@pytest.fixture
async def queue(rabbitmq: RabbitmqServer) -> AsyncIterator[aio_pika.abc.AbstractQueue]:
    async with await aio_pika.connect(rabbitmq.url) as connection:
        channel = await connection.channel()
        yield await channel.declare_queue(QUEUE, durable=True)
        await channel.queue_delete(QUEUE)


async def test_rabbitmq_with_the_right_authority(
    rabbitmq: RabbitmqServer, queue: aio_pika.abc.AbstractQueue
) -> None:
    """Confirmed, and in its queue."""
    noting = Noting()
    executor = to_rabbitmq(rabbitmq.tls_url, noting, ca_file=str(rabbitmq.authority.file))
    assert Succeeded() == await sent(executor, MESSAGE), noting.details
    message = await queue.get(no_ack=True)
    assert b"hello" == message.body


async def test_rabbitmq_with_a_wrong_authority(
    rabbitmq: RabbitmqServer, queue: aio_pika.abc.AbstractQueue, tmp_path: Path
) -> None:
    """Another's, or the machine's: nothing is sent, and the operator reads why."""
    for ca_file in (str(Authority(tmp_path).file), None):
        noting = Noting()
        outcome = await sent(to_rabbitmq(rabbitmq.tls_url, noting, ca_file=ca_file), MESSAGE)
        assert Failed(error="TLS failed") == outcome
        (detail,) = noting.details
        assert NOT_VERIFIED in detail
    assert None is await queue.get(no_ack=True, fail=False)


async def test_rabbitmq_under_another_name(
    rabbitmq: RabbitmqServer, queue: aio_pika.abc.AbstractQueue
) -> None:
    """The certificate is for 127.0.0.1: a server that calls itself otherwise is not it."""
    noting = Noting()
    url = rabbitmq.tls_url.replace("127.0.0.1", "localhost")
    outcome = await sent(to_rabbitmq(url, noting, ca_file=str(rabbitmq.authority.file)), MESSAGE)
    assert Failed(error="TLS failed") == outcome
    assert "Hostname mismatch" in noting.details[0]


# -- Kafka ----------------------------------------------------------------------------------------


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "kafka")


@pytest.fixture
async def bootstrap(mock_kafka: MockKafka, authority: Authority) -> AsyncIterator[str]:
    context = authority.issue("IP:127.0.0.1").server_context()
    async with kafka_behind_tls(mock_kafka.bootstrap, context) as found:
        yield found


def kafka_target(bootstrap: str, ca_file: Path | None) -> KafkaTarget:
    return KafkaTarget(
        name="cluster", bootstrap=bootstrap, tls=True, ca_file=str(ca_file) if ca_file else None,
        connect_timeout=timedelta(seconds=10),
    )  # fmt: skip


def to_kafka(target: KafkaTarget, noting: Noting) -> KafkaExecutor:
    return KafkaExecutor({"cluster": target}, clock=SystemClock(), observer=noting)


async def test_kafka_with_the_right_authority(
    bootstrap: str, mock_kafka: MockKafka, authority: Authority
) -> None:
    """Stored by the broker that the cluster named, and read back with TLS."""
    noting = Noting()
    target = kafka_target(bootstrap, authority.file)
    outcome = await sent(to_kafka(target, noting), RECORD)
    assert isinstance(outcome, Succeeded), noting.details
    assert 1 == mock_kafka.produce_count
    consuming = consumed(target.options(), RECORD.topic)
    async with asyncio.timeout(20), aclosing(consuming) as records:
        assert b"hello" == (await anext(records)).value


async def test_kafka_with_a_wrong_authority(
    bootstrap: str, mock_kafka: MockKafka, tmp_path: Path
) -> None:
    """Another's, or the machine's: nothing is sent, and the operator reads why."""
    for ca_file in (Authority(tmp_path / "other").file, None):
        noting = Noting()
        outcome = await sent(to_kafka(kafka_target(bootstrap, ca_file), noting), RECORD)
        assert Failed(error="TLS failed") == outcome
        (detail,) = noting.details
        assert NOT_VERIFIED in detail
        assert bootstrap in detail
    assert 0 == mock_kafka.produce_count


async def test_kafka_that_speaks_no_tls(mock_kafka: MockKafka, authority: Authority) -> None:
    """It hangs up on what it does not understand."""
    noting = Noting()
    target = kafka_target(mock_kafka.bootstrap, authority.file)
    outcome = await sent(to_kafka(target, noting), RECORD)
    assert isinstance(outcome, Failed)
    assert outcome.error in ("TLS failed", "connection failed")
    assert 0 == mock_kafka.produce_count
