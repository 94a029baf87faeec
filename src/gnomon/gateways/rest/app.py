"""The REST application: routes, guards and the boundary, put together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime

from litestar import Litestar, Response, get
from litestar.datastructures import State
from litestar.routes import HTTPRoute

from gnomon import __version__
from gnomon.clock import SystemClock
from gnomon.contracts.clock import Clock
from gnomon.contracts.observer import Observer, SilentObserver
from gnomon.contracts.task_rows import TaskRows
from gnomon.gateways.auth import Authorizer
from gnomon.gateways.entities import entities_of
from gnomon.gateways.rest.actions import Actions, OneAction, scheduler_of
from gnomon.gateways.rest.answers import Bytes, Problems, answer_json
from gnomon.gateways.rest.entities import AllEntities, AllStages, OneEntity
from gnomon.gateways.rest.events import EventStreams
from gnomon.gateways.rest.guards import OPEN, known_callers_only
from gnomon.gateways.rest.limits import LimitRoutes
from gnomon.gateways.rest.openapi import openapi_document
from gnomon.gateways.rest.request_fields import AnyRequest
from gnomon.gateways.rest.tasks import OneTask, TaskTables
from gnomon.scheduler import Scheduler
from gnomon.stages.entities import Entities
from gnomon.telemetry.metrics import Metrics

Health = Callable[[], Mapping[str, object]]
PULSE_S = 1.0


def create_rest(
    scheduler: Scheduler,
    *,
    health: Health = dict,
    metrics: Metrics | None = None,
    observer: Observer | None = None,
    authorizer: Authorizer | None = None,
    stop: asyncio.Event | None = None,
    task_tables: Mapping[str, TaskRows] | None = None,
    entities: Entities | None = None,
) -> Litestar:
    """The gateway over a scheduler. `health` adds what this process knows about itself; `stop`
    ends those who watch; `task_tables` are those that callers may look at, by name."""
    problems = Problems(observer or SilentObserver())
    state = {
        "scheduler": scheduler,
        "health": health,
        "pulse": StoreTime(scheduler, SystemClock()),
        "metrics": metrics or Metrics(),
        "authorizer": authorizer or Authorizer(scheduler.store.tokens, clock=SystemClock()),
        "watchers": EventStreams(stop=stop),
        "task_tables": task_tables or {},
        "entities": entities or entities_of(scheduler),
    }
    return Litestar(
        [
            Actions,
            OneAction,
            LimitRoutes,
            TaskTables,
            OneTask,
            show_health,
            show_metrics,
            show_openapi,
            AllEntities,
            OneEntity,
            AllStages,
        ],
        state=State(state),
        guards=[known_callers_only],
        before_request=answer_options,
        exception_handlers=problems.handlers(),
        openapi_config=None,
        logging_config=None,
    )


async def answer_options(request: AnyRequest) -> Bytes | None:
    """OPTIONS names all methods of a path; Litestar's own answer names those of one handler."""
    if request.method != "OPTIONS":
        return None
    path = request.scope["path_template"]
    methods = {
        method
        for route in request.app.routes
        if isinstance(route, HTTPRoute) and route.path_format == path
        for method in route.methods
    }
    return Response(b"", status_code=204, headers={"Allow": ", ".join(sorted(methods))})


class StoreTime:
    """The store's time, asked for at most once a second, whoever and however many ask: the answer
    is for everybody, so it must cost nothing."""

    def __init__(self, scheduler: Scheduler, clock: Clock) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._turn = asyncio.Lock()
        self._found: tuple[float, datetime] | None = None

    async def now(self) -> datetime:
        """Errors: Unavailable."""
        async with self._turn:
            if self._found is None or self._clock.monotonic() - self._found[0] >= PULSE_S:
                found = await self._scheduler.store.installation.now()
                self._found = (self._clock.monotonic(), found)
            return self._found[1]


@get("/health", opt=OPEN)
async def show_health(state: State) -> Bytes:
    """Whether the store answers, and what it is."""
    scheduler = scheduler_of(state)
    installation = scheduler.installation
    now = await state.pulse.now()
    facts = {
        "status": "ok",
        "version": __version__,
        "engine": installation.engine,
        "durability": installation.durability,
        "schema_version": installation.schema_version,
        "shard_count": installation.shard_count,
        "installation": installation.id,
        "now": now,
    }
    return answer_json({**facts, **state.health()})


@get("/metrics")
async def show_metrics(state: State) -> Bytes:
    """For Prometheus."""
    metrics: Metrics = state.metrics
    return Response(metrics.render(), media_type=metrics.content_type)


@get("/openapi.json")
async def show_openapi(state: State) -> Bytes:
    """This API, for programs."""
    authorizer: Authorizer = state.authorizer
    return answer_json(openapi_document(is_required=await authorizer.is_required()))
