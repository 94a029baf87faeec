"""The same verbs at every face. What a face refuses is a `Refusal`; a slip of ours fails."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any, Protocol

import aiohttp
import grpc
from google.protobuf.json_format import MessageToDict
from typer.main import get_command
from typer.testing import CliRunner

from gnomon.cli.root import root
from gnomon.client import Client
from gnomon.contracts.store import Selection
from gnomon.gateways.errors import EXIT_FINDINGS, row_of
from gnomon.model.errors import GnomonError, Unavailable
from gnomon.model.limits import Limit, LimitKind
from gnomon.model.spec import Mock, Spec
from gnomon.scheduler import Request
from gnomon.v1 import action_pb2
from gnomon.v1 import entity_pb2 as entities
from gnomon.v1 import scheduler_pb2 as actions
from gnomon.v1.entity_pb2_grpc import EntityServiceStub, StateServiceStub
from gnomon.v1.scheduler_pb2_grpc import SchedulerServiceStub

WITHIN_S = 30.0
KIND = "ad"
Shown = dict[str, Any]
_COMMAND = get_command(root)  # once: making it takes longer than most commands


class Refusal(Exception):  # noqa: N818 - an answer, not an error of the test
    """The face said no, and why."""


class NotNow(Exception):  # noqa: N818 - likewise
    """The face said that it cannot be done at the moment, and why."""


def refusal_of(error: GnomonError) -> Exception:
    """An answer, unless it hides what went wrong."""
    if isinstance(error, Unavailable):
        return NotNow(str(error))
    return AssertionError(error) if row_of(error).hides_detail else Refusal(str(error))


class Face(Protocol):
    """One way in. What it shows is a value of JSON, by id; None: it has no such verb."""

    async def call(self, verb: str, *names: str) -> Any: ...


def by_id(items: list[Any], *path: str) -> Shown:
    found = {}
    for item in items:
        place = item
        for step in path:
            place = place[step]
        found[str(place)] = item
    return found


class Rest:
    """Plain HTTP."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url = url
        self._session = session

    async def call(self, verb: str, *names: str) -> Any:
        if verb not in _ROUTES:
            return None
        method, path, *body = _ROUTES[verb]
        path = path.format(*names)
        if verb in _REST_LISTS:
            items, *place = _REST_LISTS[verb]
            found = await self._pages(path, items)
            return by_id(found, *place) if place else found
        return await self._ask(method, path, *body)

    async def _pages(self, path: str, items: str) -> list[Any]:
        """All of them: a page is shorter where its items are large."""
        page = await self._ask("GET", path)
        found = list(page[items])
        while page.get("next") is not None:
            page = await self._ask("GET", f"{path}?after={page['next']}")
            found += page[items]
        return found

    async def _ask(
        self, method: str, path: str, body: object = None, kind: str = "application/json"
    ) -> Any:
        data = None if body is None else json.dumps(body)
        async with (
            asyncio.timeout(WITHIN_S),
            self._session.request(
                method, self._url + path, data=data, headers={"Content-Type": kind}
            ) as response,
        ):
            text = await response.read()
        answer: Any = json.loads(text) if text else None
        if response.status == 503:
            raise NotNow(answer["detail"])
        assert response.status < 500, (method, path, response.status, answer)
        if response.status >= 400:
            raise Refusal(answer["detail"])
        return answer


