"""Messages to RabbitMQ as effects.

Success is the broker's confirm of a persistent message that some queue took: with `mandatory`, a
message that no queue takes comes back before its confirm, and that is a failure. Whatever else
happens on the way (a lost connection, a closed channel, a negative confirm) is a failure that may
be tried again: the receiver knows what it has by the `message_id`, the same for all attempts of
one occurrence.

One connection per target, opened by the first message and, after a loss, by the next one. Nothing
is declared and nothing is sent a second time, so there is no state to restore. The broker answers
a publish to an exchange that does not exist, or that is forbidden, by closing the channel; and
what was sent on that channel meanwhile makes it close the connection. So each exchange has
channels of its own, and a channel is shared only after a first message has passed.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aio_pika
import aio_pika.abc
import msgspec
from aio_pika.exceptions import (
    AMQPError,
    AuthenticationError,
    ChannelNotFoundEntity,
    DeliveryError,
    ProbableAuthenticationError,
    PublishError,
)
from aiormq.exceptions import ChannelAccessRefused

from gnomon.contracts.clock import Clock
from gnomon.contracts.executor import AttemptRequest
from gnomon.contracts.observer import Observer, SilentObserver
from gnomon.executors._target import TlsTarget, no_target, serves_target
from gnomon.model.attempt_boundary import AttemptBoundary
from gnomon.model.effects import validate_message
from gnomon.model.errors import short
from gnomon.model.outcome import Failed, Outcome, Succeeded, cut
from gnomon.model.secret import Secret
from gnomon.model.spec import Rabbitmq
from gnomon.model.timestamp import rfc3339

IN_FLIGHT_MAX = 1_000  # each may need a channel, and brokers allow 2,047 of them
IDLE_CHANNELS_MAX = 100
HEARTBEAT_S = 10  # a silent broker is noticed after three of them; the library's own is 60
RECONNECT_PAUSE_S = 0.2
CLOSE_TIMEOUT_S = 2.0
DETAIL_CHARS_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class RabbitmqTarget(TlsTarget):
    """A broker: where it is, how to log in, and how much may be under way to it at once."""

    url: Secret  # amqp://user:password@host:port/vhost, or amqps://
    in_flight_max: int = 500  # messages sent and not confirmed yet; the others wait
    connect_timeout: timedelta = timedelta(seconds=5)  # to log in, and to open a channel
    # How long a message may wait in its queue before the broker drops it. Never, by default: it
    # would be lost after its success.
    expiration: timedelta | None = None

    def __post_init__(self) -> None:
        TlsTarget.__post_init__(self)
        self._check_url()
        self.check_in_flight(self.in_flight_max, IN_FLIGHT_MAX)
        self.check_durations(connect_timeout=self.connect_timeout, expiration=self.expiration)

    def _check_url(self) -> None:
        try:
            parts = urlsplit(self.url.reveal())
            scheme = parts.scheme if parts.hostname and parts.port != 0 else ""
        except ValueError:
            scheme = ""
        if scheme not in ("amqp", "amqps"):
            self.refuse("url", "must be amqp://user:password@host:port/vhost, or amqps://")
        if scheme == "amqp" and self.has_tls_files:
            self.refuse("url", "must begin with amqps:// when files for TLS are given")

    def ssl_context(self) -> ssl.SSLContext | None:
        """None when the target is not spoken to with TLS."""
        return self.tls_context() if self.url.reveal().startswith("amqps") else None


class RabbitmqExecutor:
    """Publishes messages."""

    def __init__(
        self,
        targets: Mapping[str, RabbitmqTarget],
        *,
        clock: Clock,
        observer: Observer | None = None,
    ) -> None:
        self._clock = clock
        self._observer: Observer = observer or SilentObserver()
        self._links = {name: _RabbitmqLink(target, clock) for name, target in targets.items()}

    def serves(self, need: str) -> bool:
        return serves_target("rabbitmq", self._links, need)

    async def execute(self, order: AttemptRequest) -> Outcome:
        effect = order.effect
        assert isinstance(effect, Rabbitmq)
        link = self._links.get(effect.target)
        if link is None:
            return no_target("rabbitmq", effect.target)
        limit = asyncio.timeout(order.timeout_s)
        with AttemptBoundary(Exception) as attempt:
            async with limit:
                validate_message(effect)  # it may have come into the store by way of SQL
                message = message_of(order, effect, self._clock.now(), link.target.expiration)
                async with link.slots, link.exchange(effect.exchange, order.key) as exchange:
                    await exchange.publish(message, effect.routing_key, mandatory=True)
        if attempt.error is None:
            return Succeeded()
        late = f"timed out after {order.timeout_s:g} s"
        error = late if limit.expired() else _publish_error(attempt.error, effect)
        return self._failed(order, error, attempt.error)

    async def close(self) -> None:
        for link in self._links.values():
            await link.close()

    def _failed(self, order: AttemptRequest, error: str, exc: Exception) -> Failed:
        """The same few words for everybody; the detail is for the operator only."""
        assert isinstance(order.effect, Rabbitmq)
        cause = exc.__cause__ if isinstance(exc, NoConnectionError) else exc
        # Errors of other kinds may quote the message itself.
        detail = str(cause) if isinstance(cause, AMQPError | OSError) else ""
        self._observer.event(
            "rabbitmq.publish_failed",
            id=order.id,
            attempt_id=str(order.attempt_id),
            target=order.effect.target,
            error=error,
            kind=type(cause).__name__,
            detail=cut(detail, DETAIL_CHARS_MAX),
        )
        return Failed(error=cut(error))


# -- the message ----------------------------------------------------------------------------------


def message_of(
    order: AttemptRequest, effect: Rabbitmq, now: datetime, expiration: timedelta | None
) -> aio_pika.Message:
    """The user's message, and beside it what the user cannot change."""
    body, content_type = b"", effect.content_type
    if effect.json is not None:
        body = msgspec.json.encode(effect.json)
        content_type = content_type or "application/json"
    elif effect.body is not None:
        body = effect.body.encode()
        content_type = content_type or "text/plain; charset=utf-8"
    return aio_pika.Message(
        body,
        headers={
            **order.carrier,
            **effect.headers,
            "gnomon-attempt": str(order.attempt_no),
            "gnomon-attempt-id": str(order.attempt_id),
            "gnomon-scheduled-at": rfc3339(order.scheduled_at),
            "gnomon-expires-at": rfc3339(order.deadline),
        },
        content_type=content_type,
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        message_id=order.key,
        timestamp=now,
        expiration=expiration,
        app_id="gnomon",
    )


