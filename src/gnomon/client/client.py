"""A typed client with the same verbs, values and errors as the scheduler in process."""

from __future__ import annotations

import io
import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Self, TypeVar
from urllib.parse import quote
from uuid import UUID

import aiohttp
import msgspec

from gnomon.client.entities import EntityClient
from gnomon.client.problems import error_of
from gnomon.client.reports import ReportClient
from gnomon.contracts.status import InstallationStatus
from gnomon.contracts.store import (
    ActionPage,
    ChangeResult,
    LimitUse,
    SelectedCount,
    Selection,
)
from gnomon.model.action import Action, Attempt, Meta, Status
from gnomon.model.codec import read_spec
from gnomon.model.duration import format_duration, parse_duration
from gnomon.model.errors import GnomonError, InvalidRequest, Unavailable
from gnomon.model.ids import action_id
from gnomon.model.limits import Limit, LimitKind, limit_key
from gnomon.model.pause import Until, pause_terms
from gnomon.model.why import Why
from gnomon.scheduler import Request
from gnomon.scheduler.options import Duration
from gnomon.scheduler.preview import COUNT_DEFAULT, Preview
from gnomon.scheduler.scheduler import COUNT_MAX
from gnomon.scheduler.selected import StepResult

TIMEOUT_S = 60.0
STEP_DEFAULT = 200  # of a verb on everything that matches: a few seconds at most
SILENCE_S = 60.0  # the server says at least every 15 s that a watch goes on
EVENT_BYTES_MAX = 512 * 1024

_T = TypeVar("_T")
_ENCODER = msgspec.json.Encoder()


class _ActionAnswer(msgspec.Struct):
    meta: Meta
    spec: msgspec.Raw  # one that cannot be read here must not hide the others of a page
    status: Status
    in_flight: Attempt | None = None
    repeated: bool = False
    asked: bool = False

    def changed(self) -> ChangeResult:
        return ChangeResult(
            action=self.action(),
            in_flight=self.in_flight,
            repeated=self.repeated,
            asked=self.asked,
        )

    def action(self) -> Action:
        return Action(meta=self.meta, spec=read_spec(bytes(self.spec)), status=self.status)


class _ActionsAnswer(msgspec.Struct):
    actions: list[_ActionAnswer]
    next: str | None = None
    looked_at: int | None = None


class _BulkItem(msgspec.Struct):
    action: _ActionAnswer | None = None
    problem: dict[str, Any] | None = None


class _BulkAnswer(msgspec.Struct):
    items: list[_BulkItem]


class _AttemptsAnswer(msgspec.Struct):
    attempts: list[Attempt]


class _LimitAnswer(msgspec.Struct):
    kind: LimitKind
    name: str
    parallel: int | None = None
    rate: float | None = None
    burst: int | None = None
    granted: int = 0
    wanted: int = 0

    def use(self) -> LimitUse:
        limit = Limit(
            kind=self.kind, name=self.name, parallel=self.parallel, rate=self.rate, burst=self.burst
        )
        return LimitUse(limit=limit, granted=self.granted, wanted=self.wanted)


class _LimitsAnswer(msgspec.Struct):
    limits: list[_LimitAnswer]


