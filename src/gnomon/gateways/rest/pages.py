"""Files for browsers: sent as they are, to everybody, for there is nothing of the store in them.

What a page then asks for is a call like any other, with its checks. The headers let a page load
from its own host only, run no script that stands in it, and be shown in no frame of others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
    " require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Asked about each time, and sent again only if it is another file by now.
    "Cache-Control": "no-cache",
}
METHODS = ("GET", "HEAD")  # others go on to the application, which refuses them


class PageFile(Protocol):
    """A file as it is sent."""

    @property
    def content(self) -> bytes: ...

    @property
    def media_type(self) -> str: ...

    @property
    def etag(self) -> str: ...


class PagesApp:
    """An ASGI application: sends the files that it has, by path, and leaves the rest to another."""

    def __init__(self, app: ASGIApp, files: Mapping[str, PageFile]) -> None:
        self._app = app
        self._files = files

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        file = self._files.get(scope["path"])
        if file is None or scope["method"] not in METHODS:
            await self._app(scope, receive, send)
        else:
            await page_response(Request(scope), file)(scope, receive, send)


def page_response(request: Request, file: PageFile) -> Response:
    """The file, or that the caller has it already."""
    headers = {**HEADERS, "ETag": file.etag}
    known = request.headers.get("if-none-match", "")
    if file.etag in [tag.strip().removeprefix("W/") for tag in known.split(",")]:
        return Response(status_code=304, headers=headers)
    return Response(file.content, headers={**headers, "Content-Type": file.media_type})