_ACTION, _ENTITY = "/v1/actions/{0}", "/v1/entities/ad/{0}"
_TASKS = "/v1/task-tables/shop/tasks"
_ROUTES: dict[str, tuple[Any, ...]] = {
    "list_actions": ("GET", "/v1/actions"),
    "get_action": ("GET", _ACTION),
    "attempts": ("GET", f"{_ACTION}/attempts"),
    "pause": ("POST", f"{_ACTION}/pause"),
    "resume": ("POST", f"{_ACTION}/resume"),
    "run_now": ("POST", f"{_ACTION}/run"),
    "replace_action": ("PUT", _ACTION, {"spec": {"action": {"type": "mock"}}}),
    "delete_action": ("DELETE", _ACTION),
    "list_entities": ("GET", "/v1/entities/ad"),
    "get_entity": ("GET", _ENTITY),
    "explain": ("GET", f"{_ENTITY}/explain"),
    "patch_entity": ("PATCH", _ENTITY, {"a": 4}, "application/merge-patch+json"),
    "put_entity": ("PUT", _ENTITY, {"a": 5}),
    "delete_entity": ("DELETE", _ENTITY),
    "state": ("GET", f"{_ENTITY}/states/{{1}}"),
    "parked": ("GET", "/v1/parked"),
    "release": ("POST", f"{_ENTITY}/release"),
    "stages": ("GET", "/v1/stages"),
    "forget_stage": ("DELETE", "/v1/stages/{0}"),
    "limits": ("GET", "/v1/limits"),
    "set_limit": ("PUT", "/v1/limits/queue/{0}", {"parallel": 3}),
    "drop_limit": ("DELETE", "/v1/limits/queue/{0}"),
    "list_tasks": ("GET", _TASKS),
    "insert_task": ("POST", _TASKS, {"input": "SELECT 1", "plan": "2100-01-01T00:00:00Z"}),
    "get_task": ("GET", f"{_TASKS}/{{0}}"),
    "stop_task": ("POST", f"{_TASKS}/{{0}}/stop"),
    "plan_task": ("POST", f"{_TASKS}/{{0}}/plan"),
}
_REST_LISTS = {
    "list_actions": ("actions", "meta", "id"),
    "attempts": ("attempts",),
    "list_entities": ("entities", "id"),
    "parked": ("parked", "entity_id"),
    "stages": ("stages", "name"),
    "limits": ("limits", "name"),
    "list_tasks": ("tasks", "id"),
}


