"""The one module that knows the Kafka library, behind three methods: start, send, stop.

The library's idempotent producer never gives a record up: it repeats it until it succeeds, also
long after the caller has gone. And once the broker has refused a record for good, the numbers of
the following ones have a gap that it refuses as well. So a producer in which a record was given up
or refused is retired: the next record gets a new one, and what is left in the old one is dropped
as soon as nobody waits for it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import aiokafka
from aiokafka import errors

LINGER_MS = 5
RECONNECT_PAUSE_S = 0.2
STOP_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What is sent."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack:
    """All replicas in sync have the record."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The record may not be there; `error` is for everybody, `detail` for the operator."""

    error: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOptions:
    """How to reach a cluster."""

    bootstrap: str
    ssl_context: ssl.SSLContext | None
    username: str | None
    password: str | None
    mechanism: str
    connect_timeout_s: float
    request_timeout_s: float

    def connection(self) -> dict[str, Any]:
        """The options of all clients of aiokafka."""
        protocol = "SASL_" if self.username is not None else ""
        protocol += "SSL" if self.ssl_context is not None else "PLAINTEXT"
        return {
            "bootstrap_servers": self.bootstrap,
            "client_id": "gnomon",
            "security_protocol": protocol,
            "ssl_context": self.ssl_context,
            "sasl_mechanism": self.mechanism,
            "sasl_plain_username": self.username,
            "sasl_plain_password": self.password,
            "request_timeout_ms": int(self.request_timeout_s * 1000),
        }


class KafkaClient(Protocol):
    """What Gnomon needs of a Kafka library."""

    async def start(self) -> Refusal | None:
        """Connect, unless connected already. None when it is."""
        ...

    async def send(self, records: Sequence[Record]) -> list[Ack | Refusal]:
        """Send them and wait for all replicas in sync. One answer for each, in their order."""
        ...

    async def stop(self) -> None:
        """Disconnect; what was not sent is dropped."""
        ...


class _Session:
    """A producer, and how many wait for it."""

    __slots__ = ("is_retired", "producer", "waiting_count")

    def __init__(self, producer: aiokafka.AIOKafkaProducer) -> None:
        self.producer = producer
        self.waiting_count = 0
        self.is_retired = False


class AiokafkaClient:
    """The three methods, by aiokafka."""

    def __init__(self, options: KafkaOptions) -> None:
        self._options = options
        self._opening = asyncio.Lock()
        self._session: _Session | None = None
        self._refused: tuple[float, Refusal] | None = None  # until when, and why
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> Refusal | None:
        async with self._opening:
            if self._session is not None:
                return None
            now = asyncio.get_running_loop().time()
            if self._refused is not None and now < self._refused[0]:
                return self._refused[1]  # all who waited hear it at once
            refusal = await self._open()
            if refusal is not None:
                until = asyncio.get_running_loop().time() + RECONNECT_PAUSE_S
                self._refused = (until, refusal)
            return refusal

    async def send(self, records: Sequence[Record]) -> list[Ack | Refusal]:
        if self._session is None and (refusal := await self.start()) is not None:
            return [refusal] * len(records)
        session = self._session
        if session is None:  # retired between the two lines
            return [Refusal(error="connection lost")] * len(records)
        session.waiting_count += 1
        try:
            return await asyncio.gather(*(self._send(session, record) for record in records))
        finally:
            session.waiting_count -= 1
            self._close_if_unused(session)

    async def stop(self) -> None:
        if self._session is not None:
            session = self._session
            self._retire(session)
            self._close_if_unused(session)
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _open(self) -> Refusal | None:
        producer = aiokafka.AIOKafkaProducer(
            acks="all",
            enable_idempotence=True,
            linger_ms=LINGER_MS,
            **self._options.connection(),
        )
        is_open = False
        try:
            async with asyncio.timeout(self._options.connect_timeout_s):
                await producer.start()
            is_open = True
        except TimeoutError:
            return Refusal(error="connection timed out")
        except errors.KafkaError as exc:
            return await self._tls_refusal() or _refusal_of(exc, "connection failed")
        finally:
            if not is_open:
                await producer.stop()  # nothing is in it
        self._session = _Session(producer)
        return None

    async def _tls_refusal(self) -> Refusal | None:
        """Why TLS fails, if it is TLS: the library says only that it could not connect."""
        context = self._options.ssl_context
        if context is None:
            return None
        for place in self._options.bootstrap.split(","):
            host, _, port = place.rpartition(":")
            try:
                async with asyncio.timeout(self._options.connect_timeout_s):
                    _, writer = await asyncio.open_connection(
                        host.strip("[]"), int(port), ssl=context
                    )
            except ssl.SSLError as exc:
                return Refusal(error="TLS failed", detail=f"{place}: {exc}")
            except (OSError, TimeoutError):
                continue
            writer.close()
        return None

    async def _send(self, session: _Session, record: Record) -> Ack | Refusal:
        is_pending = False
        try:
            report = await session.producer.send(
                record.topic,
                record.value,
                key=record.key,
                timestamp_ms=record.timestamp_ms,
                headers=list(record.headers),
            )
            is_pending = True
            stored = await report
            is_pending = False
        except errors.KafkaError as exc:
            return _refusal_of(exc, "not accepted by the cluster")
        finally:
            if is_pending:
                self._retire(session)
        return Ack(partition=stored.partition, offset=stored.offset)

    def _retire(self, session: _Session) -> None:
        session.is_retired = True
        if self._session is session:
            self._session = None

    def _close_if_unused(self, session: _Session) -> None:
        if session.is_retired and session.waiting_count == 0:
            task = asyncio.create_task(_closed(session.producer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


async def _closed(producer: aiokafka.AIOKafkaProducer) -> None:
    """Close without sending what is left, which the library's own `stop` would wait for."""
    sender = producer._sender.sender_task  # noqa: SLF001 - there is no public way
    if sender is not None:
        sender.cancel()
        await asyncio.wait([sender], timeout=STOP_TIMEOUT_S)
    producer._message_accumulator.fail_all(errors.ProducerClosed())  # noqa: SLF001 - same
    with suppress(errors.KafkaError, TimeoutError):
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await producer.stop()
    await producer.client.close()


_TEXTS: dict[type[errors.KafkaError], str] = {
    errors.UnknownTopicOrPartitionError: "there is no such topic",
    errors.InvalidTopicError: "topic not valid",
    errors.TopicAuthorizationFailedError: "not allowed to write to the topic",
    errors.ClusterAuthorizationFailedError: "not allowed to write to the cluster",
    errors.SaslAuthenticationFailed: "login refused",
    errors.MessageSizeTooLargeError: "record too large",
    errors.RecordListTooLargeError: "record too large",
    errors.NotEnoughReplicasError: "not enough replicas",
    errors.KafkaConnectionError: "connection failed",
    errors.KafkaTimeoutError: "connection timed out",
    errors.RequestTimedOutError: "connection timed out",
}


def _refusal_of(exc: errors.KafkaError, otherwise: str) -> Refusal:
    return Refusal(error=_TEXTS.get(type(exc), otherwise), detail=f"{type(exc).__name__}: {exc}")
