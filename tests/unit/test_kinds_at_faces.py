"""Every verb of every face acts on the entity of the kind that it was told, and tells of its kind.

Two kinds may have the same ids, so a kind that gets lost is another entity. The verbs themselves
are tested with two kinds in `tests/conformance`; here is what each face makes of a call.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from typer.testing import CliRunner

from gnomon.cli.options import ServerOptions
from gnomon.cli.root import root
from gnomon.client.blocking_client import BlockingEntities
from gnomon.client.entities import EntityClient
from gnomon.contracts.store.entities import Entity, StageState, StateWrite
from gnomon.contracts.store.queues import RowStatus
from gnomon.contracts.store.register import StageRecord
from gnomon.gateways.auth import ANYBODY
from gnomon.gateways.grpc.boundary import Caller
from gnomon.gateways.grpc.entities import EntityRpcs, StateRpcs
from gnomon.model.ids import EntityKey
from gnomon.stages.entities import Entities, EntityPage
from gnomon.stages.explain import Explanation, ParkedRow
from gnomon.v1 import entity_pb2 as pb
from gnomon.v1 import stage_pb2

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KIND, ID, STAGE = "order", "x-1", "photos"
OF_KIND: dict[str, Any] = {"kind": KIND, "id": ID}
CALLER = Caller(ANYBODY, None)
STATE = StateWrite(body=b"1", revision=1)
ENTITY = Entity(key=str(EntityKey(KIND, ID)), shard=0, epoch=1, version=1, doc="{}", changed_at=NOW)
EXPLANATION = Explanation(
    kind=KIND, id=ID, epoch=1, version=1, changed_at=NOW, stages=(), changes=()
)
PARKED = ParkedRow(
    kind=KIND, entity_id=ID, stage=STAGE, status=RowStatus.QUARANTINED, since=NOW, attempts=1,
    reasons=(), depth=0, error=None,
)  # fmt: skip
RECORD = StageRecord(
    name=STAGE, kind=KIND, revision=1, first_seen_at=NOW, last_seen_at=NOW, watch=(), writes=()
)
STORED = StageState(version=1, revision=1, body=b"1")
ANSWERS: Mapping[str, Any] = {
    "put": ENTITY, "put_many": 1, "patch": ENTITY, "delete": None, "release": 1, "get": ENTITY,
    "page": EntityPage(entities=[ENTITY], next=None), "explain": EXPLANATION, "parked": [PARKED],
    "stages": [RECORD], "state": (ENTITY, STORED), "swap_state": STORED,
}  # fmt: skip


class RecordedVerbs:
    """Verbs of entities that do nothing; what they were called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[object, ...], dict[str, Any]]] = []

    def __getattr__(self, verb: str) -> Callable[..., Awaitable[Any]]:
        async def perform(*args: object, **named: object) -> Any:
            self.calls.append((verb, args, named))
            return ANSWERS[verb]

        return perform

    def entities_meant(self) -> list[tuple[str, tuple[object, ...]]]:
        """Of every call the verb and the entity: its kind, and its id if it is about one."""
        return [
            (verb, (named["kind"],) if verb == "parked" else args[: 1 if verb in WHOLE_KIND else 2])
            for verb, args, named in self.calls
        ]


WHOLE_KIND = ("put_many", "page")


def meant(verb: str) -> tuple[str, tuple[object, ...]]:
    return verb, (KIND,) if verb in (*WHOLE_KIND, "parked") else (KIND, ID)


# -- gRPC -----------------------------------------------------------------------------------------

RPCS: Mapping[str, tuple[Any, Sequence[str]]] = {
    "put_entity": (pb.PutEntityRequest(**OF_KIND, document=b"{}"), ["put"]),
    "put_entities": (
        pb.PutEntitiesRequest(
            kind=KIND, entities=[pb.PutEntitiesRequest.Item(id=ID, document=b"{}")]
        ),
        ["put_many"],
    ),
    "patch_entity": (pb.PatchEntityRequest(**OF_KIND, merge_patch=b"{}"), ["patch"]),
    "delete_entity": (pb.DeleteEntityRequest(**OF_KIND), ["delete"]),
    "release_entity": (pb.ReleaseEntityRequest(**OF_KIND), ["release"]),
    "get_entity": (pb.GetEntityRequest(**OF_KIND), ["get"]),
    "list_entities": (pb.ListEntitiesRequest(kind=KIND), ["page"]),
    "explain_entity": (pb.ExplainEntityRequest(**OF_KIND), ["explain"]),
    "list_parked": (pb.ListParkedRequest(kind=KIND), ["parked"]),
    "read": (pb.ReadRequest(kind=KIND, entity_id=ID, stage=STAGE), ["state"]),
    "compare_and_set": (
        pb.CompareAndSetRequest(
            kind=KIND, entity_id=ID, stage=STAGE, state=stage_pb2.StageState(json=b"1", revision=1)
        ),
        ["state", "swap_state"],
    ),
}
TELLING = ("put_entity", "patch_entity", "get_entity", "list_entities", "explain_entity",
           "list_parked", "list_stages")  # fmt: skip