class PythonClient:
    """`gnomon.client`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def call(self, verb: str, *names: str) -> Any:
        try:
            async with asyncio.timeout(WITHIN_S):
                return await self._call(verb, *names)
        except GnomonError as exc:
            raise refusal_of(exc) from exc

    async def _call(self, verb: str, *names: str) -> Any:
        client, entities = self._client, self._client.entities
        calls: dict[str, Callable[..., Any]] = {
            "get_action": client.get,
            "attempts": client.attempts,
            "pause": client.pause,
            "resume": client.resume,
            "run_now": client.run_now,
            "replace_action": lambda id: client.replace(Request(id=id, spec=Spec(action=Mock()))),
            "delete_action": client.delete,
            "get_entity": lambda id: entities.get(KIND, id),
            "explain": lambda id: entities.explain(KIND, id),
            "patch_entity": lambda id: entities.patch(KIND, id, {"a": 4}),
            "put_entity": lambda id: entities.put(KIND, id, {"a": 5}),
            "delete_entity": lambda id: entities.delete(KIND, id),
            "state": lambda id, stage: entities.state(KIND, id, stage),
            "release": lambda id: entities.release(KIND, id),
            "forget_stage": entities.forget_stage,
            "set_limit": lambda name: client.set_limit(
                Limit(kind=LimitKind.QUEUE, name=name, parallel=3)
            ),
            "drop_limit": lambda name: client.drop_limit("queue", name),
        }
        if verb in calls:
            return await calls[verb](*names)
        return await self._list(verb)

    async def _list(self, verb: str) -> Any:
        client, entities = self._client, self._client.entities
        match verb:
            case "list_actions":
                page = await client.list(Selection())
                return {action.meta.id: action for action in page.actions}
            case "list_entities":
                some = await entities.page(KIND)
                found = list(some.entities)
                while some.next is not None:
                    some = await entities.page(KIND, after=some.next)
                    found += some.entities
                return {entity.id: entity for entity in found}
            case "parked":
                return {row.entity_id: row for row in await entities.parked()}
            case "stages":
                return {stage.name: stage for stage in await entities.stages()}
            case "limits":
                return {use.limit.name: use for use in await client.list_limits()}
        return None


class Grpc:
    """gRPC."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._actions: Any = SchedulerServiceStub(channel)
        self._entities: Any = EntityServiceStub(channel)
        self._states: Any = StateServiceStub(channel)

    async def call(self, verb: str, *names: str) -> Any:
        try:
            return await self._call(verb, *names)
        except grpc.aio.AioRpcError as exc:
            slips = (
                grpc.StatusCode.INTERNAL,
                grpc.StatusCode.UNKNOWN,
                grpc.StatusCode.DEADLINE_EXCEEDED,
            )
            if exc.code() is grpc.StatusCode.UNAVAILABLE:
                raise NotNow(exc.details()) from exc
            raise AssertionError(exc) if exc.code() in slips else Refusal(exc.details()) from exc

    async def _call(self, verb: str, *names: str) -> Any:
        name = names[0] if names else ""
        mock = action_pb2.Spec(action=action_pb2.Action(mock=action_pb2.MockAction()))
        calls: dict[str, tuple[Any, str, Any]] = {
            "list_actions": (self._actions, "List", actions.ListRequest()),
            "get_action": (self._actions, "Get", actions.GetRequest(id=name)),
            "attempts": (self._actions, "Attempts", actions.AttemptsRequest(id=name)),
            "pause": (self._actions, "Pause", actions.PauseRequest(id=name)),
            "resume": (self._actions, "Resume", actions.ResumeRequest(id=name)),
            "run_now": (self._actions, "RunNow", actions.RunNowRequest(id=name)),
            "replace_action": (
                self._actions,
                "Replace",
                actions.ReplaceRequest(id=name, spec=mock),
            ),
            "delete_action": (self._actions, "Delete", actions.DeleteRequest(id=name)),
            "limits": (self._actions, "ListLimits", actions.ListLimitsRequest()),
            "set_limit": (
                self._actions,
                "SetLimit",
                actions.SetLimitRequest(
                    limit=actions.Limit(
                        kind=actions.LimitKind.LIMIT_KIND_QUEUE, name=name, parallel=3
                    )
                ),
            ),
            "drop_limit": (
                self._actions,
                "DropLimit",
                actions.DropLimitRequest(kind=actions.LimitKind.LIMIT_KIND_QUEUE, name=name),
            ),
            "list_entities": (
                self._entities,
                "ListEntities",
                entities.ListEntitiesRequest(kind=KIND),
            ),
            "get_entity": (
                self._entities,
                "GetEntity",
                entities.GetEntityRequest(kind=KIND, id=name),
            ),
            "explain": (
                self._entities,
                "ExplainEntity",
                entities.ExplainEntityRequest(kind=KIND, id=name),
            ),
            "patch_entity": (
                self._entities,
                "PatchEntity",
                entities.PatchEntityRequest(kind=KIND, id=name, merge_patch=b'{"a": 4}'),
            ),
            "put_entity": (
                self._entities,
                "PutEntity",
                entities.PutEntityRequest(kind=KIND, id=name, document=b'{"a": 5}'),
            ),
            "delete_entity": (
                self._entities,
                "DeleteEntity",
                entities.DeleteEntityRequest(kind=KIND, id=name),
            ),
            "state": (
                self._states,
                "Read",
                entities.ReadRequest(kind=KIND, entity_id=name, stage=names[-1] if names else ""),
            ),
            "parked": (self._entities, "ListParked", entities.ListParkedRequest()),
            "release": (
                self._entities,
                "ReleaseEntity",
                entities.ReleaseEntityRequest(kind=KIND, id=name),
            ),
            "stages": (self._entities, "ListStages", entities.ListStagesRequest()),
            "forget_stage": (
                self._entities,
                "ForgetStage",
                entities.ForgetStageRequest(stage=name),
            ),
        }
        if verb not in calls:
            return None
        stub, rpc, request = calls[verb]
        shown = _GRPC_LISTS.get(verb, lambda answer: answer)
        found: Any = {}
        while True:
            answer = await getattr(stub, rpc)(request, timeout=WITHIN_S)
            if verb == "state":
                return answer  # it may be of a type that only its writer knows
            plain = shown(MessageToDict(answer, preserving_proto_field_name=True))
            if not verb.startswith("list_"):
                return plain
            found |= plain
            if not answer.HasField("next"):
                return found
            request.after = answer.next


