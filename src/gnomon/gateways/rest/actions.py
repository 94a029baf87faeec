"""The handlers of actions: each reads a call, uses one verb of the scheduler, and answers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec
from starlette.responses import Response, StreamingResponse

from gnomon.contracts.store import ChangeResult, Selection
from gnomon.gateways.auth import READ
from gnomon.gateways.bodies import make_request, read_item, read_object
from gnomon.gateways.errors import problem_of
from gnomon.gateways.rest.call import Call, QueryFields
from gnomon.gateways.rest.callers import token_of
from gnomon.gateways.rest.constraints import ID, KEY
from gnomon.gateways.rest.responses import json_response
from gnomon.model.action import Action, Attempt, Meta, State, Status
from gnomon.model.arguments import read_arguments
from gnomon.model.errors import GnomonError, InvalidSpec
from gnomon.model.spec import Spec
from gnomon.model.why import Why
from gnomon.scheduler import Request
from gnomon.scheduler.scheduler import BULK_MAX, COUNT_MAX

BULK_BYTES_MAX = 8 * 1024 * 1024
PARSE_PAUSE_EVERY = 100  # items of a bulk between two breaths of the event loop
STEP_DEFAULT = 200
EVENT_STREAM = "text/event-stream"

Durability = Annotated[
    str, msgspec.Meta(extra_json_schema={"enum": ["replicated", "local", "none"]})
]

_BULK_BEGIN = re.compile(rb'\s*\{\s*"actions"\s*:\s*')
_RAW_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])
_ENCODER = msgspec.json.Encoder()
_HEARTBEAT = b": still here\n\n"

# -- what is sent ---------------------------------------------------------------------------------

ActionId = Annotated[str, msgspec.Meta(extra_json_schema=ID)]
IdempotencyKey = Annotated[str, msgspec.Meta(extra_json_schema=KEY)]


class ReplaceBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A new spec of the action that the path names."""

    spec: Spec


class CreateBody(ReplaceBody, kw_only=True, forbid_unknown_fields=True):
    """A new action; without an id it gets one."""

    id: ActionId | msgspec.UnsetType = msgspec.UNSET


class BulkItem(CreateBody, kw_only=True, forbid_unknown_fields=True):
    """One of many new actions."""

    key: IdempotencyKey | msgspec.UnsetType = msgspec.UNSET


class BulkBody(msgspec.Struct, forbid_unknown_fields=True):
    """Many new actions."""

    actions: Annotated[list[BulkItem], msgspec.Meta(max_length=BULK_MAX)]


# -- what is answered -----------------------------------------------------------------------------


class ActionAnswer(msgspec.Struct, kw_only=True, omit_defaults=True):
    """An action as it is now, and what a commit of this store survives."""

    meta: Meta
    spec: Spec
    status: Status
    durability: Durability
    in_flight: Attempt | None = None  # of the generation before; it may still arrive
    repeated: bool = False  # this idempotency key had been applied before
    asked: bool = False  # the attempt in flight was asked to end

    @property
    def etag(self) -> str:
        """Its generation."""
        return f'"{self.meta.guid}"'


class ActionList(msgspec.Struct):
    """A page of actions in order of id."""

    actions: list[ActionAnswer]
    next: str | None
    durability: Durability
    looked_at: int | None = None  # of a page that ended before it was full: rows of each half


class BulkResult(msgspec.Struct, forbid_unknown_fields=True):
    """What became of one of many: the action or the problem."""

    action: ActionAnswer | msgspec.UnsetType = msgspec.UNSET
    problem: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


class BulkAnswer(msgspec.Struct):
    """What became of each, in order."""

    items: list[BulkResult]
    durability: Durability


class StepAnswer(msgspec.Struct, kw_only=True):
    """What a step of a verb on everything that matches did; `next` continues it."""

    changed: int
    passed_over: int  # somebody else had changed it, or it runs just now
    refused: int
    problem: str | None  # why the first of those was refused
    next: str | None
    durability: Durability


class ActionCount(msgspec.Struct):
    """How many actions match, counted up to the limit. A bounded number is looked at: `next` goes
    on behind them, and what it counts is to be added."""

    count: int
    next: str | None


