"""Who may call: holders of a token, or without authentication programs on this machine.

A server without authentication on loopback can be reached by any page that the user's browser
shows: by a form, or by a name that is made to point to 127.0.0.1. Such requests give themselves
away by their Host or Origin. Where a token is needed, no page has one.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec
from starlette.requests import Request

from gnomon.contracts.store import Actor
from gnomon.gateways.auth import ANYBODY, Authorizer, Principal, bearer_token
from gnomon.gateways.config import is_loopback
from gnomon.gateways.rest.route import OPEN
from gnomon.model.errors import Forbidden

FACE_HEADER = "Gnomon-Face"
OUR_CLIENTS = ("cli", "python", "console")


async def let_in(request: Request, authorizer: Authorizer, scope: str) -> Principal:
    """Who calls, if he has the scope. Errors: Unauthenticated, Forbidden, Exhausted."""
    if not await authorizer.is_required():
        _refuse_pages(request)
    if scope == OPEN:
        return ANYBODY
    principal = await authorizer.check(token_of(request), scope)
    return msgspec.structs.replace(principal, name=Actor(principal.name, face_of(request)))


def face_of(request: Request) -> str:
    """Which program of ours it says it is; REST, if it says none that we know. Anybody can say so:
    the audit shows it, and no right depends on it."""
    said = request.headers.get(FACE_HEADER, "")
    return said if said in OUR_CLIENTS else "rest"


def token_of(request: Request) -> str | None:
    """The bearer token, if one was sent. Errors: Unauthenticated, if something else was."""
    return bearer_token(request.headers.getlist("authorization"))


def _refuse_pages(request: Request) -> None:
    """Refuse what was sent to another host's name, or by a page of another origin."""
    host = request.headers.get("host", "").lower()
    if not _names_this_machine(f"//{host}"):
        raise Forbidden("Host: must be a loopback address")
    # Another port of this machine is another origin: any program may serve pages there.
    origin = request.headers.get("origin")
    if origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}"):
        raise Forbidden("Origin: pages of other origins may not call")
    if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise Forbidden("Sec-Fetch-Site: pages of other origins may not call")


def _names_this_machine(url: str) -> bool:
    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        return False