OF_STAGES = ("list_stages", "backfill_stage", "forget_stage")  # a stage has one kind


def rpcs_of(verbs: RecordedVerbs, name: str) -> Any:
    service = StateRpcs if name in ("read", "compare_and_set") else EntityRpcs
    return getattr(service(cast("Entities", verbs)), name)


@pytest.mark.parametrize("name", RPCS)
async def test_an_rpc_acts_on_the_kind_it_was_told(name: str) -> None:
    """And on no other entity."""
    request, wanted = RPCS[name]
    verbs = RecordedVerbs()
    await rpcs_of(verbs, name)(request, CALLER)

    assert [meant(verb) for verb in wanted] == verbs.entities_meant()


@pytest.mark.parametrize("name", TELLING)
async def test_an_rpc_tells_of_the_kind(name: str) -> None:
    """Of every entity, row and stage in its answer."""
    request = RPCS[name][0] if name in RPCS else pb.ListStagesRequest()
    answer = await rpcs_of(RecordedVerbs(), name)(request, CALLER)

    assert f'kind: "{KIND}"' in str(answer)


def test_every_rpc_of_entities_is_here() -> None:
    """A new one says what it does with kinds."""
    names = {
        name for kind in (EntityRpcs, StateRpcs) for name in vars(kind) if not name.startswith("_")
    }
    assert names == {*RPCS, *OF_STAGES}


# -- the client -----------------------------------------------------------------------------------

ENTITY_PATH = f"/v1/entities/{KIND}/{ID}"
ENTITY_SHOWN = {
    "kind": KIND, "id": ID, "epoch": 1, "version": 1, "shard": 0, "changed_at": NOW,
    "document": {},
}  # fmt: skip
SHOWN: Mapping[str, Any] = {
    "put": ENTITY_SHOWN, "put_many": {"changed": 1}, "patch": ENTITY_SHOWN, "delete": None,
    "release": {"released": 1}, "get": ENTITY_SHOWN, "page": {"entities": [ENTITY_SHOWN]},
    "explain": EXPLANATION, "parked": {"parked": [PARKED]},
    "state": {"version": 1, "revision": 1, "state": 1}, "stages": {"stages": [RECORD]},
}  # fmt: skip
REQUESTS: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "put": ((KIND, ID, {}), f"PUT {ENTITY_PATH}"),
    "put_many": ((KIND, {ID: {}}), f"POST /v1/entities/{KIND}:bulk"),
    "patch": ((KIND, ID, {}), f"PATCH {ENTITY_PATH}"),
    "delete": ((KIND, ID), f"DELETE {ENTITY_PATH}"),
    "release": ((KIND, ID), f"POST {ENTITY_PATH}/release"),
    "get": ((KIND, ID), f"GET {ENTITY_PATH}"),
    "page": ((KIND,), f"GET /v1/entities/{KIND} limit=100"),
    "explain": ((KIND, ID), f"GET {ENTITY_PATH}/explain"),
    "parked": ((), f"GET /v1/parked limit=100 kind={KIND}"),
    "state": ((KIND, ID, STAGE), f"GET {ENTITY_PATH}/states/{STAGE}"),
    "swap_state": ((KIND, ID, STAGE, STATE), f"PUT {ENTITY_PATH}/states/{STAGE}"),
}
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "parked": {"kind": KIND}, "swap_state": {"version": 0},
}  # fmt: skip


class RecordedCalls:
    """A server that has one entity; what it was asked."""

    def __init__(self, verb: str) -> None:
        self._answer = msgspec.to_builtins(SHOWN["state" if verb == "swap_state" else verb])
        self.seen: list[str] = []

    async def __call__(
        self, method: str, path: str, answer: Any, *, query: Any = (), **_: Any
    ) -> Any:
        self.seen.append(" ".join([method, path, *(f"{name}={value}" for name, value in query)]))
        return msgspec.json.decode(msgspec.json.encode(self._answer), type=answer)