_GRPC_LISTS: dict[str, Callable[[Any], Any]] = {
    "list_actions": lambda answer: by_id(answer.get("actions", []), "meta", "id"),
    "attempts": lambda answer: answer.get("attempts", []),
    "limits": lambda answer: by_id(answer.get("uses", []), "limit", "name"),
    "list_entities": lambda answer: by_id(answer.get("entities", []), "id"),
    "parked": lambda answer: by_id(answer.get("rows", []), "entity_id"),
    "stages": lambda answer: by_id(answer.get("stages", []), "name"),
}


class Cli:
    """`gnomon …` at the database itself, as people see it; lists also as programs do."""

    def __init__(self, where: tuple[str, ...]) -> None:
        self._where = where

    async def call(self, verb: str, *names: str) -> Any:
        if verb not in _COMMANDS:
            return None
        command, more, lists = _COMMANDS[verb]
        arguments = [*command, *names, *more, *self._where]
        shown = await asyncio.to_thread(self._run, arguments)
        if lists is None:
            return shown
        answer = await self._json(arguments)
        found = lists(answer)
        while isinstance(answer, dict) and answer.get("next") is not None:
            answer = await self._json([*arguments, "--after", answer["next"]])
            found |= lists(answer)
        return found

    async def _json(self, arguments: list[str]) -> Any:
        return json.loads(await asyncio.to_thread(self._run, [*arguments, "--json"]))

    def _run(self, arguments: list[str]) -> str:
        with CliRunner().isolation() as (shown, _, _):
            try:
                _COMMAND.main(args=arguments, prog_name="gnomon")
            except GnomonError as exc:
                raise refusal_of(exc) from exc
            except SystemExit as exc:
                if exc.code not in (0, EXIT_FINDINGS):
                    raise AssertionError(f"{arguments}: exit code {exc.code}") from exc
            except Exception as exc:
                raise AssertionError(f"{arguments}: {exc!r}") from exc
            sys.stdout.flush()
            return shown.getvalue().decode()


_COMMANDS: dict[str, tuple[list[str], list[str], Any]] = {
    "list_actions": (["action", "list"], [], lambda answer: by_id(answer["actions"], "meta", "id")),
    "get_action": (["action", "get"], [], None),
    "attempts": (["action", "attempts"], [], lambda answer: answer["attempts"]),
    "delete_action": (["action", "delete"], [], None),
    "list_entities": (["entity", "list", KIND], [], lambda answer: by_id(answer["entities"], "id")),
    "get_entity": (["entity", "get", KIND], [], None),
    "explain": (["entity", "explain", KIND], [], None),
    "patch_entity": (["entity", "patch", KIND], ['{"a": 4}'], None),
    "put_entity": (["entity", "put", KIND], ['{"a": 5}'], None),
    "delete_entity": (["entity", "delete", KIND], [], None),
    "parked": (["entity", "parked"], [], lambda answer: by_id(answer["parked"], "entity_id")),
    "release": (["entity", "release", KIND], [], None),
    "stages": (["stage", "list"], [], lambda answer: by_id(answer["stages"], "name")),
    "forget_stage": (["stage", "forget"], ["--yes"], None),
    "limits": (["limit", "list"], [], lambda answer: by_id(answer["limits"], "limit", "name")),
    "set_limit": (["limit", "set", "queue"], ["--parallel", "3"], None),
    "drop_limit": (["limit", "drop", "queue"], [], None),
    "tokens": (["token", "list"], [], lambda answer: by_id(answer["tokens"], "name")),
    "revoke": (["token", "revoke"], [], None),
    "audit": (["audit", "list"], [], lambda answer: by_id(answer["entries"], "id")),
    "doctor": (["doctor"], [], None),
}
