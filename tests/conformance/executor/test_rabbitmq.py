"""The RabbitMQ executor against a real server: the suite, and what is its own."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import aio_pika
import aio_pika.abc
import pytest

from gnomon.clock import SystemClock
from gnomon.contracts.executor import AttemptRequest
from gnomon.contracts.observer import SilentObserver
from gnomon.executors.rabbitmq import (
    IDLE_CHANNELS_MAX,
    RabbitmqExecutor,
    RabbitmqTarget,
    message_of,
)
from gnomon.model.errors import ConfigurationError
from gnomon.model.outcome import Failed, Outcome, Succeeded
from gnomon.model.secret import Secret
from gnomon.model.spec import Effect, Rabbitmq
from tests.conformance.executor.suite import ExecutorSuite, Stand, order_of
from tests.fixtures.amqp_tap import AmqpTap
from tests.fixtures.postgres import free_port
from tests.fixtures.rabbitmq import RabbitmqServer, StopMode

QUEUE = "gnomon-test"
NOBODY = "nobody-listens"
numbers = itertools.count()


class Noting(SilentObserver):
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.events: list[dict[str, object]] = []

    def event(self, name: str, /, **fields: object) -> None:
        self.events.append({"name": name, **fields})


def target_of(url: str, name: str = "broker", **options: Any) -> RabbitmqTarget:
    return RabbitmqTarget(name=name, url=Secret(url), **options)


def executor_of(*targets: RabbitmqTarget, noting: Noting | None = None) -> RabbitmqExecutor:
    found = {target.name: target for target in targets}
    return RabbitmqExecutor(found, clock=SystemClock(), observer=noting)


def message(**fields: Any) -> Rabbitmq:
    return Rabbitmq(**{"target": "broker", "routing_key": QUEUE, **fields})


def order_with_own_key(effect: Effect, *, timeout_s: float = 30.0) -> AttemptRequest:
    return order_of(effect, timeout_s=timeout_s, key=f"act_{next(numbers)}")


@pytest.fixture
async def broker(rabbitmq: RabbitmqServer) -> AsyncIterator[aio_pika.abc.AbstractChannel]:
    """A channel of the test's own, and an empty durable queue."""
    async with await aio_pika.connect(rabbitmq.url) as connection:
        channel = await connection.channel()
        await channel.declare_queue(QUEUE, durable=True)
        yield channel
        await channel.queue_delete(QUEUE)


@pytest.fixture
async def executor(
    rabbitmq: RabbitmqServer, broker: aio_pika.abc.AbstractChannel
) -> AsyncIterator[RabbitmqExecutor]:
    found = executor_of(target_of(rabbitmq.url))
    yield found
    await found.close()


async def received(
    channel: aio_pika.abc.AbstractChannel, queue: str = QUEUE
) -> list[aio_pika.abc.AbstractIncomingMessage]:
    """Everything in the queue, taken out of it."""
    found = []
    source = await channel.get_queue(queue)
    while (one := await source.get(no_ack=True, fail=False)) is not None:
        found.append(one)
    return found


# -- the suite ------------------------------------------------------------------------------------


class RabbitmqStand:
    def __init__(self, tap: AmqpTap, mute: AmqpTap) -> None:
        self._taps = (tap, mute)
        closed = f"127.0.0.1:{free_port()}"
        self.executor = executor_of(
            target_of(tap.url),
            target_of(mute.url, "mute"),
            target_of(f"amqp://guest:guest@{closed}/", "closed"),
            target_of("amqp://guest:guest@no-such-host.invalid/", "unnamed"),
            target_of(tap.url.replace("guest:guest", "guest:wrong"), "stranger"),
            target_of(f"{tap.url}no-such-vhost", "elsewhere"),
        )

    @property
    def sent_count(self) -> int:
        return sum(tap.publish_count for tap in self._taps)

    def succeeding(self) -> Effect:
        return message(json={"name": "ann"})

    def failing(self) -> Effect:
        return message(routing_key=NOBODY)

    def hanging(self) -> Effect:
        return message(target="mute")

    def talkative(self) -> Effect:
        return message()

    def broken(self) -> Sequence[Effect]:
        return [
            message(target="no-such"),
            message(target="closed"),
            message(target="unnamed"),
            message(target="stranger"),
            message(target="elsewhere"),
            message(exchange="no-such"),
            message(exchange="amq.rabbitmq.trace"),  # not to be published to
            message(exchange="x" * 300),
            message(routing_key="x" * 300),
            message(content_type="x" * 300),
            message(json=object()),
            message(body="\ud800"),
            message(headers={"a": object()}),
            message(headers={"CC": "no-list"}),
        ]


