"""A route: what the dispatcher and the OpenAPI document must know of it. The table is `routes`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

import msgspec
from starlette.responses import Response

from gnomon.gateways.auth import READ, WRITE

JSON = "application/json"
OPEN = "open"  # the scope of a route that answers everybody

Json = dict[str, Any]
# A struct is sent as JSON, with its `etag` if it has one; None is sent as 204.
Result = msgspec.Struct | Response | None
Handler = Callable[..., Awaitable[Result]]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A field of a query, or a header."""

    name: str
    schema: Json
    description: str | None = None


@dataclass(frozen=True, slots=True)
class Route:
    """A method of a path, and the handler that answers it.

    The handler takes the call, and by name the variables of the path; the first line of its
    docstring is the summary in the OpenAPI document.
    """

    operation: str  # its name in the OpenAPI document
    method: str
    path: str
    handler: Handler
    answer: Any = None  # the type of what is answered in JSON
    _: KW_ONLY
    status: int = 200
    content_type: str = JSON  # of the answer
    body: Any = None  # the type of a body in JSON; or types by content type
    bytes_max: int = 0  # of the body
    query: tuple[Parameter, ...] | None = ()  # None: the query is not looked at
    headers: tuple[Parameter, ...] = ()
    errors: tuple[int, ...] = ()  # statuses of problems besides those that every such call may get
    scope: str | None = None  # None: READ for GET, else WRITE

    @property
    def bodies(self) -> Mapping[str, Any]:
        """The types of the body by content type; empty if none is read."""
        if self.body is None:
            return {}
        return self.body if isinstance(self.body, dict) else {JSON: self.body}

    @property
    def scope_needed(self) -> str:
        return self.scope or (READ if self.method == "GET" else WRITE)
