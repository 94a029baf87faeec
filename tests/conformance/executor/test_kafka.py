"""The Kafka executor against librdkafka's mock cluster or a real one: the suite, and its own."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gnomon.clock import SystemClock
from gnomon.contracts.observer import SilentObserver
from gnomon.executors._kafka_client import Ack, AiokafkaClient, KafkaOptions, Record, Refusal
from gnomon.executors.kafka import KafkaExecutor, KafkaTarget, record_of
from gnomon.model.errors import ConfigurationError
from gnomon.model.outcome import Failed, Outcome, Succeeded
from gnomon.model.secret import Secret
from gnomon.model.spec import Effect, Kafka
from tests.conformance.executor.suite import ExecutorSuite, Stand, order_of
from tests.fixtures.kafka import MESSAGE_TOO_LARGE, NOT_ENOUGH_REPLICAS, MockKafka, consumed
from tests.fixtures.postgres import free_port

FOREVER = timedelta(hours=1)


class Noting(SilentObserver):
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.events: list[dict[str, object]] = []

    def event(self, name: str, /, **fields: object) -> None:
        self.events.append({"name": name, **fields})


def target_of(bootstrap: str, name: str = "cluster", **options: Any) -> KafkaTarget:
    return KafkaTarget(name=name, bootstrap=bootstrap, **options)


def executor_of(*targets: KafkaTarget, noting: Noting | None = None) -> KafkaExecutor:
    found = {target.name: target for target in targets}
    return KafkaExecutor(found, clock=SystemClock(), observer=noting)


def a_topic() -> str:
    return f"gnomon-test-{uuid.uuid4().hex[:12]}"


def record(topic: str, **fields: Any) -> Kafka:
    return Kafka(**{"target": "cluster", "topic": topic, "value": "x", **fields})


async def received(bootstrap: str, topic: str, count: int) -> list[Record]:
    """The first records of a topic."""
    found: list[Record] = []
    options = target_of(bootstrap).options()
    async with asyncio.timeout(20), aclosing(consumed(options, topic)) as records:
        async for one in records:
            found.append(one)
            if len(found) == count:
                break
    return found


@pytest.fixture
async def executor(kafka_bootstrap: str) -> AsyncIterator[KafkaExecutor]:
    found = executor_of(target_of(kafka_bootstrap))
    yield found
    await found.close()


# -- the suite ------------------------------------------------------------------------------------


class KafkaStand:
    """Good records go to the mock or the real cluster, bad ones to a mock that refuses them."""

    def __init__(self, bootstrap: str, refusing: MockKafka, silent_port: int) -> None:
        self._refusing = refusing
        self._topic = a_topic()
        self._sent = 0
        self.executor = executor_of(
            target_of(bootstrap),
            target_of(refusing.bootstrap, "refusing"),
            target_of(
                f"127.0.0.1:{silent_port}", "silent", connect_timeout=FOREVER,
                request_timeout=FOREVER,
            ),
            target_of(f"127.0.0.1:{free_port()}", "closed"),
            target_of("no-such-host.invalid:9092", "unnamed"),
        )  # fmt: skip

    @property
    def sent_count(self) -> int:
        return self._refusing.produce_count + self._sent

    def succeeding(self) -> Effect:
        self._sent += 1
        return record(self._topic)

    def failing(self) -> Effect:
        return record("any", target="refusing")

    def hanging(self) -> Effect:
        return record("any", target="silent")

    def talkative(self) -> Effect:
        return record(self._topic)

    def broken(self) -> Sequence[Effect]:
        return [
            record("any", target="no-such"),
            record("any", target="closed"),
            record("any", target="unnamed"),
            record("any", value=None),
            record("any", value="\ud800"),
            record("any", value="x" * 2_000_000),
            record("any", json=object()),
            record("any", headers={"a": object()}),
        ]


@pytest.fixture
async def stand(kafka_bootstrap: str, mock_kafka: MockKafka) -> AsyncIterator[KafkaStand]:
    mock_kafka.fail(*[MESSAGE_TOO_LARGE] * 100)
    ended = asyncio.Event()

    async def listen(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await ended.wait()
        writer.transport.abort()

    async with await asyncio.start_server(listen, "127.0.0.1", 0) as silent:
        found = KafkaStand(kafka_bootstrap, mock_kafka, silent.sockets[0].getsockname()[1])
        yield found
        await found.executor.close()
        ended.set()


class TestKafka(ExecutorSuite):
    """The common promises."""

    async def test_a_long_answer_is_cut(self, stand: Stand) -> None:
        """What a cluster answers is short: where the record is."""
        outcome = await stand.executor.execute(order_of(stand.talkative()))
        assert isinstance(outcome, Succeeded)
        assert str(outcome.answer).startswith("partition ")
        assert str(outcome.answer).endswith(", offset 0")


# -- the record -----------------------------------------------------------------------------------


async def test_the_record_tells_about_its_attempt(
    executor: KafkaExecutor, kafka_bootstrap: str
) -> None:
    """Known by the key of the occurrence, with attempt and times beside the user's own headers."""
    topic = a_topic()
    effect = record(topic, key="ann", value=None, json={"b": [1, None]}, headers={"X-Trace": "7"})
    assert isinstance(await executor.execute(order_of(effect, attempt_no=3)), Succeeded)

    (found,) = await received(kafka_bootstrap, topic, 1)
    assert (b"ann", b'{"b":[1,null]}') == (found.key, found.value)
    expected = {
        "X-Trace": b"7",
        "content-type": b"application/json",
        "gnomon-key": b"act_aaaaaaaaaaaaaaaaaaaaaaaaaa",
        "gnomon-attempt": b"3",
        "gnomon-attempt-id": b"00000000-0000-0000-0000-000000000002",
        "gnomon-scheduled-at": b"2026-03-01T12:00:00Z",
        "gnomon-expires-at": b"2026-03-01T12:00:30Z",
    }
    assert expected == dict(found.headers)
    assert found.timestamp_ms is not None
    assert abs(datetime.now(UTC).timestamp() - found.timestamp_ms / 1000) < 60


