"""The routes of actions: each reads a request, calls one verb of the scheduler, and answers."""

from __future__ import annotations

import litestar
from litestar.datastructures import State
from litestar.params import FromPath
from litestar.response import Stream

from gnomon.contracts.store import ChangeResult
from gnomon.gateways.auth import READ, check_spec, check_stored, permitted
from gnomon.gateways.rest.answers import (
    Bytes,
    answer_action,
    answer_bulk,
    answer_json,
    answer_page,
    show,
    show_changed,
)
from gnomon.gateways.rest.events import EventStreams
from gnomon.gateways.rest.guards import authorizer_of, principal_of, token_of
from gnomon.gateways.rest.request_fields import (
    BULK_BYTES_MAX,
    AnyRequest,
    QueryFields,
    read_bulk,
    read_create,
    read_if_match,
    read_replace,
    read_selection,
)
from gnomon.model.codec import BODY_BYTES_MAX
from gnomon.model.errors import GnomonError
from gnomon.scheduler import Request, Scheduler

EVENT_STREAM = "text/event-stream"
LIST_FIELDS = ("state", "queue", "id_prefix", "label", "due_before", "limit", "after")


def scheduler_of(state: State) -> Scheduler:
    found: Scheduler = state.scheduler
    return found


def _answer(state: State, changed: ChangeResult, *, created: bool = False) -> Bytes:
    durability = scheduler_of(state).installation.durability
    return answer_action(show_changed(changed, durability), created=created)


class Actions(litestar.Controller):
    """All actions: create, list."""

    path = "/v1"

    @litestar.post("/actions", request_max_body_size=BODY_BYTES_MAX)
    async def create(self, request: AnyRequest, state: State) -> Bytes:
        """Store a new action."""
        QueryFields(request, known=())
        asked, principal = await read_create(request), principal_of(request)
        check_spec(principal, asked.spec)
        await authorizer_of(request).admit(principal)
        changed = await scheduler_of(state).create(asked, actor=principal.name)
        return _answer(state, changed, created=True)

    @litestar.post("/actions:bulk", request_max_body_size=BULK_BYTES_MAX)
    async def create_many(self, request: AnyRequest, state: State) -> Bytes:
        """Store many; one answer each, in order."""
        QueryFields(request, known=())
        principal, scheduler = principal_of(request), scheduler_of(state)
        items = [permitted(principal, item) for item in await read_bulk(request)]
        asked = [item for item in items if isinstance(item, Request)]
        await authorizer_of(request).admit(principal, len(asked))
        stored = iter(await scheduler.create_many(asked, actor=principal.name) if asked else ())
        results = [item if isinstance(item, GnomonError) else next(stored) for item in items]
        return answer_bulk(results, scheduler.installation.durability)

    @litestar.get("/actions")
    async def list(self, request: AnyRequest, state: State) -> Bytes:
        """A page of actions in order of id."""
        query = QueryFields(request, known=LIST_FIELDS)
        scheduler = scheduler_of(state)
        page = await scheduler.list(
            read_selection(query), after=query.one("after"), limit=query.number("limit", 100)
        )
        return answer_page(page, scheduler.installation.durability)


class OneAction(litestar.Controller):
    """One action: look, replace, delete, and the verbs that change how it goes."""

    path = "/v1/actions/{id:str}"

    @litestar.get()
    async def get(self, id: FromPath[str], request: AnyRequest, state: State) -> Bytes:
        """The action, live or the latest finished one."""
        QueryFields(request, known=())
        scheduler = scheduler_of(state)
        return answer_action(show(await scheduler.get(id), scheduler.installation.durability))

    @litestar.put(request_max_body_size=BODY_BYTES_MAX)
    async def replace(self, id: FromPath[str], request: AnyRequest, state: State) -> Bytes:
        """Give it a new spec, or create it."""
        query = QueryFields(request, known=("barrier",))
        if_match = read_if_match(request)
        barrier = query.flag("barrier")
        asked, principal = await read_replace(request, id), principal_of(request)
        check_spec(principal, asked.spec)
        await authorizer_of(request).admit_replace(principal, scheduler_of(state), id)
        changed = await scheduler_of(state).replace(
            asked, if_match=if_match, barrier=barrier, actor=principal.name
        )
        return _answer(state, changed)

    @litestar.delete(status_code=200)
    async def delete(self, id: FromPath[str], request: AnyRequest, state: State) -> Bytes:
        """Cancel it."""
        query = QueryFields(request, known=("barrier",))
        changed = await scheduler_of(state).delete(
            id,
            if_match=read_if_match(request),
            barrier=query.flag("barrier"),
            actor=principal_of(request).name,
        )
        return _answer(state, changed)

    @litestar.post("/run")
    async def run(self, id: FromPath[str], request: AnyRequest, state: State) -> Bytes:
        """Make it due at once."""
        QueryFields(request, known=())
        principal, if_match = principal_of(request), read_if_match(request)
        await check_stored(principal, scheduler_of(state), id)
        changed = await scheduler_of(state).run_now(id, if_match=if_match, actor=principal.name)
        return _answer(state, changed)

    @litestar.post("/pause")
    async def pause(self, id: FromPath[str], request: AnyRequest, state: State) -> Bytes:
        """Let nothing begin until it is resumed."""
        QueryFields(request, known=())
        changed = await scheduler_of(state).pause(
            id, if_match=read_if_match(request), actor=principal_of(request).name
        )
        return _answer(state, changed)

    @litestar.post("/resume")
    async def resume(self, id: FromPath[str], request: AnyRequest, state: State) -> Bytes:
        """Let it go on."""
        QueryFields(request, known=())
        principal, if_match = principal_of(request), read_if_match(request)
        await check_stored(principal, scheduler_of(state), id)
        changed = await scheduler_of(state).resume(id, if_match=if_match, actor=principal.name)
        return _answer(state, changed)

    @litestar.post("/retry")
    async def retry(self, id: FromPath[str], request: AnyRequest, state: State) -> Bytes:
        """Arm a finished action once more."""
        QueryFields(request, known=())
        principal = principal_of(request)
        await check_stored(principal, scheduler_of(state), id)
        await authorizer_of(request).admit(principal)
        changed = await scheduler_of(state).retry(id, actor=principal.name)
        return _answer(state, changed)

    @litestar.get("/attempts")
    async def attempts(self, id: FromPath[str], request: AnyRequest, state: State) -> Bytes:
        """What was attempted, newest first."""
        query = QueryFields(request, known=("limit",))
        found = await scheduler_of(state).attempts(id, limit=query.number("limit", 100))
        return answer_json({"attempts": found})

    @litestar.get("/events")
    async def events(self, id: FromPath[str], request: AnyRequest, state: State) -> Stream:
        """The action now, and after every change until it has ended."""
        QueryFields(request, known=())
        scheduler, watchers = scheduler_of(state), watchers_of(state)
        durability = scheduler.installation.durability
        found = await watchers.open(
            scheduler.watch(id),
            shown=lambda action: show(action, durability),
            confirm=lambda: authorizer_of(request).confirm(token_of(request), READ),
        )
        return Stream(found, media_type=EVENT_STREAM, headers={"Cache-Control": "no-store"})


def watchers_of(state: State) -> EventStreams:
    found: EventStreams = state.watchers
    return found
