"""Who may call. Until there is authentication: programs on this machine, not web pages in it.

A server without authentication on loopback can be reached by any page that the user's browser
shows: by a form, or by a name that is made to point to 127.0.0.1. Such requests give themselves
away by their Host or Origin.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from litestar.connection import ASGIConnection
from litestar.exceptions import PermissionDeniedException
from litestar.handlers import BaseRouteHandler

from gnomon.gateways.config import is_loopback


def local_callers_only(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
    """Refuse what was sent to another host's name, or by a page of another origin."""
    host = connection.headers.get("host", "")
    if not _names_this_machine(f"//{host}"):
        raise PermissionDeniedException("Host: must be a loopback address")
    origin = connection.headers.get("origin")
    if origin is not None and not _names_this_machine(origin):
        raise PermissionDeniedException("Origin: pages of other origins may not call")


def _names_this_machine(url: str) -> bool:
    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        return False
