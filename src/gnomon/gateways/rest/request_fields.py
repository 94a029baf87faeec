"""Requests become values: bodies, headers and queries, all read strictly.

Litestar's own parsing is not used: it would accept duplicate keys, deep nesting and unknown
fields. Whether the values obey the rules is for the scheduler to say.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl
from uuid import UUID

import msgspec
from litestar import Request as HttpRequest
from litestar.exceptions import HTTPException

from gnomon.contracts.store import Selection
from gnomon.gateways.bodies import make_request, read_item, read_object, refuse_unknown
from gnomon.model.action import State
from gnomon.model.errors import GnomonError, InvalidRequest, InvalidSpec
from gnomon.scheduler import Request
from gnomon.scheduler.scheduler import BULK_MAX

BULK_BYTES_MAX = 8 * 1024 * 1024
BODY_TIMEOUT_S = 30.0
QUERY_FIELDS_MAX = 64
PARSE_PAUSE_EVERY = 100  # items of a bulk between two breaths of the event loop

AnyRequest = HttpRequest[Any, Any, Any]

_BULK_BEGIN = re.compile(rb'\s*\{\s*"actions"\s*:\s*')
_RAW_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])


# -- bodies ---------------------------------------------------------------------------------------


async def read_body(request: AnyRequest, kinds: Sequence[str] = ("application/json",)) -> bytes:
    """The body, if it says that it is plain JSON and comes in time; the route limits its size."""
    kind, _, parameters = request.headers.get("content-type", "").partition(";")
    charset = parameters.strip().lower().replace('"', "")
    if kind.strip().lower() not in kinds or charset not in ("", "charset=utf-8"):
        detail = f"Content-Type: must be {' or '.join(kinds)}"
        raise HTTPException(status_code=415, detail=detail)
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise HTTPException(status_code=415, detail="Content-Encoding: send the body as it is")
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            return await request.body()
    except TimeoutError:
        raise HTTPException(
            status_code=408, detail=f"the body did not arrive within {BODY_TIMEOUT_S:g} s"
        ) from None


async def read_create(request: AnyRequest) -> Request:
    """`{"id"?, "spec"}` and the header Idempotency-Key."""
    body = read_object(await read_body(request), ("id", "spec"))
    return make_request(body, key=one_header(request, "Idempotency-Key"))


async def read_replace(request: AnyRequest, id: str) -> Request:
    """`{"spec"}` for the id in the path."""
    body = read_object(await read_body(request), ("spec",))
    return make_request({**body, "id": id}, key=one_header(request, "Idempotency-Key"))


async def read_bulk(request: AnyRequest) -> list[Request | GnomonError]:
    """`{"actions": [{"id"?, "key"?, "spec"}, …]}`; a bad item spoils no other."""
    items = _bulk_items(await read_body(request))
    if len(items) > BULK_MAX:
        raise InvalidSpec("actions", f"has {len(items)} items; at most {BULK_MAX} a call")
    found: list[Request | GnomonError] = []
    for number, item in enumerate(items):
        found.append(read_item(bytes(item)))
        if number % PARSE_PAUSE_EVERY == 0:
            await asyncio.sleep(0)
    return found


def _bulk_items(body: bytes) -> list[msgspec.Raw]:
    """The items as they stand; cut out by hand, so that no second `actions` hides the first."""
    begin, trimmed = _BULK_BEGIN.match(body), body.rstrip()
    if begin is None or not trimmed.endswith(b"}"):
        raise InvalidSpec("body", 'must be an object with one field: {"actions": […]}')
    try:
        return _RAW_ITEMS.decode(trimmed[begin.end() : -1])
    except msgspec.ValidationError:
        raise InvalidSpec("actions", "must be a list") from None
    except (msgspec.DecodeError, RecursionError) as exc:
        raise InvalidSpec("actions", f"is not a list in JSON: {str(exc)[:100]}") from None


# -- headers --------------------------------------------------------------------------------------


def one_header(request: AnyRequest, name: str) -> str | None:
    """The value of a header that may stand once."""
    values = request.headers.getall(name, [])
    if len(values) > 1:
        raise InvalidSpec(f"header.{name}", "stands more than once")
    return values[0] if values else None


def read_if_match(request: AnyRequest) -> UUID | None:
    """The generation that the caller has seen: the ETag of a former answer."""
    text = one_header(request, "If-Match")
    if text is None:
        return None
    try:
        if len(text) == 38 and text[0] == text[-1] == '"':
            return UUID(text[1:-1])
    except ValueError:
        pass
    raise InvalidSpec("header.If-Match", 'must be one ETag: "<guid>"', got=text)


# -- queries --------------------------------------------------------------------------------------


class QueryFields:
    """The fields of a query: known ones only, each read by its kind."""

    def __init__(self, request: AnyRequest, *, known: Collection[str]) -> None:
        raw = request.scope["query_string"]
        try:
            pairs = parse_qsl(
                raw.decode("ascii"), keep_blank_values=True, errors="strict",
                max_num_fields=QUERY_FIELDS_MAX,
            )  # fmt: skip
        except UnicodeDecodeError:
            raise InvalidRequest("the query is not UTF-8, percent-encoded") from None
        except ValueError:
            raise InvalidRequest(f"the query has more than {QUERY_FIELDS_MAX} fields") from None
        self._values: dict[str, list[str]] = {}
        for name, value in pairs:
            self._values.setdefault(name, []).append(value)
        refuse_unknown("query.", self._values, known)
        for name, values in self._values.items():
            if any("\x00" in value for value in values):
                raise InvalidSpec(f"query.{name}", "holds NUL")

    def all(self, name: str) -> list[str]:
        return self._values.get(name, [])

    def one(self, name: str) -> str | None:
        values = self.all(name)
        if len(values) > 1:
            raise InvalidSpec(f"query.{name}", "stands more than once")
        return values[0] if values else None

    def flag(self, name: str) -> bool:
        value = self.one(name)
        if value not in (None, "true", "false"):
            raise InvalidSpec(f"query.{name}", "must be true or false", got=value)
        return value == "true"

    def number(self, name: str, default: int) -> int:
        value = self.one(name)
        if value is None:
            return default
        if not re.fullmatch(r"[0-9]{1,9}", value):
            raise InvalidSpec(f"query.{name}", "must be a whole number", got=value)
        return int(value)

    def moment(self, name: str) -> datetime | None:
        value = self.one(name)
        if value is None:
            return None
        try:
            found = msgspec.convert(value, datetime)
        except msgspec.ValidationError:
            found = None
        if found is None or found.tzinfo is None:
            problem = "must be a time with a zone such as 2030-01-31T12:00:00Z"
            raise InvalidSpec(f"query.{name}", problem, got=value)
        return found


def read_selection(query: QueryFields) -> Selection:
    """The filters of a listing."""
    labels = {}
    for text in query.all("label"):
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidSpec("query.label", "must be name=value", got=text)
        labels[name] = value
    return Selection(
        states=tuple(_state(text) for text in query.all("state")),
        queue=query.one("queue"),
        id_prefix=query.one("id_prefix"),
        labels=labels,
        due_before=query.moment("due_before"),
    )


def _state(text: str) -> State:
    try:
        return State(text)
    except ValueError:
        known = ", ".join(State)
        raise InvalidSpec("query.state", f"must be one of {known}", got=text) from None