@pytest.fixture
async def stand(
    rabbitmq: RabbitmqServer, broker: aio_pika.abc.AbstractChannel
) -> AsyncIterator[RabbitmqStand]:
    async with AmqpTap(rabbitmq.port) as tap, AmqpTap(rabbitmq.port, is_mute=True) as mute:
        found = RabbitmqStand(tap, mute)
        yield found
        await found.executor.close()


class TestRabbitmq(ExecutorSuite):
    """The common promises."""

    async def test_a_long_answer_is_cut(self, stand: Stand) -> None:
        """A broker confirms and says nothing more: there is no answer to store."""
        outcome = await stand.executor.execute(order_of(stand.talkative()))
        assert Succeeded(answer=None) == outcome


# -- the message ----------------------------------------------------------------------------------


async def test_the_message_tells_about_its_attempt(
    executor: RabbitmqExecutor, broker: aio_pika.abc.AbstractChannel
) -> None:
    """Persistent, known by the key, with attempt and times beside the user's own headers."""
    effect = message(json={"b": [1, None]}, headers={"X-Trace": "7"})
    assert Succeeded() == await executor.execute(order_of(effect, attempt_no=3))

    (found,) = await received(broker)
    assert b'{"b":[1,null]}' == found.body
    assert "application/json" == found.content_type
    assert "act_aaaaaaaaaaaaaaaaaaaaaaaaaa" == found.message_id
    assert aio_pika.DeliveryMode.PERSISTENT == found.delivery_mode
    assert "gnomon" == found.app_id
    assert found.expiration is None
    assert found.timestamp is not None
    assert abs(datetime.now(UTC) - found.timestamp) < timedelta(minutes=1)
    expected = {
        "X-Trace": "7",
        "gnomon-attempt": "3",
        "gnomon-attempt-id": "00000000-0000-0000-0000-000000000002",
        "gnomon-scheduled-at": "2026-03-01T12:00:00Z",
        "gnomon-expires-at": "2026-03-01T12:00:30Z",
    }
    assert expected == found.headers


@pytest.mark.parametrize(
    ("fields", "body", "content_type"),
    [
        ({}, b"", None),
        ({"body": "ü"}, "ü".encode(), "text/plain; charset=utf-8"),
        ({"body": "a;b", "content_type": "text/csv"}, b"a;b", "text/csv"),
        ({"json": 0}, b"0", "application/json"),
        ({"json": [], "content_type": "application/x"}, b"[]", "application/x"),
    ],
)
def test_body_and_type_follow_from_the_effect(
    fields: dict[str, Any], body: bytes, content_type: str | None
) -> None:
    """JSON and text have their usual types, unless the user names one."""
    effect = message(**fields)
    found = message_of(order_of(effect), effect, datetime.now(UTC), None)
    assert (body, content_type) == (found.body, found.content_type)


async def test_a_target_may_let_messages_expire(
    rabbitmq: RabbitmqServer, broker: aio_pika.abc.AbstractChannel
) -> None:
    """With `expiration` the broker drops what nobody took in time."""
    executor = executor_of(target_of(rabbitmq.url, expiration=timedelta(minutes=5)))
    assert Succeeded() == await executor.execute(order_of(message()))
    await executor.close()
    (found,) = await received(broker)
    assert 300 == found.expiration


# -- failures -------------------------------------------------------------------------------------


async def test_a_message_that_no_queue_takes_is_a_failure(
    executor: RabbitmqExecutor, broker: aio_pika.abc.AbstractChannel
) -> None:
    """The broker confirms it all the same; being returned is what counts."""
    await broker.declare_exchange("gnomon-empty", auto_delete=False)
    lost = message(exchange="gnomon-empty", routing_key="a")
    error = "returned: exchange 'gnomon-empty' has no queue for 'a'"
    assert Failed(error=error) == await executor.execute(order_of(lost))
    await broker.exchange_delete("gnomon-empty")
    assert Succeeded() == await executor.execute(order_of(message()))


async def test_returned_messages_are_told_apart_though_their_keys_are_equal(
    executor: RabbitmqExecutor,
) -> None:
    """Two attempts of one occurrence under way at once: each hears of its own message."""
    effects = [message(routing_key=NOBODY if number % 2 else QUEUE) for number in range(20)]
    outcomes = await asyncio.gather(*(executor.execute(order_of(effect)) for effect in effects))
    found = [isinstance(outcome, Succeeded) for outcome in outcomes]
    assert [number % 2 == 0 for number in range(20)] == found


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"exchange": "no-such"}, "there is no exchange 'no-such'"),
        (
            {"exchange": "amq.rabbitmq.trace"},
            "not allowed to publish to exchange 'amq.rabbitmq.trace'",
        ),
        ({"json": object()}, "message not valid"),
    ],
)
async def test_what_is_wrong_is_said(
    executor: RabbitmqExecutor, fields: dict[str, Any], error: str
) -> None:
    """The error names what is missing, may be tried again, and the next message passes."""
    for _ in range(2):
        assert Failed(error=error) == await executor.execute(order_of(message(**fields)))
    assert Succeeded() == await executor.execute(order_of(message()))