async def test_one_key_goes_to_one_partition(executor: KafkaExecutor) -> None:
    """Records with the same key keep their order."""
    topic = a_topic()
    outcomes = [await executor.execute(order_of(record(topic, key="ann"))) for _ in range(5)]
    partitions = {str(getattr(outcome, "answer", "")).partition(",")[0] for outcome in outcomes}
    offsets = [str(getattr(outcome, "answer", "")).rpartition(" ")[2] for outcome in outcomes]
    assert 1 == len(partitions)
    assert ["0", "1", "2", "3", "4"] == offsets


@pytest.mark.parametrize(
    ("fields", "value", "content_type"),
    [
        ({"value": "ü"}, "ü".encode(), None),
        ({"value": None, "key": "a"}, None, None),  # a tombstone
        ({"value": None, "json": 0}, b"0", b"application/json"),
        ({"value": None, "json": [], "headers": {"Content-Type": "a/b"}}, b"[]", None),
    ],
)
def test_value_and_type_follow_from_the_effect(
    fields: dict[str, Any], value: bytes | None, content_type: bytes | None
) -> None:
    """JSON says what it is, unless the user does."""
    effect = record("t", **fields)
    found = record_of(order_of(effect), effect, datetime.now(UTC))
    assert value == found.value
    assert content_type == dict(found.headers).get("content-type")


# -- failures -------------------------------------------------------------------------------------


async def test_a_passing_error_is_stored_once(mock_kafka: MockKafka) -> None:
    """What the library repeats within an attempt is one record for the cluster."""
    executor, topic = executor_of(target_of(mock_kafka.bootstrap)), a_topic()
    mock_kafka.fail(NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS)
    outcome = await executor.execute(order_of(record(topic, key="a")))
    assert isinstance(outcome, Succeeded)
    assert "offset 0" in str(outcome.answer)
    after = await executor.execute(order_of(record(topic, key="a")))
    await executor.close()
    assert isinstance(after, Succeeded)
    assert "offset 1" in str(after.answer)
    assert 4 == mock_kafka.produce_count


async def test_a_refused_record_is_a_failure_and_the_next_one_passes(
    mock_kafka: MockKafka,
) -> None:
    """The few words say why; the producer whose numbers have a gap is not used again."""
    noting = Noting()
    executor = executor_of(target_of(mock_kafka.bootstrap), noting=noting)
    mock_kafka.fail(MESSAGE_TOO_LARGE)
    topic = a_topic()
    assert Failed(error="record too large") == await executor.execute(order_of(record(topic)))
    client = executor._links["cluster"].client
    assert isinstance(client, AiokafkaClient)
    assert client._session is None
    assert isinstance(await executor.execute(order_of(record(topic))), Succeeded)
    await executor.close()
    (event,) = noting.events
    assert ("kafka.send_failed", "cluster") == (event["name"], event["target"])
    assert "MessageSizeTooLargeError" in str(event["detail"])