class Client:
    """Talks to one server. Use it as `async with Client("http://127.0.0.1:8321") as client`.

    `tls` is for servers whose certificate no public authority has signed. `face` is what the audit
    shows beside the caller's name: `python` or `cli`.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout_s: float = TIMEOUT_S,
        tls: ssl.SSLContext | None = None,
        face: str = "python",
    ) -> None:
        self.url = url.rstrip("/")
        self._tls = tls or True
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=timeout_s),
            headers={**_authorization(token), "Gnomon-Face": face},
        )

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Give back the connections."""
        await self._session.close()

    # -- create -----------------------------------------------------------------------------------

    async def create(self, request: Request) -> ChangeResult:
        """Store a new action. With a key it can be repeated safely."""
        body: dict[str, object] = {"spec": request.spec}
        if request.id is not None:
            body["id"] = request.id
        answer = await self._call(
            "POST", "/v1/actions", _ActionAnswer, body=body, headers=_key(request)
        )
        return answer.changed()

    async def create_many(
        self, requests: Sequence[Request]
    ) -> Sequence[ChangeResult | GnomonError]:
        """Store up to 10,000 actions; one answer each, in order."""
        items = [
            {
                name: value
                for name, value in (("id", item.id), ("key", item.key), ("spec", item.spec))
                if value is not None
            }
            for item in requests
        ]
        answer = await self._call("POST", "/v1/actions:bulk", _BulkAnswer, body={"actions": items})
        return [_bulk_result(item) for item in answer.items]

    # -- change -----------------------------------------------------------------------------------

    async def replace(
        self, request: Request, *, if_match: UUID | None = None, barrier: bool = False
    ) -> ChangeResult:
        """Give an action a new spec, or create it."""
        if request.id is None:
            raise InvalidRequest("id: is required to replace an action")
        return await self._change(
            "PUT", request.id, if_match=if_match, query=_flags(barrier=barrier),
            body={"spec": request.spec}, headers=_key(request),
        )  # fmt: skip

    async def delete(
        self,
        id: str,
        *,
        if_match: UUID | None = None,
        running: bool = False,
        barrier: bool = False,
    ) -> ChangeResult:
        """Cancel an action: no attempt of it begins any more. With `running` the attempt under way
        is asked to end, too."""
        query = _flags(running=running, barrier=barrier)
        return await self._change("DELETE", id, if_match=if_match, query=query)

    async def pause(
        self,
        id: str,
        *,
        reason: str | None = None,
        until: Until | None = None,
        if_match: UUID | None = None,
    ) -> ChangeResult:
        """Let no attempt begin until it is resumed, or until a time, or for a duration: then it
        goes on by itself."""
        query = _pause_query(reason, until)
        return await self._change("POST", id, "/pause", if_match=if_match, query=query)

    async def resume(self, id: str, *, if_match: UUID | None = None) -> ChangeResult:
        """Let a paused action go on."""
        return await self._change("POST", id, "/resume", if_match=if_match)

    async def run_now(self, id: str, *, if_match: UUID | None = None) -> ChangeResult:
        """Make an action due at once."""
        return await self._change("POST", id, "/run", if_match=if_match)

    async def retry(self, id: str) -> ChangeResult:
        """Arm a finished action that did not succeed once more."""
        return await self._change("POST", id, "/retry")

    async def change_selected(
        self,
        verb: str,
        selection: Selection,
        *,
        running: bool = False,
        reason: str | None = None,
        until: Until | None = None,
        after: str | None = None,
        limit: int = STEP_DEFAULT,
    ) -> StepResult:
        """Use a verb (delete, pause, resume, run_now, retry) on everything that matches, or a part:
        one step, which `next` of the answer continues."""
        query = [("verb", verb), ("limit", str(limit)), *_filters(selection)]
        query += _flags(running=running)
        query += _pause_query(reason, until)
        query += [] if after is None else [("after", after)]
        return await self._call("POST", "/v1/actions:change", StepResult, query=query)

    # -- look -------------------------------------------------------------------------------------

    async def count(self, selection: Selection, *, limit: int = COUNT_MAX) -> int:
        """How many actions match; counted up to `limit` only."""
        count = 0
        after: str | None = None
        while True:
            query = [("limit", str(limit - count)), *_filters(selection)]
            query += [] if after is None else [("after", after)]
            step = await self._call("GET", "/v1/actions:count", SelectedCount, query=query)
            count, after = count + step.count, step.next
            if after is None or count >= limit:
                return count

    async def get(self, id: str) -> Action:
        """The action with this id. Errors: NotFound."""
        return (await self._call("GET", _path(id), _ActionAnswer)).action()

    async def list(
        self, selection: Selection, *, after: str | None = None, limit: int = 100
    ) -> ActionPage:
        """A page of actions in order of id."""
        query = [("limit", str(limit)), *_filters(selection)]
        if after is not None:
            query.append(("after", after))
        answer = await self._call("GET", "/v1/actions", _ActionsAnswer, query=query)
        actions = [item.action() for item in answer.actions]
        return ActionPage(actions=actions, next=answer.next, looked_at=answer.looked_at)

    async def preview(
        self,
        *,
        cron: str | None = None,
        timezone: str | None = None,
        every: Duration | None = None,
        from_: datetime | None = None,
        count: int = COUNT_DEFAULT,
    ) -> Preview:
        """The next firings of a schedule; nothing is stored."""
        period = None if every is None else format_duration(parse_duration(every, "every"))
        given = {
            "cron": cron, "timezone": timezone, "every": period, "count": str(count),
            "from": None if from_ is None else from_.isoformat(),
        }  # fmt: skip
        query = [(name, value) for name, value in given.items() if value is not None]
        return await self._call("GET", "/v1/preview", Preview, query=query)

    async def attempts(self, id: str, *, limit: int = 100) -> Sequence[Attempt]:
        """The recorded attempts of an action, newest first."""
        query = [("limit", str(limit))]
        answer = await self._call("GET", f"{_path(id)}/attempts", _AttemptsAnswer, query=query)
        return answer.attempts

    async def why(self, id: str) -> Why:
        """Why it waits, in a sentence; or that it does not. Errors: NotFound."""
        return await self._call("GET", f"{_path(id)}/why", Why)

    async def watch(self, id: str) -> AsyncGenerator[Action, None]:
        """The action now, and after every change until it has ended. Errors: NotFound; when the
        server ends the stream earlier, Unavailable."""
        patience = aiohttp.ClientTimeout(total=None, sock_read=SILENCE_S)
        headers = {"Accept": "text/event-stream"}
        action: Action | None = None
        try:
            async with self._session.get(
                f"{self.url}{_path(id)}/events", headers=headers, timeout=patience, ssl=self._tls,
                allow_redirects=False, read_bufsize=EVENT_BYTES_MAX,
            ) as response:  # fmt: skip
                if response.status != 200:
                    _decoded(response.status, await response.read(), _ActionAnswer)
                async for line in response.content:
                    if line.startswith(b"data: "):
                        action = _decoded(200, line[6:], _ActionAnswer).action()
                        yield action
        except (aiohttp.ClientError, TimeoutError) as exc:
            raise self._unanswered(exc) from exc
        if action is None or not action.status.state.is_terminal:
            raise Unavailable(f"{self.url} ended the watch of {id}: watch again")

    # -- limits -----------------------------------------------------------------------------------

    async def set_limit(self, limit: Limit) -> LimitUse:
        """Set a limit of a queue or a target, or change it."""
        fields = {"parallel": limit.parallel, "rate": limit.rate, "burst": limit.burst}
        body = {name: value for name, value in fields.items() if value is not None}
        path = _limit_path(limit.kind, limit.name)
        return (await self._call("PUT", path, _LimitAnswer, body=body)).use()

    async def drop_limit(self, kind: str, name: str) -> LimitUse:
        """Have no such limit any more; as it was. Errors: NotFound."""
        return (await self._call("DELETE", _limit_path(kind, name), _LimitAnswer)).use()

    async def get_limit(self, kind: str, name: str) -> LimitUse:
        """A limit, and how much of it is in use. Errors: NotFound."""
        return (await self._call("GET", _limit_path(kind, name), _LimitAnswer)).use()

    async def list_limits(self) -> Sequence[LimitUse]:
        """All limits by kind and name."""
        answer = await self._call("GET", "/v1/limits", _LimitsAnswer)
        return [item.use() for item in answer.limits]

    async def status(self) -> InstallationStatus:
        """How the installation is: figures, workers, what is wrong."""
        return await self._call("GET", "/v1/status", InstallationStatus)

    async def health(self) -> Mapping[str, Any]:
        """What the server says about itself."""
        return await self._call("GET", "/health", dict[str, Any])

    @property
    def entities(self) -> EntityClient:
        """Entities and their stages."""
        return EntityClient(self._call)

    @property
    def reports(self) -> ReportClient:
        """How it goes, what failed."""
        return ReportClient(self._call)

    # -- inside -----------------------------------------------------------------------------------

    async def _change(
        self,
        method: str,
        id: str,
        verb: str = "",
        *,
        if_match: UUID | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        query: Sequence[tuple[str, str]] = (),
    ) -> ChangeResult:
        sent = dict(headers or {})
        if if_match is not None:
            sent["If-Match"] = f'"{if_match}"'
        answer = await self._call(
            method, _path(id) + verb, _ActionAnswer, body=body, headers=sent, query=query
        )
        return answer.changed()

    async def _call(
        self,
        method: str,
        path: str,
        answer: type[_T],
        *,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        query: Sequence[tuple[str, str]] = (),
    ) -> _T:
        sent = dict(headers or {})
        data = None
        if body is not None:
            data = io.BytesIO(_ENCODER.encode(body))  # sent in pieces: a bulk may be large
            sent.setdefault("Content-Type", "application/json")
        try:
            async with self._session.request(
                method, self.url + path, data=data, headers=sent, params=query,
                allow_redirects=False, ssl=self._tls,
            ) as response:  # fmt: skip
                return _decoded(response.status, await response.read() or b"null", answer)
        except (aiohttp.ClientError, TimeoutError) as exc:
            raise self._unanswered(exc) from exc

    def _unanswered(self, exc: BaseException) -> Unavailable:
        return Unavailable(f"no answer from {self.url}: {str(exc) or type(exc).__name__}")


