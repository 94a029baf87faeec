"""A call: a request whose caller was let in. Bodies, headers and queries are read strictly.

Whether the values obey the rules is for the scheduler to say.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import ClientDisconnect, Request

from gnomon.contracts.task_rows import TaskRows
from gnomon.gateways.auth import Authorizer, Principal
from gnomon.gateways.bodies import refuse_unknown
from gnomon.gateways.changes import ActionChanges
from gnomon.gateways.config import ConsoleConfig
from gnomon.gateways.errors import HttpError
from gnomon.gateways.redaction import WHOLE, Sight
from gnomon.gateways.rest.route import Route
from gnomon.gateways.rest.store_time import StoreTime
from gnomon.gateways.watchers import Watchers
from gnomon.model.errors import InvalidRequest, InvalidSpec
from gnomon.scheduler import Scheduler
from gnomon.stages.entities import Entities
from gnomon.telemetry.page import MetricsPage

BODY_TIMEOUT_S = 30.0
QUERY_FIELDS_MAX = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What the handlers work with: one for each server."""

    scheduler: Scheduler
    changes: ActionChanges
    entities: Entities
    task_tables: Mapping[str, TaskRows]
    authorizer: Authorizer
    watchers: Watchers
    metrics: MetricsPage
    process_facts: Callable[[], Mapping[str, object]]  # what /health says of this process
    store_time: StoreTime
    console: ConsoleConfig


class QueryFields:
    """The fields of a query: known ones only, each read by its kind."""

    def __init__(self, text: bytes, *, known: Collection[str]) -> None:
        try:
            pairs = parse_qsl(
                text.decode("ascii"), keep_blank_values=True, errors="strict",
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
        return _only(self.all(name), f"query.{name}")

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
            moment = msgspec.convert(value, datetime)
        except msgspec.ValidationError:
            moment = None
        if moment is None or moment.tzinfo is None:
            problem = "must be a time with a zone such as 2030-01-31T12:00:00Z"
            raise InvalidSpec(f"query.{name}", problem, got=value)
        return moment


@dataclass(frozen=True, slots=True)
class Call:
    """A request, the route that it came by, and who sent it."""

    request: Request
    route: Route
    query: QueryFields
    principal: Principal
    services: Services
    sight: Sight = WHOLE  # how the caller sees actions

    @property
    def actor(self) -> str:
        """The caller's name, for the audit."""
        return self.principal.name

    @property
    def durability(self) -> str:
        return self.services.scheduler.installation.durability

    @property
    def content_type(self) -> str:
        return self.request.headers.get("content-type", "").partition(";")[0].strip().lower()

    def header(self, name: str) -> str | None:
        """The value of a header that may stand once."""
        return _only(self.request.headers.getlist(name), f"header.{name}")

    async def body(self) -> bytes:
        """The body, if it has a type that the route reads, is not too large and comes in time."""
        self._check_content()
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                return await self._receive()
        except TimeoutError:
            problem = f"the body did not arrive within {BODY_TIMEOUT_S:g} s"
            raise HttpError("request_timeout", problem) from None
        except ClientDisconnect:
            raise InvalidRequest("the body broke off") from None

    def _check_content(self) -> None:
        headers, kinds = self.request.headers, self.route.bodies
        parameters = headers.get("content-type", "").partition(";")[2]
        charset = parameters.strip().lower().replace('"', "")
        if self.content_type not in kinds or charset not in ("", "charset=utf-8"):
            problem = f"Content-Type: must be {' or '.join(kinds)}"
            raise HttpError("unsupported_media_type", problem)
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise HttpError("unsupported_media_type", "Content-Encoding: send the body as it is")

    async def _receive(self) -> bytes:
        bytes_max = self.route.bytes_max
        announced = self.request.headers.get("content-length", "")
        parts, size = [], int(announced) if announced.isdecimal() else 0
        if size <= bytes_max:
            size = 0
            async for part in self.request.stream():
                parts.append(part)
                size += len(part)
                if size > bytes_max:
                    break
        if size > bytes_max:
            problem = f"the body is too large; at most {bytes_max} bytes are accepted here"
            raise HttpError("body_too_large", problem)
        return b"".join(parts)


def _only(values: list[str], path: str) -> str | None:
    """The value of what may stand once."""
    if len(values) > 1:
        raise InvalidSpec(path, "stands more than once")
    return values[0] if values else None
