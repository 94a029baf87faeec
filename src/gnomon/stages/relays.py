"""Where saved versions go: a function, or a receiver that an executor reaches.

An executor's effect is one save as one JSON object, the same for all of them. Of one entity the
saves leave one after the other, each after the acknowledgement of the one before; different
entities do not wait for each other. At least once: a receiver knows a repeat by its key, and by a
version that is not higher than what it has.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, timedelta
from typing import Any
from urllib.parse import quote

import msgspec

from gnomon.contracts.env import Env
from gnomon.contracts.executor import AttemptRequest, Executor
from gnomon.contracts.store.entities import StageState
from gnomon.contracts.store.outbox import OutboxRow
from gnomon.model.errors import ConfigurationError
from gnomon.model.ids import EntityKey
from gnomon.model.outcome import Failed, Succeeded
from gnomon.model.spec import Effect, Http, Kafka, Rabbitmq
from gnomon.stages.codec import EntityCodec
from gnomon.stages.config import KIND_PLACE, StagesConfig
from gnomon.stages.delivery import AT_ONCE, deliver_in_order, saved_version
from gnomon.stages.sender import UndeliverableError
from gnomon.stages.stage import SavedVersion

JSON_TYPE = "application/json"
KAFKA_MESSAGE_MAX = 1_048_576 - 4_096  # of a request, less what goes with the message
_MARKS = "!#$&'()*+,-./:;<=>?@[]_~"  # visible ASCII stays readable; the rest is percent-encoded


class NotDeliveredError(Exception):
    """The receiver did not acknowledge it."""


ToEffect = Callable[[OutboxRow], Effect]


class FunctionRelay:
    """Calls a function of this process with each save."""

    def __init__(
        self,
        function: Callable[[SavedVersion[Any, Any]], Awaitable[None]],
        *,
        entity: Any = dict,
        at_once: int = AT_ONCE,
    ) -> None:
        self._function = function
        self._entities = EntityCodec(entity)
        self._at_once = at_once

    async def send(self, rows: Sequence[OutboxRow]) -> Sequence[Exception | None]:
        return await deliver_in_order(rows, self._deliver, at_once=self._at_once)

    async def _deliver(self, row: OutboxRow) -> None:
        entity = None if row.doc is None else self._entities.decode(row.doc)
        state = None if row.state is None else _plain(row.state)
        await self._function(saved_version(row, entity, state))

    async def close(self) -> None: ...


class EffectRelay:
    """Sends saves through an executor. It is the executor's owner who closes it."""

    def __init__(
        self, executor: Executor, effect_of: ToEffect, *, env: Env, timeout: timedelta
    ) -> None:
        self._executor = executor
        self._effect_of = effect_of
        self._clock = env.clock
        self._entropy = env.entropy
        self._timeout = timeout

    async def send(self, rows: Sequence[OutboxRow]) -> Sequence[Exception | None]:
        return await deliver_in_order(rows, self._deliver)

    async def _deliver(self, row: OutboxRow) -> None:
        outcome = await self._executor.execute(self._order(row))
        match outcome:
            case Succeeded():
                return
            case Failed(error=error):
                raise NotDeliveredError(error)
            case _:  # handed back, cut short: whatever it is, nobody said that it arrived
                raise NotDeliveredError(f"it was {type(outcome).__name__.lower()}")

    def _order(self, row: OutboxRow) -> AttemptRequest:
        return AttemptRequest(
            id=row.entity_key,
            guid=self._entropy.token(),
            key_of=lambda: row.key,
            attempt_id=self._entropy.guid(),
            attempt_no=row.attempts + 1,
            occurrence_no=row.version,
            scheduled_at=row.at,
            deadline=self._clock.now() + self._timeout,
            timeout_s=self._timeout.total_seconds(),
            effect=self._effect_of(row),
        )

    async def close(self) -> None: ...