async def test_an_unknown_exchange_does_not_disturb_the_others(
    executor: RabbitmqExecutor,
) -> None:
    """The channel that the broker closes in anger carries nobody else's messages."""
    good = [executor.execute(order_with_own_key(message())) for _ in range(50)]
    bad = [executor.execute(order_with_own_key(message(exchange="no-such"))) for _ in range(50)]
    outcomes = await asyncio.gather(*itertools.chain(*zip(good, bad, strict=True)))
    assert [Succeeded()] * 50 == outcomes[::2]
    assert [Failed(error="there is no exchange 'no-such'")] * 50 == outcomes[1::2]


async def test_a_full_queue_is_a_failure(
    executor: RabbitmqExecutor, broker: aio_pika.abc.AbstractChannel
) -> None:
    """A negative confirm is no success."""
    arguments: Any = {"x-max-length": 1, "x-overflow": "reject-publish"}
    queue = await broker.declare_queue("gnomon-full", arguments=arguments)
    orders = [order_of(message(routing_key="gnomon-full")) for _ in range(2)]
    outcomes = [await executor.execute(order) for order in orders]
    await queue.delete(if_empty=False)
    assert [Succeeded(), Failed(error="refused by the broker")] == outcomes


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (("guest:guest", "guest:wrong-word"), "login refused"),
        (("amqp:", "amqps:"), "TLS failed"),
        (("127.0.0.1", "no-such-host.invalid"), "name not resolved"),
    ],
)
async def test_a_connection_that_cannot_be_made_is_a_failure(
    rabbitmq: RabbitmqServer, change: tuple[str, str], error: str
) -> None:
    """Few words for the user, the detail for the operator, and the password for nobody."""
    noting = Noting()
    target = target_of(rabbitmq.url.replace(*change))
    executor = executor_of(target, noting=noting)
    outcome = await executor.execute(order_of(message()))
    await executor.close()
    assert Failed(error=error) == outcome
    (event,) = noting.events
    assert ("rabbitmq.publish_failed", "broker") == (event["name"], event["target"])
    assert event["detail"]
    assert "wrong-word" not in repr((event, target, outcome))