# -- connection and channels ----------------------------------------------------------------------


class _Channel:
    """A channel for messages to one exchange."""

    __slots__ = ("channel", "exchange", "is_proven", "is_retired", "keys")

    def __init__(
        self, channel: aio_pika.abc.AbstractChannel, exchange: aio_pika.abc.AbstractExchange
    ) -> None:
        self.channel = channel
        self.exchange = exchange
        self.keys: set[str] = set()  # of the messages under way
        self.is_proven = False
        self.is_retired = False

    def takes(self, key: str) -> bool:
        # The library tells returned messages apart by their id alone: of two under way with the
        # same key, one could be confirmed although it was returned.
        is_usable = self.is_proven and not self.is_retired and not self.channel.is_closed
        return is_usable and key not in self.keys


class _RabbitmqLink:
    """The way to one target: its connection, its channels and its bound."""

    def __init__(self, target: RabbitmqTarget, clock: Clock) -> None:
        self.target = target
        self.slots = asyncio.Semaphore(target.in_flight_max)
        self._clock = clock
        self._context = target.ssl_context()
        self._opening = asyncio.Lock()
        self._connection: aio_pika.abc.AbstractConnection | None = None
        self._channels: dict[str, list[_Channel]] = {}
        self._lost: tuple[float, NoConnectionError] | None = None  # until when, and why
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def exchange(self, name: str, key: str) -> AsyncIterator[aio_pika.abc.AbstractExchange]:
        """An exchange to publish a message to, on a channel where no other message has this key."""
        channel = self._find(name, key)
        if channel is None:
            async with self._opening:
                channel = self._find(name, key) or await self._open(name)
        channel.keys.add(key)
        # A message given up may still be returned, and then be taken for the next with its key.
        is_given_up = True
        try:
            yield channel.exchange
            is_given_up = False
        except DeliveryError:
            is_given_up = False
            raise
        finally:
            channel.is_retired = channel.is_retired or is_given_up
            channel.is_proven = not channel.is_retired
            channel.keys.discard(key)
            self._discard_idle(name)

    async def close(self) -> None:
        """Close the connection, and with it all channels."""
        self._channels.clear()
        connection, self._connection = self._connection, None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if connection is not None:
            await _closed(connection.close)

    def _find(self, name: str, key: str) -> _Channel | None:
        channels = self._channels.get(name, ())
        return next((channel for channel in channels if channel.takes(key)), None)

    async def _open(self, name: str) -> _Channel:
        connection = await self._connected()
        try:
            async with asyncio.timeout(self.target.connect_timeout.total_seconds()):
                channel = await connection.channel(on_return_raises=True)
        except TimeoutError as exc:
            self._drop_connection()  # a broker that says nothing: begin anew
            raise NoConnectionError("connection timed out") from exc
        # `ensure` would ask for the exchange first; the publish itself tells as well.
        exchange = await channel.get_exchange(name, ensure=False)
        opened = _Channel(channel, exchange)
        self._channels.setdefault(name, []).append(opened)
        return opened

    async def _connected(self) -> aio_pika.abc.AbstractConnection:
        if self._connection is not None and self._connection.connected.is_set():
            return self._connection
        self._drop_connection()
        if self._lost is not None and self._clock.monotonic() < self._lost[0]:
            # All who waited hear it at once, and the broker is left in peace.
            raise NoConnectionError(str(self._lost[1])) from self._lost[1].__cause__
        try:
            self._connection = await self._connect()
        except (OSError, AMQPError) as exc:
            error = NoConnectionError(_connect_error(exc))
            self._lost = (self._clock.monotonic() + RECONNECT_PAUSE_S, error)
            raise error from exc
        return self._connection

    async def _connect(self) -> aio_pika.abc.AbstractConnection:
        """A new connection, with a heartbeat of ours unless the URL has one."""
        url = self.target.url.reveal()
        options: dict[str, Any] = {}
        if "heartbeat" not in parse_qs(urlsplit(url).query):
            options["heartbeat"] = HEARTBEAT_S
        connection: aio_pika.abc.AbstractConnection = await aio_pika.connect(
            url,
            ssl_context=self._context,
            timeout=self.target.connect_timeout.total_seconds(),
            client_properties={"connection_name": "gnomon"},
            **options,
        )
        return connection

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        self._channels.clear()
        if connection is not None:
            self._in_background(connection.close)

    def _discard_idle(self, name: str) -> None:
        """Forget what is of no more use; close what is still open of it."""
        for channel in list(_idle(self._channels.get(name, ()))):
            if channel.is_retired or channel.channel.is_closed:
                self._discard(name, channel)
        while sum(map(len, self._channels.values())) > IDLE_CHANNELS_MAX:
            oldest = next(
                ((of, idle) for of, channels in self._channels.items() for idle in _idle(channels)),
                None,
            )
            if oldest is None:
                break
            self._discard(*oldest)

    def _discard(self, name: str, channel: _Channel) -> None:
        self._channels[name].remove(channel)
        if not self._channels[name]:
            del self._channels[name]
        if not channel.channel.is_closed:
            self._in_background(channel.channel.close)

    def _in_background(self, close: Callable[[], Awaitable[None]]) -> None:
        task = asyncio.create_task(_closed(close))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _idle(channels: list[_Channel] | tuple[()]) -> Iterator[_Channel]:
    return (channel for channel in channels if not channel.keys)


