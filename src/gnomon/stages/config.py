"""Settings of the stage face."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from gnomon.model.constant import CONSTANT
from gnomon.model.errors import ConfigurationError

KIND_PLACE = "{kind}"  # in a topic: where the kind of the entity stands


@dataclass(frozen=True, slots=True, kw_only=True)
class StagesConfig:
    """How this process works on entities."""

    poll: timedelta = timedelta(seconds=1)  # how often to look for what no hint announced
    call_timeout: timedelta = timedelta(minutes=5)  # of one call of `process`
    failures_max: int = 20  # then an entity, or a save for `after_save`, is quarantined
    retry_min: timedelta = timedelta(seconds=1)  # doubled with each failure…
    retry_max: timedelta = timedelta(hours=1)  # …up to this
    depth_max: int = 16  # steps of one causal chain, besides those of stages in no circle
    relay: str | None = None  # the target that saved versions go to: of kind kafka, rabbitmq, http
    relay_topic: str = "entities"  # of a Kafka target; `{kind}` in it is the entity's, also below
    relay_exchange: str = ""  # of a RabbitMQ target; the default one: the routing key is a queue
    relay_routing_key: str = "entities"  # of a RabbitMQ target
    relay_url: str | None = None  # of an HTTP target; default: its url_prefix
    relay_timeout: timedelta = timedelta(seconds=30)  # for one acknowledgement
    outbox_hold: timedelta = timedelta(seconds=30)  # a sink so far behind stops the background lane
    outbox_alarm: timedelta = timedelta(minutes=5)  # a save that waits so long is reported

    # Timers are rounded up to this: those of many entities become due together, and share a claim.
    grain: timedelta = field(default=timedelta(seconds=1), metadata=CONSTANT)
    # Entities loaded at once, per stage: enough that no call waits for the database, and its memory
    # is bounded; 8 MiB if that is less.
    claim_ahead: int = field(default=512, metadata=CONSTANT)
    # Bounds of one statement: of its time, its locks and its memory.
    commit_batch: int = field(default=500, metadata=CONSTANT)
    relay_batch: int = field(default=500, metadata=CONSTANT)  # saves on their way at once, per sink

    def __post_init__(self) -> None:
        for name in ("outbox_hold", "outbox_alarm"):
            if getattr(self, name) <= timedelta(0):
                raise ConfigurationError(f"stages.{name}", "must be longer than nothing")
        for name in ("relay_topic", "relay_routing_key", "relay_url"):
            left = (getattr(self, name) or "").replace(KIND_PLACE, "")
            if "{" in left or "}" in left:
                raise ConfigurationError(
                    f"stages.{name}", f"may have {KIND_PLACE} in it, and no other braces"
                )
