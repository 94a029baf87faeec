"""The trace is told to receivers by headers; the user's own come first."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from yarl import URL

from gnomon.contracts.executor import AttemptRequest
from gnomon.executors.http.config import HttpConfig
from gnomon.executors.http.policy import Policy
from gnomon.executors.http.request import Destination, RequestBuilder
from gnomon.executors.kafka import record_of
from gnomon.executors.push import PushTarget, headers_of
from gnomon.executors.rabbitmq import message_of
from gnomon.model.spec import Effect, Http, Kafka, Push, Rabbitmq
from tests.conformance.executor.suite import order_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TOLD = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OWN = "00-11111111111111111111111111111111-2222222222222222-01"


def traced(effect: Effect) -> AttemptRequest:
    return msgspec.structs.replace(order_of(effect), carrier={"traceparent": TOLD})


@pytest.mark.parametrize(("own", "sent"), [({}, TOLD), ({"Traceparent": OWN}, OWN)])
def test_http_requests_carry_it_once(own: dict[str, str], sent: str) -> None:
    """One header, whatever its letters are."""
    effect = Http("GET", "https://example.org/", headers=own)
    builder = RequestBuilder({}, Policy(HttpConfig()))
    there = Destination.of(URL(effect.url), (), None)
    text = builder.prepare(traced(effect), effect, there, NOW).message.decode()
    lines = [line for line in text.splitlines() if line.lower().startswith("traceparent")]
    assert [f"traceparent: {sent}"] == lines


@pytest.mark.parametrize(("own", "sent"), [({}, TOLD), ({"traceparent": OWN}, OWN)])
def test_messages_and_records_carry_it(own: dict[str, str], sent: str) -> None:
    """Among the headers of RabbitMQ and of Kafka."""
    rabbit = Rabbitmq(target="t", routing_key="r", body="x", headers=own)
    assert sent == message_of(traced(rabbit), rabbit, NOW, None).headers["traceparent"]
    kafka = Kafka(target="t", topic="t", value="x", headers=own)
    assert sent.encode() == dict(record_of(traced(kafka), kafka, NOW).headers)["traceparent"]


def test_pushes_carry_it() -> None:
    """Beside what they always have."""
    target = PushTarget(name="t", url="https://example.org/push")
    effect = Push(target="t", user="ann", payload={}, ttl=timedelta(hours=1))
    assert TOLD == headers_of(traced(effect), target)["traceparent"]
    assert "traceparent" not in headers_of(order_of(effect), target)
