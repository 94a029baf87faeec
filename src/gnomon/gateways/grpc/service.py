"""The rpcs: each reads a request, calls one verb of the scheduler, and answers. No rules here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

from gnomon.contracts.store import ActionPage, ChangeResult, Selection
from gnomon.gateways.auth import READ, Authorizer, check_spec, check_stored, permitted
from gnomon.gateways.grpc.boundary import Caller
from gnomon.gateways.grpc.conversion import (
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
    write_time,
)
from gnomon.gateways.grpc.watchers import Watchers
from gnomon.model.action import State
from gnomon.model.errors import GnomonError, InvalidSpec
from gnomon.model.ids import action_id
from gnomon.scheduler import Request, Scheduler
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
        self._watchers = watchers
        self._durability = scheduler.installation.durability

    def _changed(self, changed: ChangeResult) -> pb.Changed:
        return write_changed(changed, self._durability)

    # -- change -----------------------------------------------------------------------------------

    async def create(self, request: pb.CreateRequest, caller: Caller) -> pb.CreateResponse:
        asked = read_request(request)
        check_spec(caller.principal, asked.spec)
        await self._authorizer.admit(caller.principal)
        changed = await self._scheduler.create(asked, actor=caller.name)
        return pb.CreateResponse(changed=self._changed(changed))

    async def replace(self, request: pb.ReplaceRequest, caller: Caller) -> pb.ReplaceResponse:
        asked, if_match = read_request(request), _if_match(request)
        check_spec(caller.principal, asked.spec)
        id = action_id(request.id)
        await self._authorizer.admit_replace(caller.principal, self._scheduler, id)
        changed = await self._scheduler.replace(
            asked, if_match=if_match, barrier=request.barrier, actor=caller.name
        )
        return pb.ReplaceResponse(changed=self._changed(changed))

    async def delete(self, request: pb.DeleteRequest, caller: Caller) -> pb.DeleteResponse:
        changed = await self._scheduler.delete(
            request.id, if_match=_if_match(request), barrier=request.barrier, actor=caller.name
        )
        return pb.DeleteResponse(changed=self._changed(changed))

    async def create_many(
        self, request: pb.CreateManyRequest, caller: Caller
    ) -> pb.CreateManyResponse:
        items = [permitted(caller.principal, item) for item in await _read_items(request)]
        asked = [item for item in items if isinstance(item, Request)]
        await self._authorizer.admit(caller.principal, len(asked))
        stored = iter(await self._scheduler.create_many(asked, actor=caller.name) if asked else ())
        results = [item if isinstance(item, GnomonError) else next(stored) for item in items]
        return pb.CreateManyResponse(
            results=[_write_result(result) for result in results], durability=self._durability
        )

    async def run_now(self, request: pb.RunNowRequest, caller: Caller) -> pb.RunNowResponse:
        if_match = _if_match(request)
        await check_stored(caller.principal, self._scheduler, request.id)
        changed = await self._scheduler.run_now(request.id, if_match=if_match, actor=caller.name)
        return pb.RunNowResponse(changed=self._changed(changed))

    async def pause(self, request: pb.PauseRequest, caller: Caller) -> pb.PauseResponse:
        changed = await self._scheduler.pause(
            request.id, if_match=_if_match(request), actor=caller.name
        )
        return pb.PauseResponse(changed=self._changed(changed))

    async def resume(self, request: pb.ResumeRequest, caller: Caller) -> pb.ResumeResponse:
        if_match = _if_match(request)
        await check_stored(caller.principal, self._scheduler, request.id)
        changed = await self._scheduler.resume(request.id, if_match=if_match, actor=caller.name)
        return pb.ResumeResponse(changed=self._changed(changed))

    async def retry(self, request: pb.RetryRequest, caller: Caller) -> pb.RetryResponse:
        await check_stored(caller.principal, self._scheduler, request.id)
        await self._authorizer.admit(caller.principal)
        changed = await self._scheduler.retry(request.id, actor=caller.name)
        return pb.RetryResponse(changed=self._changed(changed))

    # -- look -------------------------------------------------------------------------------------

    async def get(self, request: pb.GetRequest, _caller: Caller) -> pb.GetResponse:
        action = await self._scheduler.get(request.id)
        return pb.GetResponse(action=write_action(action), durability=self._durability)

    async def list(self, request: pb.ListRequest, _caller: Caller) -> pb.ListResponse:
        """A page; a shorter one if its message would be too large."""
        selection = read_selection(request)
        after = read_text(request.after, "after") if request.HasField("after") else None
        limit = request.limit if request.HasField("limit") else LIMIT_DEFAULT
        while True:
            page = await self._scheduler.list(selection, after=after, limit=limit)
            answer = self._page(page)
            if limit == 1 or answer.ByteSize() <= MESSAGE_BYTES_MAX:
                return answer
            limit = max(1, min(limit, len(page.actions)) // 2)

    def _page(self, page: ActionPage) -> pb.ListResponse:
        actions = [write_action(action) for action in page.actions]
        return pb.ListResponse(actions=actions, next=page.next, durability=self._durability)

    async def attempts(self, request: pb.AttemptsRequest, _caller: Caller) -> pb.AttemptsResponse:
        limit = request.limit if request.HasField("limit") else LIMIT_DEFAULT
        answer, size = pb.AttemptsResponse(), 0
        for attempt in await self._scheduler.attempts(request.id, limit=limit):
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
        watched = self._scheduler.watch(request.id)
        async for action in self._watchers.watch(
            watched, lambda: self._authorizer.confirm(caller.token, READ)
        ):
            yield pb.WatchResponse(action=write_action(action), durability=self._durability)

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
    found: list[Request | GnomonError] = []
    for number, item in enumerate(message.actions):
        found.append(_read_item(item))
        if number % READ_PAUSE_EVERY == 0:
            await asyncio.sleep(0)
    return found


def _read_item(message: pb.CreateRequest) -> Request | GnomonError:
    try:
        return read_request(message)
    except GnomonError as exc:
        return exc


def _if_match(message: Any) -> UUID | None:
    return read_guid(message.if_match, "if_match") if message.HasField("if_match") else None


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
    )


def _write_result(result: ChangeResult | GnomonError) -> pb.CreateManyResult:
    if isinstance(result, GnomonError):
        return pb.CreateManyResult(problem=write_problem(result))
    action = result.action
    due = action.status.scheduled_at
    created = pb.CreatedAction(
        meta=write_meta(action.meta),
        scheduled_at=None if due is None else write_time(due),
        repeated=result.repeated,
    )
    return pb.CreateManyResult(created=created)
