"""Values become answers: actions, pages, attempts, problem documents."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from litestar import Response
from litestar.exceptions import HTTPException

from gnomon.clock import SystemEntropy
from gnomon.contracts.observer import Observer
from gnomon.contracts.store import ActionPage, ChangeResult
from gnomon.gateways.errors import problem, problem_of, row_of
from gnomon.gateways.rest.request_fields import AnyRequest
from gnomon.model.action import Action, Attempt, Meta, Status
from gnomon.model.errors import GnomonError, Unauthenticated
from gnomon.model.spec import Spec

JSON = "application/json"
PROBLEM_JSON = "application/problem+json"

_ENCODER = msgspec.json.Encoder()
_CODE_OF_STATUS = {
    401: "unauthenticated",
    403: "forbidden",
    404: "route_not_found",
    405: "method_not_allowed",
    408: "request_timeout",
    413: "body_too_large",
    415: "unsupported_media_type",
}

Bytes = Response[bytes]


class ActionAnswer(msgspec.Struct, kw_only=True, omit_defaults=True):
    """An action as it is shown, and what a commit of this store survives."""

    meta: Meta
    spec: Spec
    status: Status
    durability: str
    in_flight: Attempt | None = None  # of the generation before; it may still arrive
    repeated: bool = False  # this idempotency key had been applied before


def show(action: Action, durability: str) -> ActionAnswer:
    return ActionAnswer(
        meta=action.meta, spec=_in_utc(action.spec), status=action.status, durability=durability
    )


def show_changed(changed: ChangeResult, durability: str) -> ActionAnswer:
    answer = show(changed.action, durability)
    answer.in_flight = changed.in_flight
    answer.repeated = changed.repeated
    return answer


def _in_utc(spec: Spec) -> Spec:
    """Times are kept as the user wrote them and shown in UTC."""
    if _is_utc(spec.start_at) and _is_utc(spec.deadline):
        return spec
    return msgspec.structs.replace(
        spec,
        start_at=spec.start_at and spec.start_at.astimezone(UTC),
        deadline=spec.deadline and spec.deadline.astimezone(UTC),
    )


def _is_utc(moment: datetime | None) -> bool:
    return moment is None or moment.tzinfo is UTC


# -- answers --------------------------------------------------------------------------------------


def answer_json(
    value: object, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Bytes:
    return Response(
        _ENCODER.encode(value),
        status_code=status,
        media_type=JSON,
        headers={"Cache-Control": "no-store", **(headers or {})},
    )


def answer_action(answer: ActionAnswer, *, created: bool = False) -> Bytes:
    """One action with its generation as ETag; a new one with its Location."""
    headers = {"ETag": f'"{answer.meta.guid}"'}
    if created:
        headers["Location"] = f"/v1/actions/{answer.meta.id}"
    is_new = created and not answer.repeated
    return answer_json(answer, status=201 if is_new else 200, headers=headers)


def answer_page(page: ActionPage, durability: str) -> Bytes:
    actions = [show(action, durability) for action in page.actions]
    return answer_json({"actions": actions, "next": page.next, "durability": durability})


def answer_bulk(results: Sequence[ChangeResult | GnomonError], durability: str) -> Bytes:
    """One item per action asked for, in order: `action` or `problem`."""
    items = [
        {"problem": problem_of(result)}
        if isinstance(result, GnomonError)
        else {"action": show_changed(result, durability)}
        for result in results
    ]
    return answer_json({"items": items, "durability": durability})


# -- problems -------------------------------------------------------------------------------------


def answer_problem(document: dict[str, object], headers: Mapping[str, str] | None = None) -> Bytes:
    status = document["status"]
    assert isinstance(status, int)
    return Response(
        _ENCODER.encode(document),
        status_code=status,
        media_type=PROBLEM_JSON,
        headers={"Cache-Control": "no-store", **(headers or {})},
    )


class Problems:
    """The gateway's boundary: every exception leaves as a problem document."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def handlers(self) -> dict[int | type[Exception], Any]:
        """For Litestar."""
        return {
            GnomonError: self.refused,
            HTTPException: self.malformed,
            Exception: self.unexpected,
        }

    def refused(self, request: AnyRequest, error: GnomonError) -> Bytes:
        """An error of ours: its row in the table says what is told."""
        if row_of(error).hides_detail:
            return self.unexpected(request, error)
        wait_s = getattr(error, "retry_after_s", None)
        headers = {} if wait_s is None else {"Retry-After": str(max(1, math.ceil(wait_s)))}
        if isinstance(error, Unauthenticated):
            headers["WWW-Authenticate"] = 'Bearer realm="gnomon"'
        return answer_problem(problem_of(error), headers)

    def malformed(self, request: AnyRequest, error: HTTPException) -> Bytes:
        """What Litestar refused before anything of ours was called."""
        if error.status_code >= 500:
            return self.unexpected(request, error)
        code = _CODE_OF_STATUS.get(error.status_code, "invalid_request")
        detail = error.detail
        if error.status_code in (404, 405):
            detail = f"there is no {request.method} {request.url.path[:200]}"
        elif error.status_code == 413:
            bytes_max = request.route_handler.resolve_request_max_body_size()
            detail = f"the body is too large; at most {bytes_max} bytes are accepted here"
        return answer_problem(problem(code, detail), error.headers)

    def unexpected(self, request: AnyRequest, error: Exception) -> Bytes:
        """A slip of ours: logged whole, told as nothing but an id to look for."""
        request_id = str(SystemEntropy().token())
        self._observer.event(
            "request_failed",
            request_id=request_id,
            method=request.method,
            path=request.url.path[:200],
            exc_info=error,
        )
        return answer_problem({**problem("internal"), "request_id": request_id})
