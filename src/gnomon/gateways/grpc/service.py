"""The rpcs: each reads a request, calls one verb of the scheduler, and answers. No rules here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from gnomon.contracts.store import ActionPage, ChangeResult, Selection
from gnomon.gateways.auth import READ, Authorizer
from gnomon.gateways.changes import ActionChanges
from gnomon.gateways.errors import problem_of
from gnomon.gateways.grpc.boundary import Caller
from gnomon.gateways.grpc.conversion import (
    read_duration,
    read_guid,
    read_limit,
    read_spec,
    read_text,
    read_time,
    read_word,
    write_action,
    write_attempt,
    write_changed,
    write_limit_use,
    write_meta,
    write_problem,
)
from gnomon.gateways.watchers import Watchers
from gnomon.model.action import State
from gnomon.model.errors import GnomonError, InvalidSpec
from gnomon.model.ids import action_id
from gnomon.scheduler import Request, Scheduler
from gnomon.stages.wire import write_time
from gnomon.v1 import action_pb2
from gnomon.v1 import scheduler_pb2 as pb

MESSAGE_BYTES_MAX = 1024 * 1024
LIMIT_DEFAULT = 100
READ_PAUSE_EVERY = 100  # items of a bulk between two breaths of the event loop


class SchedulerRpcs:
    """`gnomon.v1.SchedulerService`; one method for each rpc, of the same name."""

    def __init__(self, scheduler: Scheduler, authorizer: Authorizer, watchers: Watchers) -> None:
        self._scheduler = scheduler
        self._authorizer = authorizer
        self._changes = ActionChanges(scheduler, authorizer)
        self._watchers = watchers
        self._durability = scheduler.installation.durability

    def _changed(self, change: ChangeResult, caller: Caller) -> pb.Changed:
        seen = msgspec.structs.replace(change, action=caller.sight.see(change.action))
        return write_changed(seen, self._durability)

    # -- change -----------------------------------------------------------------------------------

    async def create(self, request: pb.CreateRequest, caller: Caller) -> pb.CreateResponse:
        change = await self._changes.create(read_request(request), caller=caller.principal)
        return pb.CreateResponse(changed=self._changed(change, caller))

    async def replace(self, request: pb.ReplaceRequest, caller: Caller) -> pb.ReplaceResponse:
        replacement, if_match = read_request(request), _if_match(request)
        change = await self._changes.replace(
            action_id(request.id),
            replacement,
            if_match=if_match,
            barrier=request.barrier,
            caller=caller.principal,
        )
        return pb.ReplaceResponse(changed=self._changed(change, caller))

    async def delete(self, request: pb.DeleteRequest, caller: Caller) -> pb.DeleteResponse:
        change = await self._scheduler.delete(
            request.id,
            if_match=_if_match(request),
            running=request.running,
            barrier=request.barrier,
            actor=caller.name,
        )
        return pb.DeleteResponse(changed=self._changed(change, caller))

    async def create_many(
        self, request: pb.CreateManyRequest, caller: Caller
    ) -> pb.CreateManyResponse:
        items = await _read_items(request)
        results = await self._changes.create_many(items, caller=caller.principal)
        return pb.CreateManyResponse(
            results=[_write_result(result) for result in results], durability=self._durability
        )

    async def run_now(self, request: pb.RunNowRequest, caller: Caller) -> pb.RunNowResponse:
        change = await self._changes.run_now(
            request.id, if_match=_if_match(request), caller=caller.principal
        )
        return pb.RunNowResponse(changed=self._changed(change, caller))

    async def pause(self, request: pb.PauseRequest, caller: Caller) -> pb.PauseResponse:
        change = await self._scheduler.pause(
            request.id,
            reason=read_text(request.reason, "reason") if request.HasField("reason") else None,
            until=_read_until(request),
            if_match=_if_match(request),
            actor=caller.name,
        )
        return pb.PauseResponse(changed=self._changed(change, caller))

    async def resume(self, request: pb.ResumeRequest, caller: Caller) -> pb.ResumeResponse:
        change = await self._changes.resume(
            request.id, if_match=_if_match(request), caller=caller.principal
        )
        return pb.ResumeResponse(changed=self._changed(change, caller))

    async def retry(self, request: pb.RetryRequest, caller: Caller) -> pb.RetryResponse:
        change = await self._changes.retry(request.id, caller=caller.principal)
        return pb.RetryResponse(changed=self._changed(change, caller))

    # -- look -------------------------------------------------------------------------------------

    async def get(self, request: pb.GetRequest, caller: Caller) -> pb.GetResponse:
        action = caller.sight.see(await self._scheduler.get(request.id))
        return pb.GetResponse(action=write_action(action), durability=self._durability)

    async def list(self, request: pb.ListRequest, caller: Caller) -> pb.ListResponse:
        """A page; a shorter one if its message would be too large."""
        selection = caller.sight.check(read_selection(request))
        after = read_text(request.after, "after") if request.HasField("after") else None
        limit = request.limit if request.HasField("limit") else LIMIT_DEFAULT
        while True:
            page = await self._scheduler.list(selection, after=after, limit=limit)
            answer = self._page(page, caller)
            if limit == 1 or answer.ByteSize() <= MESSAGE_BYTES_MAX:
                return answer
            limit = max(1, min(limit, len(page.actions)) // 2)

    def _page(self, page: ActionPage, caller: Caller) -> pb.ListResponse:
        actions = [write_action(caller.sight.see(action)) for action in page.actions]
        return pb.ListResponse(actions=actions, next=page.next, durability=self._durability)

    async def attempts(self, request: pb.AttemptsRequest, caller: Caller) -> pb.AttemptsResponse:
        limit = request.limit if request.HasField("limit") else LIMIT_DEFAULT
        answer, size = pb.AttemptsResponse(), 0
        attempts = await self._scheduler.attempts(request.id, limit=limit)
        if not caller.sight.is_whole:
            action = await self._scheduler.store.actions.get(request.id)
            attempts = caller.sight.see_attempts(attempts, action)
        for attempt in attempts:
            shown = write_attempt(attempt)
            size += shown.ByteSize() + 8  # its tag and length
            if size > MESSAGE_BYTES_MAX:
                answer.truncated = True
                break
            answer.attempts.append(shown)
        return answer

    async def watch(
        self, request: pb.WatchRequest, caller: Caller
    ) -> AsyncIterator[pb.WatchResponse]:
        watch = self._watchers.watch(
            self._scheduler.watch(request.id),
            confirm=lambda: self._authorizer.confirm(caller.token, READ),
        )
        async for action in watch:
            if action is not None:
                seen = write_action(caller.sight.see(action))
                yield pb.WatchResponse(action=seen, durability=self._durability)

    # -- limits -----------------------------------------------------------------------------------

    async def set_limit(self, request: pb.SetLimitRequest, caller: Caller) -> pb.SetLimitResponse:
        use = await self._scheduler.set_limit(read_limit(request.limit), actor=caller.name)
        return pb.SetLimitResponse(use=write_limit_use(use))

    async def drop_limit(
        self, request: pb.DropLimitRequest, caller: Caller
    ) -> pb.DropLimitResponse:
        kind = read_word(pb.LimitKind.DESCRIPTOR, request.kind, "kind")
        use = await self._scheduler.drop_limit(kind, request.name, actor=caller.name)
        return pb.DropLimitResponse(use=write_limit_use(use))

    async def list_limits(
        self, _request: pb.ListLimitsRequest, _caller: Caller
    ) -> pb.ListLimitsResponse:
        uses = await self._scheduler.list_limits()
        return pb.ListLimitsResponse(uses=[write_limit_use(use) for use in uses])


# -- requests -------------------------------------------------------------------------------------


def read_request(message: pb.CreateRequest | pb.ReplaceRequest) -> Request:
    """What is to be stored."""
    if not message.HasField("spec"):
        raise InvalidSpec("spec", "is required")
    has_id = isinstance(message, pb.ReplaceRequest) or message.HasField("id")
    return Request(
        id=message.id if has_id else None,
        key=message.idempotency_key if message.HasField("idempotency_key") else None,
        spec=read_spec(message.spec),
    )


async def _read_items(message: pb.CreateManyRequest) -> list[Request | GnomonError]:
    """A bad one spoils no other, and many do not hold up everybody."""
    items: list[Request | GnomonError] = []
    for number, item in enumerate(message.actions):
        items.append(_read_item(item))
        if number % READ_PAUSE_EVERY == 0:
            await asyncio.sleep(0)
    return items


def _read_item(message: pb.CreateRequest) -> Request | GnomonError:
    try:
        return read_request(message)
    except GnomonError as exc:
        return exc


def _if_match(message: Any) -> UUID | None:
    return read_guid(message.if_match, "if_match") if message.HasField("if_match") else None


def _read_until(request: pb.PauseRequest) -> datetime | timedelta | None:
    match request.WhichOneof("until"):
        case "until_time":
            return read_time(request.until_time, "until")
        case "until_after":
            return read_duration(request.until_after, "until")
        case _:
            return None


def read_selection(message: pb.ListRequest) -> Selection:
    """The filters of a listing."""
    kind = action_pb2.State.DESCRIPTOR
    return Selection(
        states=tuple(State(read_word(kind, number, "states")) for number in message.states),
        queue=read_text(message.queue, "queue") if message.HasField("queue") else None,
        id_prefix=(
            read_text(message.id_prefix, "id_prefix") if message.HasField("id_prefix") else None
        ),
        labels={
            read_text(name, "labels"): read_text(value, "labels")
            for name, value in message.labels.items()
        },
        due_before=(
            read_time(message.due_before, "due_before") if message.HasField("due_before") else None
        ),
        function=read_text(message.function, "function") if message.HasField("function") else None,
        error_contains=(
            read_text(message.error_contains, "error_contains")
            if message.HasField("error_contains")
            else None
        ),
        arguments={
            read_text(path, "arguments"): read_text(value, "arguments")
            for path, value in message.arguments.items()
        },
        search=read_text(message.search, "search") if message.HasField("search") else None,
        recurring=message.recurring,
        paused_for=(
            read_text(message.paused_for, "paused_for") if message.HasField("paused_for") else None
        ),
    )


def _write_result(result: ChangeResult | GnomonError) -> pb.CreateManyResult:
    if isinstance(result, GnomonError):
        return pb.CreateManyResult(problem=write_problem(problem_of(result)))
    action = result.action
    due = action.status.scheduled_at
    created = pb.CreatedAction(
        meta=write_meta(action.meta),
        scheduled_at=None if due is None else write_time(due),
        repeated=result.repeated,
    )
    return pb.CreateManyResult(created=created)
