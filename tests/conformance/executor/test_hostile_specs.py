"""Specs that came into the store by another way than admission (SQL): nothing of them is sent."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gnomon.clock import SystemClock
from gnomon.contracts.executor import Executor
from gnomon.executors.kafka import KafkaExecutor, KafkaTarget
from gnomon.executors.rabbitmq import RabbitmqExecutor, RabbitmqTarget
from gnomon.model.outcome import Failed
from gnomon.model.secret import Secret
from gnomon.model.spec import Effect, Kafka, Rabbitmq
from tests.conformance.executor.suite import order_of
from tests.fixtures.amqp_tap import AmqpTap
from tests.fixtures.kafka import MockKafka
from tests.fixtures.rabbitmq import RabbitmqServer

HEADERS = [
    {"a": "x\r\nb: y"}, {"a\x00": "x"}, {"a": "\u2028"}, {"Gnomon-Attempt": "9"},
    {"a": "x" * 1_000_000}, {f"h{number}": "x" for number in range(10_000)},
]  # fmt: skip


@pytest.fixture
async def tap(rabbitmq: RabbitmqServer) -> AsyncIterator[AmqpTap]:
    async with AmqpTap(rabbitmq.port) as found:
        yield found


async def assert_refused(executor: Executor, effects: list[Effect], error: str) -> None:
    try:
        for effect in effects:
            assert Failed(error=error) == await executor.execute(order_of(effect))
    finally:
        await executor.close()


async def test_rabbitmq_gets_no_message_that_breaks_the_rules(tap: AmqpTap) -> None:
    """Headers, among them those that make the broker send copies, and names."""
    target = RabbitmqTarget(name="broker", url=Secret(tap.url))
    executor = RabbitmqExecutor({"broker": target}, clock=SystemClock())
    effects: list[Effect] = [
        *(Rabbitmq(target="broker", routing_key="q", headers=headers) for headers in HEADERS),
        Rabbitmq(target="broker", routing_key="q", headers={"CC": "another"}),
        Rabbitmq(target="broker", routing_key="q\r\n"),
        Rabbitmq(target="broker", routing_key="q", content_type="a/b\r\n"),
    ]
    await assert_refused(executor, effects, "message not valid")
    assert 0 == tap.publish_count


async def test_kafka_gets_no_record_that_breaks_the_rules(mock_kafka: MockKafka) -> None:
    """Headers, and the cluster's own topics."""
    target = KafkaTarget(name="cluster", bootstrap=mock_kafka.bootstrap)
    executor = KafkaExecutor({"cluster": target}, clock=SystemClock())
    effects: list[Effect] = [
        *(Kafka(target="cluster", topic="t", value="x", headers=headers) for headers in HEADERS),
        Kafka(target="cluster", topic="__consumer_offsets", value="x"),
        Kafka(target="cluster", topic="t", value="x", key="k" * 2000),
    ]
    await assert_refused(executor, effects, "record not valid")
    assert 0 == mock_kafka.produce_count
