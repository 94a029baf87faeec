"""The REST application: finds the route of a request, lets its caller in, and has it answered."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import Receive, Scope, Send

from gnomon.clock import SystemClock
from gnomon.contracts.observer import Observer, SilentObserver
from gnomon.contracts.task_rows import TaskRows
from gnomon.gateways.auth import READ, Authorizer
from gnomon.gateways.boundary import PATH_CHARS_MAX, Boundary, RefusedError
from gnomon.gateways.changes import ActionChanges
from gnomon.gateways.config import ConsoleConfig
from gnomon.gateways.entities import entities_of
from gnomon.gateways.errors import HttpError
from gnomon.gateways.redaction import sight_of
from gnomon.gateways.rest.call import Call, QueryFields, Services
from gnomon.gateways.rest.callers import let_in
from gnomon.gateways.rest.responses import problem_response, response_of
from gnomon.gateways.rest.route import Route
from gnomon.gateways.rest.routes import ROUTES
from gnomon.gateways.rest.store_time import StoreTime
from gnomon.gateways.watchers import Watchers
from gnomon.scheduler import Scheduler
from gnomon.stages.entities import Entities
from gnomon.telemetry.metrics import Metrics
from gnomon.telemetry.page import MetricsPage

_SLASHES = re.compile("/{2,}")


def create_rest(  # noqa: PLR0913 - what a server may have
    scheduler: Scheduler,
    *,
    health: Callable[[], Mapping[str, object]] = dict,
    metrics: MetricsPage | None = None,
    observer: Observer | None = None,
    authorizer: Authorizer | None = None,
    stop: asyncio.Event | None = None,
    task_tables: Mapping[str, TaskRows] | None = None,
    entities: Entities | None = None,
    console: ConsoleConfig | None = None,
) -> RestApp:
    """The gateway over a scheduler. `health` adds what this process knows about itself; `stop`
    ends those who watch; `task_tables` are those that callers may look at, by name."""
    clock = SystemClock()
    authorizer = authorizer or Authorizer(scheduler.store.tokens, clock=clock)
    services = Services(
        scheduler=scheduler,
        changes=ActionChanges(scheduler, authorizer),
        entities=entities or entities_of(scheduler),
        task_tables=task_tables or {},
        authorizer=authorizer,
        watchers=Watchers(stop),
        metrics=metrics or MetricsPage(Metrics()),
        process_facts=health,
        store_time=StoreTime(scheduler.store.installation, clock),
        console=console or ConsoleConfig(),
    )
    return RestApp(services, observer or SilentObserver())


class RestApp:
    """An ASGI application. Whatever goes wrong, the caller gets a problem document."""

    def __init__(self, services: Services, observer: Observer) -> None:
        self.services = services
        self._boundary = Boundary(observer)
        self._paths = PathTable(ROUTES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            with self._boundary.guarding(request.method, scope["path"]):
                response = await self._answer(request)
        except RefusedError as refusal:
            response = problem_response(refusal)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        method, authorizer = request.method, self.services.authorizer
        routes, variables = self._paths.find(request)
        allowed = {"Allow": ", ".join(sorted({*routes, "OPTIONS"}))}
        if method == "OPTIONS":
            await let_in(request, authorizer, READ)
            return Response(status_code=204, headers=allowed)
        if method not in routes:
            raise HttpError("method_not_allowed", _no_such(request), headers=allowed)
        route = routes[method]
        principal = await let_in(request, authorizer, route.scope_needed)
        sight = await sight_of(principal, authorizer.redaction, self.services.scheduler.reports)
        call = Call(request, route, _query(request, route), principal, self.services, sight)
        tracing = self.services.scheduler.tracing
        if tracing is None:
            return response_of(await route.handler(call, **variables), route.status)
        with tracing.trace_request(request.headers):
            return response_of(await route.handler(call, **variables), route.status)


class PathTable:
    """The routes by path, and by method in each path."""

    def __init__(self, routes: tuple[Route, ...]) -> None:
        self._fixed: dict[str, dict[str, Route]] = {}
        self._patterns: dict[re.Pattern[str], dict[str, Route]] = {}
        for route in routes:
            if "{" in route.path:
                by_method = self._patterns.setdefault(compile_path(route.path)[0], {})
            else:
                by_method = self._fixed.setdefault(route.path, {})
            by_method[route.method] = route

    def find(self, request: Request) -> tuple[dict[str, Route], dict[str, str]]:
        """The routes of the request's path by method, and the variables in it."""
        path = _SLASHES.sub("/", request.scope["path"]).rstrip("/")
        if path in self._fixed:
            return self._fixed[path], {}
        for pattern, routes in self._patterns.items():
            match = pattern.match(path)
            if match:
                return routes, match.groupdict()
        raise HttpError("route_not_found", _no_such(request))


def _query(request: Request, route: Route) -> QueryFields:
    if route.query is None:
        return QueryFields(b"", known=())
    known = [parameter.name for parameter in route.query]
    return QueryFields(request.scope["query_string"], known=known)


def _no_such(request: Request) -> str:
    return f"there is no {request.method} {request.scope['path'][:PATH_CHARS_MAX]}"
