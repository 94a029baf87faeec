"""Settings of the stage face."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from gnomon.model.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class StagesConfig:
    """How this process works on entities."""

    poll: timedelta = timedelta(seconds=1)  # how often to look for what no hint announced
    grain: timedelta = timedelta(seconds=1)  # timers are rounded up to this
    call_timeout: timedelta = timedelta(minutes=5)  # of one call of `process`
    failures_max: int = 20  # then an entity, or a save for `after_save`, is quarantined
    retry_min: timedelta = timedelta(seconds=1)  # doubled with each failure…
    retry_max: timedelta = timedelta(hours=1)  # …up to this
    depth_max: int = 16  # steps of one causal chain, besides those of stages in no circle
    claim_ahead: int = 512  # entities loaded at once, per stage; 8 MiB if less
    commit_batch: int = 500
    relay_batch: int = 500  # saves on their way at once, per sink
    relay: str | None = None  # the target that saved versions go to: of kind kafka, rabbitmq, http
    relay_topic: str = "entities"  # of a Kafka target
    relay_exchange: str = ""  # of a RabbitMQ target; the default one: the routing key is a queue
    relay_routing_key: str = "entities"  # of a RabbitMQ target
    relay_url: str | None = None  # of an HTTP target; default: its url_prefix
    relay_timeout: timedelta = timedelta(seconds=30)  # for one acknowledgement
    outbox_hold: timedelta = timedelta(seconds=30)  # a sink so far behind stops the background lane
    outbox_alarm: timedelta = timedelta(minutes=5)  # a save that waits so long is reported

    def __post_init__(self) -> None:
        for name in ("outbox_hold", "outbox_alarm"):
            if getattr(self, name) <= timedelta(0):
                raise ConfigurationError(f"stages.{name}", "must be longer than nothing")