async def test_an_outage_fails_and_what_was_given_up_is_not_sent_later(
    mock_kafka: MockKafka,
) -> None:
    """A failure during the outage, success after it, and only one record in the topic."""
    executor, topic = executor_of(target_of(mock_kafka.bootstrap)), a_topic()
    assert isinstance(await executor.execute(order_of(record(topic, value="1"))), Succeeded)
    mock_kafka.down()
    order = order_of(record(topic, value="2", key="a"), timeout_s=1.0)
    during: list[Outcome] = [await executor.execute(order) for _ in range(3)]
    mock_kafka.up()
    async with asyncio.timeout(20):
        last = order_of(record(topic, value="3", key="a"))
        while not isinstance(await executor.execute(last), Succeeded):
            await asyncio.sleep(0.1)
    await executor.close()

    found = await received(mock_kafka.bootstrap, topic, 2)
    assert all(isinstance(outcome, Failed) and outcome.retryable for outcome in during)
    texts = {outcome.error for outcome in during if isinstance(outcome, Failed)}
    assert texts <= {"timed out after 1 s", "connection failed"}
    assert {b"1", b"3"} == {one.value for one in found}


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"target": "closed"}, "connection failed"),
        ({"value": "x" * 2_000_000}, "record too large"),
        ({"json": object(), "value": None}, "record not valid"),
    ],
)
async def test_what_is_wrong_is_said(
    kafka_bootstrap: str, fields: dict[str, Any], error: str
) -> None:
    """The error is short, may be tried again, and the next record passes."""
    closed = target_of(f"127.0.0.1:{free_port()}", "closed")
    executor, topic = executor_of(target_of(kafka_bootstrap), closed), a_topic()
    for _ in range(2):
        assert Failed(error=error) == await executor.execute(order_of(record(topic, **fields)))
    assert isinstance(await executor.execute(order_of(record(topic))), Succeeded)
    await executor.close()


# -- bounds ---------------------------------------------------------------------------------------


class Counting:
    """A client that holds what it is given until it is released."""

    def __init__(self, _: KafkaOptions) -> None:
        self.now = self.most = 0
        self.released = asyncio.Event()

    async def start(self) -> Refusal | None:
        return None

    async def send(self, records: Sequence[Record]) -> list[Ack | Refusal]:
        self.now += len(records)
        self.most = max(self.most, self.now)
        try:
            await self.released.wait()
        finally:
            self.now -= len(records)
        return [Ack(partition=0, offset=0) for _ in records]

    async def stop(self) -> None: ...


async def test_records_under_way_are_bounded() -> None:
    """No more than `in_flight_max` are given to the client; the others wait."""
    target = target_of("127.0.0.1:1", in_flight_max=3)
    executor = KafkaExecutor({"cluster": target}, clock=SystemClock(), client=Counting)
    client = executor._links["cluster"].client
    assert isinstance(client, Counting)
    tasks = [asyncio.create_task(executor.execute(order_of(record("t")))) for _ in range(10)]
    await asyncio.sleep(0)  # they begin
    late = await executor.execute(order_of(record("t"), timeout_s=0.1))
    assert Failed(error="timed out after 0.1 s") == late
    client.released.set()
    assert [Succeeded(answer="partition 0, offset 0")] * 10 == await asyncio.gather(*tasks)
    assert 3 == client.most


# -- configuration --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"name": "a b"}, "targets.'a b'"),
        ({"bootstrap": ""}, "targets.x.bootstrap"),
        ({"bootstrap": "broker"}, "targets.x.bootstrap"),
        ({"bootstrap": "kafka://broker:9092"}, "targets.x.bootstrap"),
        ({"bootstrap": "a:1,,b:2"}, "targets.x.bootstrap"),
        ({"ca_file": "/ca.pem"}, "targets.x.tls"),
        ({"tls": True, "key_file": "/key.pem"}, "targets.x.key_file"),
        ({"username": "u"}, "targets.x.username"),
        ({"password": Secret("hush-hush")}, "targets.x.username"),
        ({"mechanism": "GSSAPI"}, "targets.x.mechanism"),
        ({"in_flight_max": 0}, "targets.x.in_flight_max"),
        ({"connect_timeout": timedelta(0)}, "targets.x.connect_timeout"),
        ({"request_timeout": timedelta(0)}, "targets.x.request_timeout"),
    ],
)
def test_a_bad_target_is_refused(options: dict[str, Any], path: str) -> None:
    """The error names the setting, never the password."""
    with pytest.raises(ConfigurationError) as caught:
        KafkaTarget(**{"name": "x", "bootstrap": "a:9092,b:9092", **options})
    assert path == caught.value.path
    assert "hush-hush" not in str(caught.value)


def test_a_target_says_how_to_log_in() -> None:
    """TLS and a password make the library's protocol; the target itself shows no password."""
    target = target_of("a:9092", tls=True, username="u", password=Secret("hush-hush"))
    connection = target.options().connection()
    assert ("SASL_SSL", "u", "hush-hush") == (
        connection["security_protocol"],
        connection["sasl_plain_username"],
        connection["sasl_plain_password"],
    )
    assert "hush-hush" not in repr(target)
