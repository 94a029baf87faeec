"""Values become responses: JSON, and problem documents."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec
from starlette.responses import Response

from gnomon.gateways.boundary import RefusedError
from gnomon.gateways.errors import HttpError
from gnomon.gateways.rest.route import JSON, Result
from gnomon.model.errors import Unauthenticated

PROBLEM_JSON = "application/problem+json"

_ENCODER = msgspec.json.Encoder()


def json_response(
    value: object,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    content_type: str = JSON,
) -> Response:
    """A value in JSON, kept by no cache; its `etag` is sent if it has one."""
    sent = {"Cache-Control": "no-store", **(headers or {})}
    etag = getattr(value, "etag", None)
    if etag is not None:
        sent["ETag"] = etag
    return Response(
        _ENCODER.encode(value), status_code=status, headers=sent, media_type=content_type
    )


def response_of(result: Result, status: int) -> Response:
    """What a handler gave, as a response."""
    match result:
        case Response():
            return result
        case None:
            return Response(status_code=204)
        case _:
            return json_response(result, status=status)


def problem_response(refusal: RefusedError) -> Response:
    """The problem document of a refusal, with the headers that belong to it."""
    error, headers, wait_s = refusal.error, {}, refusal.retry_after_s
    if wait_s is not None:
        headers["Retry-After"] = str(max(1, math.ceil(wait_s)))
    if isinstance(error, Unauthenticated):
        headers["WWW-Authenticate"] = 'Bearer realm="gnomon"'
    if isinstance(error, HttpError):
        headers |= error.headers
    status = refusal.problem["status"]
    assert isinstance(status, int)
    return json_response(refusal.problem, status=status, headers=headers, content_type=PROBLEM_JSON)