async def test_a_silent_broker_is_left_after_the_connect_timeout() -> None:
    """Something listens and says nothing: all who wait hear of it at the same time."""

    async def listen(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(1)
        writer.transport.abort()

    async with await asyncio.start_server(listen, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        target = target_of(
            f"amqp://guest:guest@127.0.0.1:{port}/", connect_timeout=timedelta(seconds=0.2)
        )
        executor = executor_of(target)
        orders = [executor.execute(order_with_own_key(message())) for _ in range(20)]
        outcomes = await asyncio.wait_for(asyncio.gather(*orders), 20)
        await executor.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.wait(others)  # the listeners: they close what they have
    assert [Failed(error="connection timed out")] * 20 == outcomes


# -- bounds ---------------------------------------------------------------------------------------


async def test_messages_under_way_are_bounded(
    rabbitmq: RabbitmqServer, broker: aio_pika.abc.AbstractChannel
) -> None:
    """No more than `in_flight_max` are sent before a confirm; the others wait, and time out."""
    async with AmqpTap(rabbitmq.port, is_mute=True) as mute:
        executor = executor_of(target_of(mute.url, in_flight_max=3))
        tasks = [
            asyncio.create_task(executor.execute(order_with_own_key(message()))) for _ in range(10)
        ]
        async with asyncio.timeout(20):
            while mute.publish_count < 3:
                await asyncio.sleep(0.01)
        late = await executor.execute(order_with_own_key(message(), timeout_s=0.2))
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await executor.close()
    assert Failed(error="timed out after 0.2 s") == late
    assert 3 == mute.publish_count


async def test_channels_are_bounded(
    rabbitmq: RabbitmqServer, broker: aio_pika.abc.AbstractChannel
) -> None:
    """However many exchanges were written to, only some channels are kept; one connection."""
    async with AmqpTap(rabbitmq.port) as tap:
        executor = executor_of(target_of(tap.url))
        names = [f"gnomon-many-{number}" for number in range(IDLE_CHANNELS_MAX + 20)]
        for name in names:
            exchange = await broker.declare_exchange(name, aio_pika.ExchangeType.FANOUT)
            await (await broker.get_queue(QUEUE)).bind(exchange)
        effects = [message(exchange=name) for name in names]
        outcomes = [await executor.execute(order_with_own_key(effect)) for effect in effects]
        kept = sum(len(found) for found in executor._links["broker"]._channels.values())
        for name in names:
            await broker.exchange_delete(name)
        await executor.close()
    assert [Succeeded()] * len(names) == outcomes
    assert IDLE_CHANNELS_MAX == kept
    assert 1 == tap.connection_count


async def test_a_message_given_up_retires_its_channel(
    rabbitmq: RabbitmqServer, broker: aio_pika.abc.AbstractChannel
) -> None:
    """Its late return must not be taken for the next message with the same key."""
    async with AmqpTap(rabbitmq.port, is_mute=True) as mute:
        executor = executor_of(target_of(mute.url))
        link = executor._links["broker"]
        for timeout_s in (3.0, 0.5, 0.5):  # the first one connects
            await executor.execute(order_of(message(), timeout_s=timeout_s))
            assert {} == link._channels
        await executor.close()
    assert 3 == mute.publish_count
    assert 1 == mute.connection_count


# -- the server goes away -------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["kill", "fast"])
async def test_a_restart_of_the_server_makes_no_false_success(
    rabbitmq: RabbitmqServer, mode: StopMode
) -> None:
    """Killed or shut down in the middle of 200 messages and started again: each success is in the
    queue, each failure may be tried again and succeeds once the server is back."""
    async with await aio_pika.connect(rabbitmq.url) as connection:
        await (await connection.channel()).declare_queue(QUEUE, durable=True)
    executor = executor_of(target_of(rabbitmq.url))
    succeeded: list[str] = []
    failures: list[Outcome] = []
    is_halfway = asyncio.Event()

    async def deliver() -> None:
        order = order_with_own_key(message(body="x" * 1000))
        while not isinstance(outcome := await executor.execute(order), Succeeded):
            failures.append(outcome)
            await asyncio.sleep(0.2)
        succeeded.append(order.key)
        if len(succeeded) == 40:
            is_halfway.set()

    slots = asyncio.Semaphore(20)

    async def deliver_in_turn() -> None:
        async with slots:
            await deliver()

    async with asyncio.timeout(150), asyncio.TaskGroup() as tasks:
        for _ in range(200):
            tasks.create_task(deliver_in_turn())
        await is_halfway.wait()
        await asyncio.to_thread(rabbitmq.restart, mode)
    await executor.close()

    async with await aio_pika.connect(rabbitmq.url) as connection:
        channel = await connection.channel()
        found = {one.message_id for one in await received(channel)}
        await channel.queue_delete(QUEUE)
    assert 200 == len(succeeded)
    assert set(succeeded) == found
    assert failures
    assert all(isinstance(failure, Failed) and failure.retryable for failure in failures)
    texts = {failure.error for failure in failures if isinstance(failure, Failed)}
    assert texts <= {
        "connection lost before a confirm",
        "connection refused",
        "connection failed",
        "there is no exchange ''",
        f"returned: exchange '' has no queue for '{QUEUE}'",
    }


# -- configuration --------------------------------------------------------------------------------

URL = "amqp://guest:hush-hush@broker.example:5672/"


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"name": "a b"}, "targets.'a b'"),
        ({"url": Secret("http://hush-hush/")}, "targets.x.url"),
        ({"url": Secret("amqp:///hush-hush")}, "targets.x.url"),
        ({"url": Secret("amqp://hush-hush:0/")}, "targets.x.url"),
        ({"url": Secret("amqp://hush-hush:x/")}, "targets.x.url"),
        ({"url": Secret("")}, "targets.x.url"),
        ({"ca_file": "/ca.pem"}, "targets.x.url"),
        ({"url": Secret("amqps://a/"), "key_file": "/key.pem"}, "targets.x.key_file"),
        ({"in_flight_max": 0}, "targets.x.in_flight_max"),
        ({"in_flight_max": 1001}, "targets.x.in_flight_max"),
        ({"connect_timeout": timedelta(0)}, "targets.x.connect_timeout"),
        ({"expiration": timedelta(0)}, "targets.x.expiration"),
    ],
)
def test_a_bad_target_is_refused(options: dict[str, Any], path: str) -> None:
    """The error names the setting, never what the address holds."""
    with pytest.raises(ConfigurationError) as caught:
        RabbitmqTarget(**{"name": "x", "url": Secret(URL), **options})
    assert path == caught.value.path
    assert "hush-hush" not in str(caught.value)


def test_tls_files_that_cannot_be_read_are_refused() -> None:
    """At start, not with the first message."""
    target = target_of("amqps://a.example/", ca_file="/no/such/file.pem")
    with pytest.raises(ConfigurationError, match="cannot be loaded"):
        executor_of(target)


def test_a_target_hides_its_address() -> None:
    """The address holds a password."""
    assert "hush-hush" not in repr(target_of(URL))
