"""Who may call: holders of a token, or without authentication programs on this machine.

A server without authentication on loopback can be reached by any page that the user's browser
shows: by a form, or by a name that is made to point to 127.0.0.1. Such requests give themselves
away by their Host or Origin. Where a token is needed, no page has one.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from litestar.connection import ASGIConnection
from litestar.exceptions import PermissionDeniedException
from litestar.handlers import BaseRouteHandler

from gnomon.gateways.auth import OPERATE, READ, WRITE, Authorizer, Principal
from gnomon.gateways.config import is_loopback
from gnomon.gateways.rest.request_fields import AnyRequest
from gnomon.model.errors import Unauthenticated

Connection = ASGIConnection[Any, Any, Any, Any]

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
OPEN = {"open": True}  # for a route that answers everybody
FOR_OPERATORS = {"changes": OPERATE}  # for routes whose changes are not for everybody who writes


async def known_callers_only(connection: Connection, handler: BaseRouteHandler) -> None:
    """Refuse who has no token with the route's scope: reading for GET, else writing or more."""
    authorizer = authorizer_of(connection)
    if not await authorizer.is_required():
        _refuse_pages(connection)
    if handler.opt.get("open"):
        return
    is_safe = connection.scope.get("method") in SAFE_METHODS
    scope = READ if is_safe else handler.opt.get("changes", WRITE)
    principal = await authorizer.check(token_of(connection), scope)
    connection.state.principal = principal


def authorizer_of(connection: Connection) -> Authorizer:
    found: Authorizer = connection.app.state.authorizer
    return found


def principal_of(request: AnyRequest) -> Principal:
    """Who was let in."""
    found: Principal = request.state.principal
    return found


def token_of(connection: Connection) -> str | None:
    """The bearer token, if one was sent. Errors: Unauthenticated, if something else was."""
    values = connection.headers.getall("authorization", [])
    if not values:
        return None
    scheme, _, token = values[0].partition(" ")
    if len(values) > 1 or scheme.lower() != "bearer" or not token.strip():
        raise Unauthenticated("Authorization: must be one `Bearer` and a token")
    return token.strip()


def _refuse_pages(connection: Connection) -> None:
    """Refuse what was sent to another host's name, or by a page of another origin."""
    host = connection.headers.get("host", "").lower()
    if not _names_this_machine(f"//{host}"):
        raise PermissionDeniedException("Host: must be a loopback address")
    # Another port of this machine is another origin: any program may serve pages there.
    origin = connection.headers.get("origin")
    if origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}"):
        raise PermissionDeniedException("Origin: pages of other origins may not call")
    if connection.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise PermissionDeniedException("Sec-Fetch-Site: pages of other origins may not call")


def _names_this_machine(url: str) -> bool:
    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        return False
