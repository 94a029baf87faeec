"""Settings of the stage face."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class StagesConfig:
    """How this process works on entities."""

    poll: timedelta = timedelta(seconds=1)  # how often to look for what no hint announced
    grain: timedelta = timedelta(seconds=1)  # timers are rounded up to this
    call_timeout: timedelta = timedelta(minutes=5)  # of one call of `process`
    failures_max: int = 20  # then the row is quarantined
    retry_min: timedelta = timedelta(seconds=1)  # doubled with each failure…
    retry_max: timedelta = timedelta(hours=1)  # …up to this
    depth_max: int = 16  # steps of one causal chain
    claim_ahead: int = 512  # entities loaded at once, per stage
    commit_batch: int = 500
    relay_batch: int = 500
    relay: str | None = None  # the target that saved versions go to: of kind kafka, rabbitmq, http
    relay_topic: str = "entities"  # of a Kafka target
    relay_exchange: str = ""  # of a RabbitMQ target; the default one: the routing key is a queue
    relay_routing_key: str = "entities"  # of a RabbitMQ target
    relay_url: str | None = None  # of an HTTP target; default: its url_prefix
    relay_timeout: timedelta = timedelta(seconds=30)  # for one acknowledgement