def relay_of(
    config: StagesConfig,
    kinds: Mapping[str, tuple[str, Any]],
    executors: Mapping[type[Effect], Executor],
    *,
    env: Env,
) -> EffectRelay | None:
    """The relay that the settings name. `kinds`: of every target, its kind and itself.

    Errors: ConfigurationError.
    """
    if config.relay is None:
        return None
    kind, target = kinds.get(config.relay, ("", None))
    made: Mapping[str, tuple[type[Effect], ToEffect]] = {
        "kafka": (Kafka, lambda row: kafka_record(config, row)),
        "rabbitmq": (Rabbitmq, lambda row: rabbitmq_message(config, row)),
        "http": (Http, lambda row: http_call(config.relay_url or target.url_prefix, row)),
    }
    if kind not in made:
        raise ConfigurationError(
            "stages.relay", f"must name a target of kind {', '.join(made)} (got {config.relay!r})"
        )
    effect, effect_of = made[kind]
    return EffectRelay(executors[effect], effect_of, env=env, timeout=config.relay_timeout)


# -- effects --------------------------------------------------------------------------------------


def kafka_record(config: StagesConfig, row: OutboxRow) -> Kafka:
    """Keyed by the entity, so that its saves stay in one partition."""
    message = message_of(row)
    if len(message) > KAFKA_MESSAGE_MAX:
        raise UndeliverableError(
            f"the message has {len(message)} bytes, and Kafka takes {KAFKA_MESSAGE_MAX}"
        )
    return Kafka(
        target=config.relay or "",
        topic=_for_kind(config.relay_topic, row),
        key=row.entity_key,
        value=message.decode(),
        headers={"content-type": JSON_TYPE, **headers_of(row)},
    )


def rabbitmq_message(config: StagesConfig, row: OutboxRow) -> Rabbitmq:
    """Its message id is the save's key."""
    return Rabbitmq(
        target=config.relay or "",
        exchange=config.relay_exchange,
        routing_key=_for_kind(config.relay_routing_key, row),
        body=message_of(row).decode(),
        content_type=JSON_TYPE,
        headers=headers_of(row),
    )


def http_call(url: str, row: OutboxRow) -> Http:
    """A POST with the save's key as its Webhook-Id."""
    return Http(
        "POST", _for_kind(url, row), headers=headers_of(row), json=msgspec.Raw(message_of(row))
    )


def _for_kind(template: str, row: OutboxRow) -> str:
    """A place that may depend on the kind of the entity."""
    return template.replace(KIND_PLACE, EntityKey.parse(row.entity_key).kind)


def headers_of(row: OutboxRow) -> dict[str, str]:
    """What a receiver may want to know before it reads the message; executors add the key."""
    kind, entity_id = EntityKey.parse(row.entity_key)
    return {
        "entity-kind": kind,
        "entity-id": entity_id,
        "entity-epoch": str(row.epoch),
        "entity-version": str(row.version),
        "entity-save": str(row.n),
        "entity-author": quote(row.author, safe=_MARKS),
        "entity-root": str(row.root),
    }


def message_of(row: OutboxRow) -> bytes:
    """A save as JSON: the entity, the state saved with it, and how it came about."""
    kind, entity_id = EntityKey.parse(row.entity_key)
    return msgspec.json.encode(
        {
            "kind": kind,
            "id": entity_id,
            "epoch": row.epoch,
            "version": row.version,
            "save": row.n,  # higher with every save of the entity, also where the version is not
            "author": row.author,
            "root": row.root,
            "changed": row.paths,
            "at": row.at.astimezone(UTC),
            "key": row.key,
            "deleted": row.doc is None,
            "entity": None if row.doc is None else msgspec.Raw(row.doc.encode()),
            "state": None if row.state is None else _told(row.state),
        }
    )


def _told(state: StageState) -> dict[str, object]:
    head: dict[str, object] = {"version": state.version, "revision": state.revision}
    if state.type is None:
        return {**head, "json": msgspec.Raw(state.body)}
    return {**head, "type": state.type, "message": base64.b64encode(state.body).decode()}


def _plain(state: StageState) -> object:
    """JSON as values; a protobuf message as its bytes."""
    return msgspec.json.decode(state.body) if state.type is None else state.body