@pytest.mark.parametrize("verb", REQUESTS)
async def test_the_client_asks_for_the_kind_it_was_told(verb: str) -> None:
    """In the path, or in the query."""
    calls = RecordedCalls(verb)
    arguments, wanted = REQUESTS[verb]
    await getattr(EntityClient(calls), verb)(*arguments, **OPTIONS.get(verb, {}))

    assert [wanted] == calls.seen


@pytest.mark.parametrize("verb", ["put", "patch", "get", "page", "explain", "parked"])
async def test_the_client_gives_the_kind_it_was_answered(verb: str) -> None:
    """Whatever the caller asked for."""
    arguments, _ = REQUESTS[verb]
    answer = await getattr(EntityClient(RecordedCalls(verb)), verb)(*arguments)

    entities = getattr(answer, "entities", answer if isinstance(answer, list) else [answer])
    assert [KIND] == [one.kind for one in entities]


def test_every_verb_of_the_client_is_here() -> None:
    """Of the one that waits too: its verbs are the same."""
    own = {name for name in vars(EntityClient) if not name.startswith("_")}
    blocking = {name for name in vars(BlockingEntities) if not name.startswith("_")}

    assert own == {*REQUESTS, "stages", "backfill_stage", "forget_stage"} == blocking


# -- the command line -----------------------------------------------------------------------------

COMMANDS: Mapping[str, tuple[str, str]] = {
    "put": (f"put {KIND} {ID} {{}}", "put"),
    "put-many": (f"put-many {KIND} FILE", "put_many"),
    "patch": (f"patch {KIND} {ID} {{}}", "patch"),
    "delete": (f"delete {KIND} {ID}", "delete"),
    "release": (f"release {KIND} {ID}", "release"),
    "get": (f"get {KIND} {ID}", "get"),
    "list": (f"list {KIND}", "page"),
    "explain": (f"explain {KIND} {ID}", "explain"),
    "parked": (f"parked --kind {KIND}", "parked"),
}


@pytest.fixture
def verbs(monkeypatch: pytest.MonkeyPatch) -> RecordedVerbs:
    """What commands call instead of a server or a database."""
    recorded = RecordedVerbs()

    def call(_: object, work: Callable[[RecordedVerbs], Awaitable[Any]]) -> Any:
        async def worked() -> Any:
            return await work(recorded)

        return asyncio.run(worked())

    monkeypatch.setattr(ServerOptions, "call_entities", call)
    return recorded


def run(noun: str, command: str, tmp_path: Path, *options: str) -> str:
    lines = tmp_path / "lines.jsonl"
    lines.write_text(json.dumps({"id": ID, "document": {}}))
    words = [str(lines) if word == "FILE" else word for word in command.split()]
    result = CliRunner().invoke(root, [noun, *words, *options], env={"COLUMNS": "200"})
    assert 0 == result.exit_code, result.output
    return result.output


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_acts_on_the_kind_it_was_told(
    name: str, verbs: RecordedVerbs, tmp_path: Path
) -> None:
    """And on no other entity."""
    command, verb = COMMANDS[name]
    run("entity", command, tmp_path)

    assert [meant(verb)] == verbs.entities_meant()


@pytest.mark.usefixtures("verbs")
@pytest.mark.parametrize("name", ["put", "patch", "delete", "release", "explain", "parked"])
def test_a_command_tells_of_the_kind(name: str, tmp_path: Path) -> None:
    """So that nobody takes the entity for another."""
    assert KIND in run("entity", COMMANDS[name][0], tmp_path)


@pytest.mark.usefixtures("verbs")
@pytest.mark.parametrize("name", ["put", "patch", "get", "list", "explain", "parked"])
def test_a_command_tells_programs_of_the_kind(name: str, tmp_path: Path) -> None:
    """With --json in a field of its own."""
    assert f'"kind":"{KIND}"' in run("entity", COMMANDS[name][0], tmp_path, "--json").replace(
        " ", ""
    )


@pytest.mark.usefixtures("verbs")
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_stages_are_listed_with_their_kind(options: tuple[str, ...], tmp_path: Path) -> None:
    """A stage looks after one kind."""
    assert KIND in run("stage", "list", tmp_path, *options)


def test_every_command_of_entities_is_here() -> None:
    """A new one says what it does with kinds."""
    from gnomon.cli.entity import noun

    assert {*COMMANDS} == {command.name for command in noun.registered_commands}