def _authorization(token: str | None) -> dict[str, str]:
    if token is None:
        return {}
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidRequest("token: is not one; `gnomon token create` makes one")
    return {"Authorization": f"Bearer {token}"}


def _decoded(status: int, body: bytes, answer: type[_T]) -> _T:
    try:
        if 200 <= status < 300:
            return msgspec.json.decode(body, type=answer)
        raise error_of(status, msgspec.json.decode(body, type=dict[str, Any]))
    except msgspec.DecodeError:
        raise GnomonError(f"the server answered {status} with something unexpected") from None


def _bulk_result(item: _BulkItem) -> ChangeResult | GnomonError:
    if item.action is not None:
        return item.action.changed()
    problem = item.problem or {}
    return error_of(int(problem.get("status", 500)), problem)


def _path(id: str) -> str:
    return f"/v1/actions/{quote(action_id(id), safe='')}"


def _limit_path(kind: str, name: str) -> str:
    key = limit_key(kind, name)
    return f"/v1/limits/{key.kind}/{key.name}"


def _key(request: Request) -> dict[str, str]:
    if request.key is None:
        return {}
    if not (request.key.isascii() and request.key.isprintable()):
        raise InvalidRequest("key: over HTTP an idempotency key is printable ASCII")
    return {"Idempotency-Key": request.key}


