"""Records to Kafka as effects.

Success is the delivery report with `acks=all`: every replica in sync has the record. The producer
is idempotent, so what the library repeats by itself within an attempt is stored once. An attempt
that is given up may have been stored all the same: the receiver knows a record it has by the header
`gnomon-key`, the same for all attempts of one occurrence.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from gnomon.contracts.clock import Clock
from gnomon.contracts.executor import AttemptRequest
from gnomon.contracts.observer import Observer, SilentObserver
from gnomon.executors._kafka_client import (
    Ack,
    AiokafkaClient,
    KafkaClient,
    KafkaOptions,
    Record,
    Refusal,
)
from gnomon.executors._target import TlsTarget, no_target, serves_target
from gnomon.model.attempt_boundary import AttemptBoundary
from gnomon.model.effects import validate_record
from gnomon.model.outcome import Failed, Outcome, Succeeded, cut
from gnomon.model.secret import Secret
from gnomon.model.spec import Kafka
from gnomon.model.timestamp import rfc3339

IN_FLIGHT_MAX = 10_000
DETAIL_CHARS_MAX = 200
_BOOTSTRAP = re.compile(r"[A-Za-z0-9_.\[\]:-]+:[0-9]{1,5}(,[A-Za-z0-9_.\[\]:-]+:[0-9]{1,5})*")


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaTarget(TlsTarget):
    """A cluster: where it is, how to log in, and how much may be under way to it at once."""

    bootstrap: str  # host:port, several with commas between
    tls: bool = False  # encrypted, with the cluster's certificate verified
    username: str | None = None  # of SASL; without it nobody logs in
    password: Secret | None = None  # of SASL
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"  # of SASL
    in_flight_max: int = 1_000  # records sent and not reported yet; the others wait
    connect_timeout: timedelta = timedelta(seconds=5)  # until the cluster has let us in
    request_timeout: timedelta = timedelta(seconds=10)  # for one answer, and to find a topic

    def __post_init__(self) -> None:
        TlsTarget.__post_init__(self)
        if not _BOOTSTRAP.fullmatch(self.bootstrap):
            self.refuse("bootstrap", "must be host:port, several with commas between")
        if not self.tls and self.has_tls_files:
            self.refuse("tls", "must be true when files for TLS are given")
        if (self.username is None) != (self.password is None):
            self.refuse("username", "must come together with a password")
        if self.mechanism not in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
            self.refuse("mechanism", "must be PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512")
        self.check_in_flight(self.in_flight_max, IN_FLIGHT_MAX)
        self.check_durations(
            connect_timeout=self.connect_timeout, request_timeout=self.request_timeout
        )

    def options(self) -> KafkaOptions:
        """For the client."""
        return KafkaOptions(
            bootstrap=self.bootstrap,
            ssl_context=self.tls_context() if self.tls else None,
            username=self.username,
            password=self.password.reveal() if self.password is not None else None,
            mechanism=self.mechanism,
            connect_timeout_s=self.connect_timeout.total_seconds(),
            request_timeout_s=self.request_timeout.total_seconds(),
        )


class _KafkaLink:
    """The way to one target: its client and its bound."""

    def __init__(self, client: KafkaClient, in_flight_max: int) -> None:
        self.client = client
        self.slots = asyncio.Semaphore(in_flight_max)


class KafkaExecutor:
    """Sends records. `client` makes the client of a target."""

    def __init__(
        self,
        targets: Mapping[str, KafkaTarget],
        *,
        clock: Clock,
        observer: Observer | None = None,
        client: Callable[[KafkaOptions], KafkaClient] = AiokafkaClient,
    ) -> None:
        self._clock = clock
        self._observer: Observer = observer or SilentObserver()
        self._links = {
            name: _KafkaLink(client(target.options()), target.in_flight_max)
            for name, target in targets.items()
        }

    def serves(self, need: str) -> bool:
        return serves_target("kafka", self._links, need)

    async def execute(self, order: AttemptRequest) -> Outcome:
        effect = order.effect
        assert isinstance(effect, Kafka)
        link = self._links.get(effect.target)
        if link is None:
            return no_target("kafka", effect.target)
        limit = asyncio.timeout(order.timeout_s)
        with AttemptBoundary(Exception) as attempt:
            async with limit:
                validate_record(effect)  # it may have come into the store by way of SQL
                record = record_of(order, effect, self._clock.now())
                async with link.slots:
                    (answer,) = await link.client.send([record])
            match answer:
                case Ack(partition=partition, offset=offset):
                    return Succeeded(answer=f"partition {partition}, offset {offset}")
                case Refusal():
                    return self._failed(order, answer)
        late = f"timed out after {order.timeout_s:g} s"
        error = late if limit.expired() else "record not valid"
        # The text of an error that we do not know may quote the record.
        return self._failed(order, Refusal(error=error, detail=type(attempt.failure).__name__))

    async def close(self) -> None:
        for link in self._links.values():
            await link.client.stop()

    def _failed(self, order: AttemptRequest, refusal: Refusal) -> Failed:
        """The same few words for everybody; the detail is for the operator only."""
        assert isinstance(order.effect, Kafka)
        self._observer.event(
            "kafka.send_failed",
            id=order.id,
            attempt_id=str(order.attempt_id),
            target=order.effect.target,
            error=refusal.error,
            detail=cut(refusal.detail, DETAIL_CHARS_MAX),
        )
        return Failed(error=refusal.error)


def record_of(order: AttemptRequest, effect: Kafka, now: datetime) -> Record:
    """The user's record, and beside it what the user cannot change."""
    headers = {**order.carrier, **effect.headers}
    value: bytes | None = None
    if effect.json is not None:
        value = msgspec.json.encode(effect.json)
        if not any(name.lower() == "content-type" for name in headers):
            headers["content-type"] = "application/json"
    elif effect.value is not None:
        value = effect.value.encode()
    headers |= {
        "gnomon-key": order.key,
        "gnomon-attempt": str(order.attempt_no),
        "gnomon-attempt-id": str(order.attempt_id),
        "gnomon-scheduled-at": rfc3339(order.scheduled_at),
        "gnomon-expires-at": rfc3339(order.deadline),
    }
    return Record(
        topic=effect.topic,
        key=effect.key.encode() if effect.key is not None else None,
        value=value,
        headers=tuple((name, text.encode()) for name, text in headers.items()),
        timestamp_ms=int(now.timestamp() * 1000),
    )
