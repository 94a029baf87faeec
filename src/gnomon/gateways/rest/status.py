"""The handlers that tell of this server: whether it works, and what it counts."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec
from starlette.responses import Response

from gnomon import __version__
from gnomon.contracts.status import InstallationStatus
from gnomon.gateways.overview import look_over
from gnomon.gateways.rest.actions import Durability
from gnomon.gateways.rest.call import Call
from gnomon.gateways.rest.responses import json_response


class HealthAnswer(msgspec.Struct, kw_only=True):
    """The store answers. The process may add what it knows of itself."""

    status: str
    version: str
    engine: str
    durability: Durability
    schema_version: int
    shard_count: int
    installation: UUID
    now: datetime


async def show_health(call: Call) -> Response:
    """Whether the store answers."""
    installation = call.services.scheduler.installation
    health = HealthAnswer(
        status="ok",
        version=__version__,
        engine=installation.engine,
        durability=installation.durability,
        schema_version=installation.schema_version,
        shard_count=installation.shard_count,
        installation=installation.id,
        now=await call.services.store_time.now(),
    )
    return json_response({**msgspec.structs.asdict(health), **call.services.process_facts()})


class CallerAnswer(msgspec.Struct, kw_only=True):
    """Who calls, and what he may do."""

    name: str  # of the token; `local` without authentication
    scopes: list[str]


class OtherInstallation(msgspec.Struct):
    """Where another console is."""

    name: str
    url: str


class InstallationList(msgspec.Struct):
    """What this installation is called, and others that the operator has named."""

    name: str
    color: str
    others: list[OtherInstallation]


async def list_installations(call: Call) -> InstallationList:
    """This installation and others, for the console; nothing is asked of those."""
    config = call.services.console
    others = [OtherInstallation(name, url) for name, url in config.others.items()]
    return InstallationList(config.name, config.color, others)


async def show_caller(call: Call) -> CallerAnswer:
    """Who calls, and what he may do."""
    return CallerAnswer(name=str(call.actor), scopes=sorted(call.principal.scopes))


async def show_status(call: Call) -> InstallationStatus:
    """How the installation is: figures, workers, what is wrong."""
    scheduler = call.services.scheduler
    return await look_over(scheduler.store, scheduler.installation, call.services.task_tables)


async def show_metrics(call: Call) -> Response:
    """What is counted, for Prometheus."""
    page = call.services.metrics
    return Response(await page.render(), headers={"Content-Type": page.content_type})