class AttemptList(msgspec.Struct):
    """The attempts of an action, newest first."""

    attempts: Sequence[Attempt]


def show_action(action: Action, call: Call) -> ActionAnswer:
    seen = call.sight.see(action)
    return ActionAnswer(
        meta=seen.meta, spec=_in_utc(seen.spec), status=seen.status, durability=call.durability
    )


def show_change(change: ChangeResult, call: Call) -> ActionAnswer:
    answer = show_action(change.action, call)
    answer.in_flight = change.in_flight
    answer.repeated = change.repeated
    answer.asked = change.asked
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


# -- change ---------------------------------------------------------------------------------------


async def create_action(call: Call) -> Response:
    """Store a new action."""
    body = read_object(await call.body(), CreateBody.__struct_fields__)
    request = make_request(body, key=call.header("Idempotency-Key"))
    change = await call.services.changes.create(request, caller=call.principal)
    place = {"Location": f"/v1/actions/{change.action.meta.id}"}
    status = 200 if change.repeated else 201
    return json_response(show_change(change, call), status=status, headers=place)


async def create_actions(call: Call) -> BulkAnswer:
    """Store many; one answer each, in order."""
    requests = await read_items(await call.body())
    results = await call.services.changes.create_many(requests, caller=call.principal)
    return BulkAnswer([_bulk_result(result, call) for result in results], call.durability)


async def replace_action(call: Call, id: str) -> ActionAnswer:
    """Give it a new spec, or create it."""
    if_match, barrier = read_if_match(call), call.query.flag("barrier")
    body = read_object(await call.body(), ReplaceBody.__struct_fields__)
    request = make_request({**body, "id": id}, key=call.header("Idempotency-Key"))
    change = await call.services.changes.replace(
        id, request, if_match=if_match, barrier=barrier, caller=call.principal
    )
    return show_change(change, call)


async def delete_action(call: Call, id: str) -> ActionAnswer:
    """Cancel it."""
    change = await call.services.scheduler.delete(
        id,
        if_match=read_if_match(call),
        running=call.query.flag("running"),
        barrier=call.query.flag("barrier"),
        actor=call.actor,
    )
    return show_change(change, call)


async def run_action(call: Call, id: str) -> ActionAnswer:
    """Make it due at once."""
    if_match = read_if_match(call)
    change = await call.services.changes.run_now(id, if_match=if_match, caller=call.principal)
    return show_change(change, call)


async def pause_action(call: Call, id: str) -> ActionAnswer:
    """Let nothing begin until it is resumed, or until the end that is named."""
    change = await call.services.scheduler.pause(
        id,
        reason=call.query.one("reason"),
        until=call.query.one("until"),
        if_match=read_if_match(call),
        actor=call.actor,
    )
    return show_change(change, call)


async def resume_action(call: Call, id: str) -> ActionAnswer:
    """Let it go on."""
    if_match = read_if_match(call)
    change = await call.services.changes.resume(id, if_match=if_match, caller=call.principal)
    return show_change(change, call)


async def retry_action(call: Call, id: str) -> ActionAnswer:
    """Arm a finished action once more."""
    change = await call.services.changes.retry(id, caller=call.principal)
    return show_change(change, call)


async def change_actions(call: Call) -> StepAnswer:
    """Use a verb on everything that matches, a step at a time."""
    query = call.query
    step = await call.services.changes.change_selected(
        query.one("verb") or "",
        call.sight.check(read_selection(query)),
        running=query.flag("running"),
        reason=query.one("reason"),
        until=query.one("until"),
        after=query.one("after"),
        limit=query.number("limit", STEP_DEFAULT),
        caller=call.principal,
    )
    return StepAnswer(**msgspec.structs.asdict(step), durability=call.durability)


# -- look -----------------------------------------------------------------------------------------


async def count_actions(call: Call) -> ActionCount:
    """How many match."""
    query = call.query
    counted = await call.services.scheduler.count_step(
        call.sight.check(read_selection(query)),
        after=query.one("after"),
        limit=query.number("limit", COUNT_MAX),
    )
    return ActionCount(counted.count, counted.next)