async def _closed(close: Callable[[], Awaitable[None]]) -> None:
    """Wait for a close, but not for long: the other side may be gone, and that is fine, too."""
    with suppress(AMQPError, OSError, RuntimeError, TimeoutError):
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await close()


# -- errors ---------------------------------------------------------------------------------------


class NoConnectionError(Exception):
    """Nothing was sent; the text is for everybody, the cause for the operator."""


def _connect_error(exc: Exception) -> str:
    if isinstance(exc, AuthenticationError | ProbableAuthenticationError):
        return "login refused"
    if isinstance(exc, TimeoutError):
        return "connection timed out"
    match exc.__cause__:
        case ConnectionRefusedError():
            return "connection refused"
        case socket.gaierror():
            return "name not resolved"
        case ssl.SSLError():
            return "TLS failed"
        case _:
            return "connection failed"


def _publish_error(exc: Exception, effect: Rabbitmq) -> str:
    exchange = short(effect.exchange)
    match exc:
        case NoConnectionError():
            return str(exc)
        case PublishError():
            return f"returned: exchange {exchange} has no queue for {short(effect.routing_key)}"
        case DeliveryError():
            return "refused by the broker"  # a negative confirm: of a full queue, for example
        case ChannelNotFoundEntity():
            return f"there is no exchange {exchange}"
        case ChannelAccessRefused():
            return f"not allowed to publish to exchange {exchange}"
        case AMQPError() | RuntimeError() | OSError():
            return "connection lost before a confirm"
        case _:
            return "message not valid"
