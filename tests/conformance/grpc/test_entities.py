"""Entities and states over gRPC: what REST says is what gRPC says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import aiohttp
import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.json_format import MessageToDict
from google.protobuf.wrappers_pb2 import StringValue

from gnomon.contracts.store.register import StageDeclaration
from gnomon.gateways.config import ServerConfig
from gnomon.gateways.errors import TABLE
from gnomon.gateways.grpc.boundary import ENTITY_SERVICE, SCOPES, STATE_SERVICE
from gnomon.gateways.rest.app import create_rest
from gnomon.gateways.rest.server import bind, serve
from gnomon.model.stage.graph import Reach
from gnomon.stages import Quarantine, SavedVersion, Stages, Update
from gnomon.v1 import entity_pb2 as pb
from gnomon.v1 import stage_pb2
from gnomon.v1.entity_pb2_grpc import EntityServiceStub, StateServiceStub
from tests.conformance.grpc.conftest import Served
from tests.conformance.grpc.test_callers import bearing, token_for
from tests.conformance.grpc.test_refusals import refusal_of
from tests.conformance.stages.given import It, stage

ECHO = Reach("ad", watch=("photos",), writes=("photos",))


class Both:
    """Both gateways over one store."""

    def __init__(self, served: Served, url: str, session: aiohttp.ClientSession) -> None:
        self.served = served
        self.entities: Any = EntityServiceStub(served.channel)
        self.states: Any = StateServiceStub(served.channel)
        self._url = url
        self._session = session

    async def rest(
        self, method: str, path: str, body: object = None, **headers: str
    ) -> tuple[int, Any]:
        sent = {"Content-Type": "application/json"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        data = None if body is None else json.dumps(body)
        async with self._session.request(
            method, self._url + path, data=data, headers=sent
        ) as response:
            text = await response.read()
            return response.status, json.loads(text) if text else None

    async def declare(self, **stages: int) -> None:
        await self.served.app.store.register.declare(
            [
                StageDeclaration(
                    name=name, revision=revision, reach=ECHO, debounce=timedelta(seconds=5)
                )
                for name, revision in stages.items()
            ]
        )


@pytest.fixture
async def both(served: Served) -> AsyncIterator[Both]:
    stop = asyncio.Event()
    listener = bind(ServerConfig(port=0))
    rest = create_rest(served.app.scheduler)
    serving = asyncio.create_task(serve(rest, listener, stop=stop))
    async with aiohttp.ClientSession() as session:
        yield Both(served, f"http://127.0.0.1:{listener.getsockname()[1]}", session)
    stop.set()
    await serving


def plain(message: stage_pb2.Entity) -> dict[str, Any]:
    """An entity as REST shows it."""
    return {
        "kind": message.kind,
        "id": message.id,
        "epoch": message.epoch,
        "version": message.version,
        "shard": message.shard,
        "document": json.loads(message.document),
        "changed_at": message.changed_at.ToJsonString(),
    }


def same_times(shown: dict[str, Any]) -> dict[str, Any]:
    """REST writes microseconds, protobuf three digits at a time."""
    text = shown["changed_at"].removesuffix("Z")
    whole, _, digits = text.partition(".")
    digits = digits.rstrip("0")
    digits += "0" * (-len(digits) % 3)
    return {**shown, "changed_at": f"{whole}.{digits}Z" if digits else f"{whole}Z"}


async def test_an_entity_is_the_same_on_both_sides(both: Both) -> None:
    """Put by one, shown by the other, changed and removed by either."""
    made = (
        await both.entities.PutEntity(pb.PutEntityRequest(kind="ad", id="a", document=b'{"n": 1}'))
    ).entity
    assert (200, plain(made)) == _shown(await both.rest("GET", "/v1/entities/ad/a"))
    _, patched = await both.rest(
        "PATCH", "/v1/entities/ad/a", {"m": "ä"}, Content_Type="application/merge-patch+json"
    )
    got = (await both.entities.GetEntity(pb.GetEntityRequest(kind="ad", id="a"))).entity
    assert same_times(patched) == plain(got)
    request = pb.PatchEntityRequest(
        kind="ad", id="a", merge_patch=b'{"n": null}', if_version=2, if_epoch=1
    )
    assert {"m": "ä"} == plain((await both.entities.PatchEntity(request)).entity)["document"]
    steps = b'[{"op": "add", "path": "/k", "value": null}]'
    request = pb.PatchEntityRequest(kind="ad", id="a", json_patch=steps)
    assert {"m": "ä", "k": None} == plain((await both.entities.PatchEntity(request)).entity)[
        "document"
    ]
    await both.entities.DeleteEntity(pb.DeleteEntityRequest(kind="ad", id="a", if_version=4))
    assert 404 == (await both.rest("GET", "/v1/entities/ad/a"))[0]


def _shown(answer: tuple[int, Any]) -> tuple[int, dict[str, Any]]:
    return answer[0], same_times(answer[1])


async def test_pages_are_the_same(both: Both) -> None:
    """The same entities, the same `next`."""
    for name in ("a1", "a2", "b"):
        await both.entities.PutEntity(pb.PutEntityRequest(kind="ad", id=name, document=b"{}"))
    listed = await both.entities.ListEntities(
        pb.ListEntitiesRequest(kind="ad", id_prefix="a", limit=1)
    )
    _, shown = await both.rest("GET", "/v1/entities/ad?id_prefix=a&limit=1")
    assert ([plain(each) for each in listed.entities], listed.next) == (
        [same_times(each) for each in shown["entities"]], shown["next"],
    )  # fmt: skip
    last = await both.entities.ListEntities(pb.ListEntitiesRequest(kind="ad", after="a2"))
    assert (["b"], False) == ([each.id for each in last.entities], last.HasField("next"))


async def test_explanations_and_stages_are_the_same(both: Both) -> None:
    """Field by field."""
    await both.declare(photos=3)
    await both.rest("PUT", "/v1/entities/ad/a", {"n": 1})
    await both.rest("PUT", "/v1/entities/ad/a/states/photos", {"version": 0, "state": 1})
    told = (
        await both.entities.ExplainEntity(pb.ExplainEntityRequest(kind="ad", id="a"))
    ).explanation
    _, shown = await both.rest("GET", "/v1/entities/ad/a/explain")
    dumped = MessageToDict(told, preserving_proto_field_name=True)
    assert [each["stage"] for each in shown["stages"]] == [each.stage for each in told.stages]
    for name in ("status", "lane", "reasons", "waits_for"):
        assert shown["stages"][0][name] == dumped["stages"][0][name]
    for name in ("author", "paths", "root"):
        assert shown["changes"][0][name] == dumped["changes"][0][name]
    stages = (await both.entities.ListStages(pb.ListStagesRequest())).stages
    _, listed = await both.rest("GET", "/v1/stages")
    for name in ("name", "revision", "waiting", "background", "parked", "sleeping", "own_echo"):
        assert [each[name] for each in listed["stages"]] == [getattr(s, name) for s in stages]
    for name in ("watch", "writes"):
        assert [each[name] for each in listed["stages"]] == [[*getattr(s, name)] for s in stages]
    assert (["PT5S"], [5]) == (
        [each["debounce"] for each in listed["stages"]], [each.debounce.seconds for each in stages],
    )  # fmt: skip
    await both.entities.BackfillStage(pb.BackfillStageRequest(stage="photos"))
    forgotten = await both.entities.ForgetStage(pb.ForgetStageRequest(stage="photos"))
    assert 2 == forgotten.removed
    assert (200, {"stages": []}) == await both.rest("GET", "/v1/stages")
    parked = await both.entities.ListParked(
        pb.ListParkedRequest(stage="photos", after="ad/a/photos")
    )
    assert ([], False) == (list(parked.rows), parked.HasField("next"))
    assert (
        0
        == (await both.entities.ReleaseEntity(pb.ReleaseEntityRequest(kind="ad", id="a"))).released
    )


async def test_undelivered_saves_are_listed_and_released_like_entities(both: Both) -> None:
    """Over both gateways; what one stage gave up of one entity is on one page."""

    def process(it: It) -> Update[Any]:
        if it.entity["n"] == 2:
            raise Quarantine("no process")
        return Update({"m": 1})

    def after(_: SavedVersion[Any, Any]) -> None:
        raise Quarantine("no save")

    app = both.served.app
    stages: Stages[Any] = Stages(app, "ad")
    stages.add(stage("bad", watch="n", writes="m", process=process, after=after))
    stop = asyncio.Event()
    working = asyncio.create_task(app.work(stop))
    async with asyncio.timeout(30):
        for number in (1, 2):
            for name in ("a", "b"):
                await both.rest("PUT", f"/v1/entities/ad/{name}", {"n": number})
            while len(await stages.parked()) < 2 * number:
                await asyncio.sleep(0.05)
    stop.set()
    await working

    page = await both.entities.ListParked(pb.ListParkedRequest(limit=1))
    _, shown = await both.rest("GET", "/v1/parked?limit=1")

    wanted = [("quarantined", "Quarantine: no process"), ("undelivered", "Quarantine: no save")]
    assert (wanted, "ad/a/bad") == ([(row.status, row.error) for row in page.rows], page.next)
    assert (wanted, "ad/a/bad") == (
        [(row["status"], row["error"]) for row in shown["parked"]], shown["next"],
    )  # fmt: skip
    rest = await both.entities.ListParked(pb.ListParkedRequest(limit=2, after="ad/a/bad"))
    assert (["b", "b"], False) == ([row.entity_id for row in rest.rows], rest.HasField("next"))
    told = (
        await both.entities.ExplainEntity(pb.ExplainEntityRequest(kind="ad", id="a"))
    ).explanation
    assert {"quarantined", "undelivered"} == {each.status for each in told.stages}
    assert (
        2
        == (await both.entities.ReleaseEntity(pb.ReleaseEntityRequest(kind="ad", id="a"))).released
    )
    assert (200, {"released": 2}) == await both.rest("POST", "/v1/entities/ad/b/release?stage=bad")
    assert (200, {"parked": [], "next": None}) == await both.rest("GET", "/v1/parked")


def item(name: str, document: bytes) -> pb.PutEntitiesRequest.Item:
    return pb.PutEntitiesRequest.Item(id=name, document=document)


async def test_many_are_put_at_once(both: Both) -> None:
    """Both ways count what changed; what is as it was is no change."""
    documents = {"a": {"n": 1}, "b": {"n": 2}}
    bulk = await both.rest("POST", "/v1/entities/ad:bulk", {"entities": documents})
    assert (200, {"changed": 2}) == bulk
    request = pb.PutEntitiesRequest(
        kind="ad", entities=[item("a", b'{"n": 1}'), item("b", b'{"n": 3}')]
    )
    assert 1 == (await both.entities.PutEntities(request)).changed
    status, found = await both.rest("GET", "/v1/entities/ad/b")
    assert (200, {"n": 3}, 2) == (status, found["document"], found["version"])


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ([], "must be an object with one field"),
        ({"entities": {}, "more": 1}, "must be an object with one field"),
        ({"entities": [1]}, "must be an object with one field"),
        ({"entities": {"a": 1, "b": {}}}, "entities.a"),
        ({"entities": {"a b": {}, "b": {}}}, "id: must be"),
        ({"entities": {f"e{n}": {} for n in range(1001)}}, "at most 1000"),
    ],
)
async def test_a_bulk_with_a_mistake_stores_nothing(both: Both, body: Any, told: str) -> None:
    """The mistake is named."""
    status, problem = await both.rest("POST", "/v1/entities/ad:bulk", body)
    assert 400 == status
    assert told in problem["detail"]
    assert (200, {"entities": [], "next": None}) == await both.rest("GET", "/v1/entities/ad")


async def test_an_id_twice_in_a_bulk_is_a_mistake(both: Both) -> None:
    """Which of the two would be meant?"""
    request = pb.PutEntitiesRequest(kind="ad", entities=[item("a", b"{}"), item("a", b'{"n": 1}')])
    found = await refusal_of(both.entities.PutEntities(request))
    assert "twice" in found.problem.detail


@pytest.mark.parametrize(
    ("rpc", "request_", "call"),
    [
        ("GetEntity", pb.GetEntityRequest(kind="ad", id="none"), ("GET", "/v1/entities/ad/none")),
        ("GetEntity", pb.GetEntityRequest(kind="ad", id="a b"), ("GET", "/v1/entities/ad/a%20b")),
        (
            "PutEntity",
            pb.PutEntityRequest(kind="ad", id="a", document=b"[]"),
            ("PUT", "/v1/entities/ad/a", []),
        ),
        (
            "PutEntity",
            pb.PutEntityRequest(kind="ad", id="a", document=b"{}", if_version=7),
            ("PUT", "/v1/entities/ad/a", {}, '"7"'),
        ),
        (
            "DeleteEntity",
            pb.DeleteEntityRequest(kind="ad", id="a", if_version=1, if_epoch=2),
            ("DELETE", "/v1/entities/ad/a", None, '"2.1"'),
        ),
        (
            "ListEntities",
            pb.ListEntitiesRequest(kind="ad", limit=0),
            ("GET", "/v1/entities/ad?limit=0"),
        ),
        ("ListParked", pb.ListParkedRequest(after="x"), ("GET", "/v1/parked?after=x")),
        (
            "BackfillStage",
            pb.BackfillStageRequest(stage="none"),
            ("POST", "/v1/stages/none/backfill"),
        ),
        (
            "BackfillStage",
            pb.BackfillStageRequest(stage="a b"),
            ("POST", "/v1/stages/a%20b/backfill"),
        ),
        ("ForgetStage", pb.ForgetStageRequest(stage="none"), ("DELETE", "/v1/stages/none")),
        (
            "ExplainEntity",
            pb.ExplainEntityRequest(kind="ad", id="none"),
            ("GET", "/v1/entities/ad/none/explain"),
        ),
    ],
)
async def test_refusals_are_the_same(both: Both, rpc: str, request_: Any, call: Any) -> None:
    """The same code, the same words, and the status that the table gives it."""
    await both.rest("PUT", "/v1/entities/ad/a", {"n": 1})
    method, path, body, tag = (*call, None, None)[:4]
    status, problem = await both.rest(method, path, body, **({"If_Match": tag} if tag else {}))
    found = await refusal_of(getattr(both.entities, rpc)(request_))
    row = TABLE[problem["code"]]
    assert (row.http, row.grpc) == (status, found.code.name)
    assert (problem["code"], problem["detail"]) == (found.problem.code, found.problem.detail)


async def test_a_patch_must_say_which(both: Both) -> None:
    """Neither kind is the default."""
    found = await refusal_of(both.entities.PatchEntity(pb.PatchEntityRequest(kind="ad", id="a")))
    assert "update" == found.problem.fields["path"]


# -- states ---------------------------------------------------------------------------------------


async def test_a_state_is_compared_and_set(both: Both) -> None:
    """`stored` says whether; `current` is what is there now. REST shows the same."""
    await both.declare(photos=4)
    await both.rest("PUT", "/v1/entities/ad/a", {"n": 1})
    read = await both.states.Read(pb.ReadRequest(kind="ad", stage="photos", entity_id="a"))
    assert (1, 1, False) == (read.entity_epoch, read.entity_version, read.HasField("state"))
    message = AnyMessage()
    message.Pack(StringValue(value="loaded"))
    request = pb.CompareAndSetRequest(
        kind="ad",
        stage="photos",
        entity_id="a",
        entity_epoch=1,
        state=stage_pb2.StageState(message=message),
    )
    stored = await both.states.CompareAndSet(request)
    assert (True, 1, 4, message) == (
        stored.stored, stored.current.version, stored.current.revision, stored.current.message,
    )  # fmt: skip
    again = await both.states.CompareAndSet(request)
    assert (False, stored.current) == (again.stored, again.current)
    _, shown = await both.rest("GET", "/v1/entities/ad/a/states/photos")
    assert ("google.protobuf.StringValue", 1) == (shown["type"], shown["version"])
    old_life = pb.CompareAndSetRequest()
    old_life.CopyFrom(request)
    old_life.entity_epoch, old_life.expected_version = 9, 1
    assert not (await both.states.CompareAndSet(old_life)).stored
    [row] = (
        await both.entities.ExplainEntity(pb.ExplainEntityRequest(kind="ad", id="a"))
    ).explanation.stages
    assert (["state-cas"], "photos") == (list(row.reasons), row.stage)


async def test_a_state_may_be_set_quietly(both: Both) -> None:
    """Nobody is woken."""
    await both.declare(photos=1)
    await both.rest("PUT", "/v1/entities/ad/a", {"n": 1})
    state = stage_pb2.StageState(json=b'{"b": 1, "a": 2}', revision=7)
    request = pb.CompareAndSetRequest(
        kind="ad", stage="photos", entity_id="a", state=state, leave_asleep=True
    )
    stored = (await both.states.CompareAndSet(request)).current
    assert (b'{"a":2,"b":1}', 7) == (stored.json, stored.revision)
    _, shown = await both.rest("GET", "/v1/entities/ad/a/explain")
    assert [] == shown["stages"]


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({}, "state"),
        ({"state": stage_pb2.StageState(json=b"{")}, "state.json"),
        ({"state": stage_pb2.StageState(json=b"[" * 100 + b"]" * 100)}, "state.json"),
        ({"state": stage_pb2.StageState(message=AnyMessage(type_url="x/ y"))}, "type"),
        ({"state": stage_pb2.StageState(json=b"1", revision=-1)}, "revision"),
        ({"state": stage_pb2.StageState(json=b"1"), "expected_version": -1}, "expected_version"),
        ({"state": stage_pb2.StageState(json=b"1"), "stage": "a b"}, "stage"),
        ({"state": stage_pb2.StageState(json=b"1"), "entity_id": "a b"}, "id"),
    ],
)
async def test_a_bad_state_is_refused(both: Both, fields: dict[str, Any], path: str) -> None:
    """The field is named, and nothing is stored."""
    await both.declare(photos=1)
    await both.rest("PUT", "/v1/entities/ad/a", {"n": 1})
    request = pb.CompareAndSetRequest(
        **{"kind": "ad", "stage": "photos", "entity_id": "a", **fields}
    )
    found = await refusal_of(both.states.CompareAndSet(request))
    assert (grpc.StatusCode.INVALID_ARGUMENT, path) == (found.code, found.problem.fields["path"])
    _, shown = await both.rest("GET", "/v1/entities/ad/a/states/photos")
    assert 0 == shown["version"]


# -- callers --------------------------------------------------------------------------------------


async def test_every_rpc_needs_its_scope(both: Both) -> None:
    """Reading, writing, operating; whoever lacks it is told what."""
    names = {
        "read": await token_for(both.served, "writer", "write"),
        "write": await token_for(both.served, "reader", "read"),
        "admin": await token_for(both.served, "shop", "read", "write"),
    }
    await asyncio.sleep(0)
    seen = set()
    for service, stub in ((ENTITY_SERVICE, both.entities), (STATE_SERVICE, both.states)):
        for method in service.methods:
            scope = {"operate": "admin"}.get(found := SCOPES.get(method.name, "write"), found)
            request = getattr(pb, method.input_type.name)()
            call = getattr(stub, method.name)(request, metadata=bearing(names[scope]))
            refused = await refusal_of(call)
            assert (grpc.StatusCode.PERMISSION_DENIED, scope) == (
                refused.code, refused.problem.fields["scope"],
            )  # fmt: skip
            seen.add(scope)
    assert {"read", "write", "admin"} == seen


async def test_an_unknown_field_is_refused(both: Both) -> None:
    """As everywhere: to ignore it could mean to drop a precondition."""
    raw = (
        pb.PutEntityRequest(kind="ad", id="a", document=b"{}").SerializeToString() + b"\xf8\x7f\x01"
    )
    call: Any = both.served.channel.unary_unary("/gnomon.v1.EntityService/PutEntity")
    found = await refusal_of(call(raw))
    assert "unknown_field" == found.problem.code