async def get_action(call: Call, id: str) -> ActionAnswer:
    """The action, live or the latest finished one."""
    return show_action(await call.services.scheduler.get(id), call)


async def list_actions(call: Call) -> ActionList:
    """List actions."""
    query = call.query
    page = await call.services.scheduler.list(
        call.sight.check(read_selection(query)),
        after=query.one("after"),
        limit=query.number("limit", 100),
    )
    actions = [show_action(action, call) for action in page.actions]
    return ActionList(actions, page.next, call.durability, page.looked_at)


async def list_attempts(call: Call, id: str) -> AttemptList:
    """What was attempted, newest first."""
    limit = call.query.number("limit", 100)
    attempts = await call.services.scheduler.attempts(id, limit=limit)
    if call.sight.is_whole:
        return AttemptList(attempts)
    action = await call.services.scheduler.store.actions.get(id)
    return AttemptList(call.sight.see_attempts(attempts, action))


async def explain_action(call: Call, id: str) -> Why:
    """Why it waits, in a sentence; or that it does not."""
    why = await call.services.scheduler.why(id)
    if call.sight.is_whole:
        return why
    return call.sight.see_why(why, await call.services.scheduler.store.actions.get(id))


async def watch_action(call: Call, id: str) -> Response:
    """The action now, and after every change until it has ended."""
    authorizer, token = call.services.authorizer, token_of(call.request)
    watch = call.services.watchers.watch(
        call.services.scheduler.watch(id), confirm=lambda: authorizer.confirm(token, READ)
    )
    events = _events(await anext(watch), watch, call)
    return StreamingResponse(events, media_type=EVENT_STREAM, headers={"Cache-Control": "no-store"})


async def _events(
    first: Action | None, watch: AsyncIterator[Action | None], call: Call
) -> AsyncIterator[bytes]:
    """Server-sent events. When a watch fails, the stream ends, and the client asks again: what was
    sent cannot be taken back."""
    yield _event(first, call)
    try:
        async for action in watch:
            yield _event(action, call)
    except GnomonError:
        return


def _event(action: Action | None, call: Call) -> bytes:
    if action is None:
        return _HEARTBEAT
    return b"event: action\ndata: " + _ENCODER.encode(show_action(action, call)) + b"\n\n"


# -- reading --------------------------------------------------------------------------------------


async def read_items(body: bytes) -> list[Request | GnomonError]:
    """`{"actions": [{"id"?, "key"?, "spec"}, …]}`; a bad item spoils no other."""
    texts = _item_texts(body)
    if len(texts) > BULK_MAX:
        raise InvalidSpec("actions", f"has {len(texts)} items; at most {BULK_MAX} a call")
    items: list[Request | GnomonError] = []
    for number, text in enumerate(texts):
        items.append(read_item(bytes(text)))
        if number % PARSE_PAUSE_EVERY == 0:
            await asyncio.sleep(0)
    return items


def _item_texts(body: bytes) -> list[msgspec.Raw]:
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


def _bulk_result(result: ChangeResult | GnomonError, call: Call) -> BulkResult:
    if isinstance(result, GnomonError):
        return BulkResult(problem=problem_of(result))
    return BulkResult(action=show_change(result, call))


def read_if_match(call: Call) -> UUID | None:
    """The generation that the caller has seen: the ETag of a former answer."""
    text = call.header("If-Match")
    if text is None:
        return None
    try:
        if len(text) == 38 and text[0] == text[-1] == '"':
            return UUID(text[1:-1])
    except ValueError:
        pass
    raise InvalidSpec("header.If-Match", 'must be one ETag: "<guid>"', got=text)


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
        function=query.one("function"),
        error_contains=query.one("error_contains"),
        arguments=read_arguments(query.all("argument"), "query.argument"),
        search=query.one("search"),
        recurring=query.flag("recurring"),
        paused_for=query.one("paused_for"),
    )


def _state(text: str) -> State:
    try:
        return State(text)
    except ValueError:
        known = ", ".join(State)
        raise InvalidSpec("query.state", f"must be one of {known}", got=text) from None