def _flags(**flags: bool) -> list[tuple[str, str]]:
    return [(name, "true") for name, is_set in flags.items() if is_set]


def _pause_query(reason: str | None, until: Until | None) -> list[tuple[str, str]]:
    """What is said of a pause, checked here as the server would. Errors: InvalidSpec."""
    terms = pause_terms(reason, until)
    query = [] if terms.reason is None else [("reason", terms.reason)]
    match terms.until:
        case datetime():
            query.append(("until", terms.until.isoformat()))
        case timedelta():
            query.append(("until", format_duration(terms.until)))
    return query


def _filters(selection: Selection) -> list[tuple[str, str]]:
    filters = [("state", str(state)) for state in selection.states]
    filters += [("label", f"{name}={value}") for name, value in selection.labels.items()]
    filters += [("argument", f"{path}={value}") for path, value in selection.arguments.items()]
    if selection.queue is not None:
        filters.append(("queue", selection.queue))
    if selection.id_prefix is not None:
        filters.append(("id_prefix", selection.id_prefix))
    if selection.function is not None:
        filters.append(("function", selection.function))
    if selection.error_contains is not None:
        filters.append(("error_contains", selection.error_contains))
    if selection.search is not None:
        filters.append(("search", selection.search))
    if selection.recurring:
        filters.append(("recurring", "true"))
    if selection.paused_for is not None:
        filters.append(("paused_for", selection.paused_for))
    if selection.due_before is not None:
        filters.append(("due_before", selection.due_before.isoformat()))
    return filters
