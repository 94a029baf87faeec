"""Entities over REST and by the client: documents, versions, patches, states, stages."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gnomon.client import BlockingClient, Client
from gnomon.contracts.store.entities import StateWrite
from gnomon.contracts.store.register import StageDeclaration
from gnomon.model.errors import Conflict, InvalidSpec, NotFound
from gnomon.model.stage.graph import Reach
from gnomon.model.stage.json_patch import DOCUMENT_BYTES_MAX
from gnomon.stages import Quarantine, Stages
from tests.conformance.gateway.conftest import Answer, Gateway
from tests.conformance.gateway.guarded import guarded_server
from tests.conformance.stages.given import stage

PATH = "/v1/entities/ad/ad-1"
MERGE = {"Content-Type": "application/merge-patch+json"}
JSON_PATCH = {"Content-Type": "application/json-patch+json"}
Headers = Mapping[str, str]


async def put(gateway: Gateway, document: object = None, *, path: str = PATH) -> Answer:
    answer = await gateway.call("PUT", path, {"price": 1} if document is None else document)
    assert 200 == answer.status, answer.body
    return answer


async def declared(gateway: Gateway, **stages: int) -> None:
    """As if a worker served these."""
    reach = Reach("ad", (), ())
    await gateway.app.store.register.declare(
        [
            StageDeclaration(name=name, revision=revision, reach=reach)
            for name, revision in stages.items()
        ]
    )


# -- documents ------------------------------------------------------------------------------------


async def test_an_entity_is_put_shown_patched_and_deleted(gateway: Gateway) -> None:
    """Every answer is the entity, whole, with (epoch, version) as its ETag."""
    made = await put(gateway, {"price": 1, "make": "Läda"})
    shown = await gateway.call("GET", PATH)
    changed = await gateway.call("PATCH", PATH, {"price": 2, "make": None}, headers=MERGE)
    assert ({"price": 1, "make": "Läda"}, 1, 1) == (
        made.json["document"], made.json["version"], made.json["epoch"],
    )  # fmt: skip
    assert (made.json, '"1.1"') == (shown.json, shown.headers["ETag"])
    assert ({"price": 2}, 2, '"1.2"') == (
        changed.json["document"], changed.json["version"], changed.headers["ETag"],
    )  # fmt: skip
    gone = await gateway.call("DELETE", PATH)
    assert (204, b"") == (gone.status, gone.body)
    for method in ("GET", "DELETE"):
        missing = await gateway.call(method, PATH)
        assert (404, "entity") == (missing.status, missing.json["kind"])
    again = await put(gateway)
    assert (2, 1) == (again.json["epoch"], again.json["version"])


async def test_a_json_patch_is_known_by_its_content_type(gateway: Gateway) -> None:
    """It can set null, and test."""
    await put(gateway)
    steps: list[Any] = [{"op": "test", "path": "/price", "value": 1}]
    steps += [{"op": "add", "path": "/video", "value": None}]
    answer = await gateway.call("PATCH", PATH, steps, headers=JSON_PATCH)
    assert {"price": 1, "video": None} == answer.json["document"]
    steps[0]["value"] = 2
    refused = await gateway.call("PATCH", PATH, steps, headers=JSON_PATCH)
    assert (400, "invalid_request") == (refused.status, refused.json["code"])


async def test_what_changes_nothing_is_no_change(gateway: Gateway) -> None:
    """The version stays."""
    await put(gateway)
    assert 1 == (await put(gateway)).json["version"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"If-Match": '"1.1"'}, 200),
        ({"If-Match": '"1"'}, 200),
        ({"If-Match": '"1.2"'}, 412),
        ({"If-Match": '"2.1"'}, 412),
        ({"If-Match": '"7"'}, 412),
        ({"If-None-Match": "*"}, 412),
        ({"If-None-Match": '"1.1"'}, 400),
        ({"If-None-Match": "*", "If-Match": '"1.1"'}, 400),
        ({"If-Match": "1"}, 400),
        ({"If-Match": '"-1"'}, 400),
        ({"If-Match": '"1.1", "1.2"'}, 400),
        ({"If-Match": "*"}, 400),
    ],
)
async def test_a_change_may_be_for_one_version_only(
    gateway: Gateway, headers: Headers, status: int
) -> None:
    """The ETag of a former answer, or the version alone; otherwise nothing happens."""
    for method in ("PUT", "PATCH", "DELETE"):
        path = f"{PATH}-{method}"
        await put(gateway, path=path)
        body = None if method == "DELETE" else {"price": 9}
        kind = MERGE if method == "PATCH" else {}
        answer = await gateway.call(method, path, body, headers={**kind, **headers})
        wanted = 204 if (status, method) == (200, "DELETE") else status
        assert wanted == answer.status, answer.body
        if status == 412:
            assert "conflict" == answer.json["code"]
        if status >= 400:
            assert {"price": 1} == (await gateway.call("GET", path)).json["document"]


async def test_creating_only_is_possible(gateway: Gateway) -> None:
    """`If-None-Match: *`."""
    headers = {"If-None-Match": "*"}
    assert 200 == (await gateway.call("PUT", PATH, {"n": 1}, headers=headers)).status
    assert 412 == (await gateway.call("PUT", PATH, {"n": 2}, headers=headers)).status


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"[]", 400),
        (b"1", 400),
        (b"{", 400),
        (b'{"a": 1, "a": 2}', 400),
        (b'{"a": NaN}', 400),
        (b'{"a": "\\u0000"}', 400),
        (b'{"a": "\\ud800"}', 400),
        (b'{"a": 1e999}', 400),
        (b'{"a": 1234567890123456789012}', 400),
        (b'{"a":' * 40 + b"1" + b"}" * 40, 400),
        (b'{"a": "' + b"x" * DOCUMENT_BYTES_MAX + b'"}', 413),
        (b"\xff", 400),
    ],
)
async def test_a_bad_document_is_refused(gateway: Gateway, raw: bytes, status: int) -> None:
    """Strictly, and nothing is stored."""
    assert status == (await gateway.call("PUT", PATH, raw=raw)).status
    assert 404 == (await gateway.call("GET", PATH)).status


@pytest.mark.parametrize(
    ("method", "kind", "body"),
    [
        ("PUT", "application/merge-patch+json", {}),
        ("PATCH", "application/json", {}),
        ("PATCH", "text/plain", {}),
    ],
)
async def test_the_content_type_must_be_right(
    gateway: Gateway, method: str, kind: str, body: object
) -> None:
    """What a list or an object means depends on it."""
    await put(gateway)
    answer = await gateway.call(method, PATH, body, headers={"Content-Type": kind})
    assert (415, "unsupported_media_type") == (answer.status, answer.json["code"])


@pytest.mark.parametrize(
    ("headers", "body"),
    [(MERGE, []), (MERGE, 1), (JSON_PATCH, {}), (JSON_PATCH, [1]), (JSON_PATCH, [{"op": "x"}])],
)
async def test_a_bad_patch_is_refused(gateway: Gateway, headers: Headers, body: object) -> None:
    """And changes nothing."""
    await put(gateway)
    assert 400 == (await gateway.call("PATCH", PATH, body, headers=headers)).status
    assert 1 == (await gateway.call("GET", PATH)).json["version"]


@pytest.mark.parametrize("id", ["a b", "%00", "a" * 201, "ä"])
async def test_a_bad_id_is_refused(gateway: Gateway, id: str) -> None:
    """As an action's."""
    answer = await gateway.call("PUT", f"/v1/entities/ad/{id.replace(' ', '%20')}", {})
    assert (400, "id") == (answer.status, answer.json["path"])


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/entities/Ad"),
        ("POST", "/v1/entities/Ad:bulk"),
        ("GET", "/v1/entities/Ad/1"),
        ("PUT", "/v1/entities/Ad/1"),
        ("PATCH", "/v1/entities/Ad/1"),
        ("DELETE", "/v1/entities/Ad/1"),
        ("GET", "/v1/entities/Ad/1/explain"),
        ("POST", "/v1/entities/Ad/1/release"),
        ("GET", "/v1/entities/Ad/1/states/s"),
        ("PUT", "/v1/entities/Ad/1/states/s"),
        ("GET", "/v1/parked?kind=Ad"),
    ],
)
async def test_a_bad_kind_is_refused(gateway: Gateway, method: str, path: str) -> None:
    """By every route, with the rule."""
    bodies: dict[tuple[str, str], object] = {
        ("POST", "/v1/entities/Ad:bulk"): {"entities": {}},
        ("PUT", "/v1/entities/Ad/1/states/s"): {"version": 0, "state": 1},
    }
    body = bodies.get((method, path), {} if method in ("PUT", "PATCH") else None)
    headers = MERGE if method == "PATCH" else None
    answer = await gateway.call(method, path, body, headers=headers)
    assert (400, "kind") == (answer.status, answer.json["path"]), answer.body
    assert "begin with a letter" in answer.json["problem"]


async def test_kinds_do_not_meet(gateway: Gateway) -> None:
    """The same id in two kinds is two entities; `ad` is not the beginning of `ads`."""
    for kind in ("ad", "ads", "order"):
        await put(gateway, {"of": kind}, path=f"/v1/entities/{kind}/1")
    bulk: object = {"entities": {"2": {}}}
    assert {"changed": 1} == (await gateway.call("POST", "/v1/entities/order:bulk", bulk)).json
    assert 204 == (await gateway.call("DELETE", "/v1/entities/order/1")).status
    listed = {}
    for kind in ("ad", "ads", "order"):
        page = (await gateway.call("GET", f"/v1/entities/{kind}?id_prefix=")).json
        listed[kind] = [(each["kind"], each["id"]) for each in page["entities"]]
    assert {"ad": [("ad", "1")], "ads": [("ads", "1")], "order": [("order", "2")]} == listed
    assert [] == (await gateway.call("GET", "/v1/entities/ad?id_prefix=s")).json["entities"]
    explained = (await gateway.call("GET", "/v1/entities/ads/1/explain")).json
    assert ("ads", "1") == (explained["kind"], explained["id"])


async def test_a_state_of_a_stage_of_another_kind_is_refused(gateway: Gateway) -> None:
    """It would wake a stage with an entity that is not its own."""
    await declared(gateway, photos=1)
    await put(gateway, {}, path="/v1/entities/order/1")
    body = {"version": 0, "state": 1}
    answer = await gateway.call("PUT", "/v1/entities/order/1/states/photos", body)
    assert (400, "stage") == (answer.status, answer.json["path"])
    assert "is one of the kind 'ad', not 'order'" in answer.json["problem"]


async def test_entities_are_listed_in_pages(gateway: Gateway) -> None:
    """In order of id, by prefix; `next` is where the following page begins."""
    for name in ("a1", "a2", "a3", "b1"):
        await put(gateway, {"n": name}, path=f"/v1/entities/ad/{name}")
    first = (await gateway.call("GET", "/v1/entities/ad?id_prefix=a&limit=2")).json
    assert (["a1", "a2"], "a2") == ([each["id"] for each in first["entities"]], first["next"])
    rest = (await gateway.call("GET", "/v1/entities/ad?id_prefix=a&limit=2&after=a2")).json
    assert (["a3"], None) == ([each["id"] for each in rest["entities"]], rest["next"])
    for query in ("limit=0", "limit=1001", "limit=x", "nope=1", "after=a&after=b"):
        assert 400 == (await gateway.call("GET", f"/v1/entities/ad?{query}")).status


async def test_a_page_of_large_documents_is_shorter(gateway: Gateway) -> None:
    """Nobody can be made to send a gigabyte; all of them are found nevertheless."""
    for number in range(5):
        document = {"text": "x" * 300_000}
        await put(gateway, document, path=f"/v1/entities/ad/e{number}")
    found: list[str] = []
    after = ""
    while True:
        page = await gateway.call("GET", f"/v1/entities/ad?limit=1000{after}")
        assert len(page.body) < 700_000
        found += [each["id"] for each in page.json["entities"]]
        if page.json["next"] is None:
            break
        after = f"&after={page.json['next']}"
    assert [f"e{number}" for number in range(5)] == found


# -- queues and stages ----------------------------------------------------------------------------


async def test_explain_says_who_changed_it_and_what_it_waits_for(gateway: Gateway) -> None:
    """The document of `explain`, as it is in Python."""
    await put(gateway)
    await gateway.call("PATCH", PATH, {"price": 2}, headers=MERGE)
    answer = (await gateway.call("GET", f"{PATH}/explain")).json
    assert ("ad-1", 2, []) == (answer["id"], answer["version"], answer["stages"])
    assert [("local", ["price"]), ("local", [""])] == [
        (note["author"], note["paths"]) for note in answer["changes"]
    ]
    assert 404 == (await gateway.call("GET", "/v1/entities/ad/none/explain")).status


async def test_stages_are_listed_swept_and_forgotten(gateway: Gateway) -> None:
    """A stage that nobody has ever served is not there."""
    await declared(gateway, photos=3)
    [shown] = (await gateway.call("GET", "/v1/stages")).json["stages"]
    assert ("photos", 3, 0) == (shown["name"], shown["revision"], shown["parked"])
    assert 202 == (await gateway.call("POST", "/v1/stages/photos/backfill")).status
    assert {"removed": 0} == (await gateway.call("DELETE", "/v1/stages/photos")).json
    assert {"stages": []} == (await gateway.call("GET", "/v1/stages")).json
    for method, path in (("POST", "/v1/stages/photos/backfill"), ("DELETE", "/v1/stages/photos")):
        answer = await gateway.call(method, path)
        assert (404, "stage") == (answer.status, answer.json["kind"])
    assert 400 == (await gateway.call("POST", "/v1/stages/no%20name/backfill")).status


async def test_what_was_given_up_is_listed_and_released(gateway: Gateway) -> None:
    """By a worker of this very app; page by page, with the error; then it is ready again."""

    def give_up(_: Any) -> None:
        raise Quarantine("a person, please")

    stages: Stages[Any] = Stages(gateway.app, "ad")
    stages.add(stage("bad", process=give_up, backfill=False), stage("good"))
    for name in ("a", "b", "c"):
        await put(gateway, {"n": 1}, path=f"/v1/entities/ad/{name}")
    stop = asyncio.Event()
    working = asyncio.create_task(gateway.app.work(stop))
    async with asyncio.timeout(30):
        while len((await gateway.call("GET", "/v1/parked")).json["parked"]) < 3:
            await asyncio.sleep(0.05)
    stop.set()
    await working
    page = (await gateway.call("GET", "/v1/parked?limit=2&stage=bad")).json
    assert (["a", "b"], "ad/b/bad") == ([row["entity_id"] for row in page["parked"]], page["next"])
    assert ("quarantined", "Quarantine: a person, please", 1) == (
        page["parked"][0]["status"], page["parked"][0]["error"], page["parked"][0]["attempts"],
    )  # fmt: skip
    rest = (await gateway.call("GET", "/v1/parked?limit=2&after=ad/b/bad")).json
    assert (["c"], None) == ([row["entity_id"] for row in rest["parked"]], rest["next"])
    assert {"released": 0} == (
        await gateway.call("POST", "/v1/entities/ad/a/release?stage=good")
    ).json
    assert {"released": 1} == (await gateway.call("POST", "/v1/entities/ad/a/release")).json
    rows = (await gateway.call("GET", "/v1/entities/ad/a/explain")).json["stages"]
    [row] = [each for each in rows if each["stage"] == "bad"]
    assert ("ready", 0) == (row["status"], row["attempts"])
    assert "by hand" in row["reasons"]
    for query in ("after=a", "after=a/", "after=/bad", "stage=no%20name", "limit=0"):
        assert 400 == (await gateway.call("GET", f"/v1/parked?{query}")).status


# -- states ---------------------------------------------------------------------------------------


async def test_a_state_is_read_and_compared_and_set(gateway: Gateway) -> None:
    """JSON, with the revision of the stage unless it is said."""
    path = f"{PATH}/states/photos"
    await declared(gateway, photos=3)
    await put(gateway)
    nothing = (await gateway.call("GET", path)).json
    assert (0, False) == (nothing["version"], "state" in nothing)
    made = await gateway.call("PUT", path, {"version": 0, "state": {"b": 1, "a": [2]}})
    assert (200, 1, 3, {"a": [2], "b": 1}) == (
        made.status, made.json["version"], made.json["revision"], made.json["state"],
    )  # fmt: skip
    assert made.json == (await gateway.call("GET", path)).json
    late = await gateway.call("PUT", path, {"version": 0, "state": 7})
    assert (412, "0", "1") == (late.status, late.json["expected"], late.json["found"])
    old = await gateway.call("PUT", path, {"version": 1, "state": 7, "epoch": 9})
    assert 412 == old.status
    [row] = (await gateway.call("GET", f"{PATH}/explain")).json["stages"]
    assert ("photos", ["state-cas"]) == (row["stage"], row["reasons"])


async def test_a_state_may_be_a_protobuf_message(gateway: Gateway) -> None:
    """In base64, with the name of its type; it need not be known here."""
    path = f"{PATH}/states/photos"
    await declared(gateway, photos=1)
    await put(gateway)
    message = base64.b64encode(b"\x00\xff").decode()
    body = {"version": 0, "type": "shop.v1.Photos", "message": message, "revision": 2}
    made = (await gateway.call("PUT", path, {**body, "wake": False})).json
    assert ("shop.v1.Photos", message, 2) == (made["type"], made["message"], made["revision"])
    assert [] == (await gateway.call("GET", f"{PATH}/explain")).json["stages"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"state": 1}, "version"),
        ({"version": -1, "state": 1}, "version"),
        ({"version": True, "state": 1}, "version"),
        ({"version": 0}, "state"),
        ({"version": 0, "state": 1, "type": "a.B", "message": ""}, "state"),
        ({"version": 0, "type": "a.B"}, "message"),
        ({"version": 0, "type": "a b", "message": ""}, "type"),
        ({"version": 0, "type": "a.B", "message": "%"}, "message"),
        ({"version": 0, "state": 1, "wake": "no"}, "wake"),
        ({"version": 0, "state": 1, "epoch": 1.5}, "epoch"),
        ({"version": 0, "state": 1, "revision": 2**31}, "revision"),
        ({"version": 0, "stat": 1}, "stat"),
    ],
)
async def test_a_bad_state_is_refused(gateway: Gateway, body: Any, field: str) -> None:
    """The field is named, and nothing is stored."""
    await declared(gateway, photos=1)
    await put(gateway)
    answer = await gateway.call("PUT", f"{PATH}/states/photos", body)
    assert (400, field) == (answer.status, answer.json["path"])
    assert 0 == (await gateway.call("GET", f"{PATH}/states/photos")).json["version"]


async def test_a_state_needs_an_entity_and_a_stage(gateway: Gateway) -> None:
    """A typing error makes no rows that nobody will ever look at."""
    body = {"version": 0, "state": 1}
    answer = await gateway.call("PUT", "/v1/entities/ad/none/states/photos", body)
    assert (404, "entity") == (answer.status, answer.json["kind"])
    await put(gateway)
    answer = await gateway.call("PUT", f"{PATH}/states/fotos", body)
    assert (404, "stage") == (answer.status, answer.json["kind"])


# -- callers --------------------------------------------------------------------------------------


async def test_forgetting_a_stage_is_for_operators(tmp_path: Path) -> None:
    """Who may write entities may not; the author of a change is the token's name."""
    async with guarded_server(tmp_path) as guarded:
        writer, admin = await guarded.token("shop", "read", "write"), await guarded.token("admin")
        await declared(guarded, photos=1)
        refused = await guarded.ask(writer, "DELETE", "/v1/stages/photos")
        assert (403, "admin") == (refused.status, refused.json["scope"])
        assert 200 == (await guarded.ask(admin, "DELETE", "/v1/stages/photos")).status
        assert 200 == (await guarded.ask(writer, "PUT", PATH, {"n": 1})).status
        told = (await guarded.ask(writer, "GET", f"{PATH}/explain")).json
        assert ["shop"] == [note["author"] for note in told["changes"]]


async def test_the_client_puts_more_than_a_call_can_carry(gateway: Gateway, client: Client) -> None:
    """Cut by bytes and by number: the caller need not know what a server takes at once."""
    large = {f"large-{n}": {"text": "x" * 900_000} for n in range(12)}
    small = {f"small-{n}": {"n": n} for n in range(1_001)}
    assert 1_013 == await client.entities.put_many("ad", {**large, **small})
    assert 0 == await client.entities.put_many("ad", large)
    assert '{"n":1000}' == (await gateway.app.entities.get("ad", "small-1000")).doc


async def test_the_client_has_the_values_and_errors_of_the_api_in_process(
    gateway: Gateway, client: Client
) -> None:
    """What is put by one is shown by the other."""
    entities, ours = client.entities, gateway.app.entities
    made = await entities.put("ad", "ad-1", {"n": 1}, if_version=0)
    assert made == await ours.get("ad", "ad-1") == await entities.get("ad", "ad-1")
    patched = await entities.patch("ad", "ad-1", {"n": 2}, if_version=1, if_epoch=1)
    assert (2, '{"n":2}') == (patched.version, patched.doc)
    await entities.patch("ad", "ad-1", [{"op": "add", "path": "/m", "value": None}], if_version=2)
    assert {"n": 2, "m": None} == json.loads((await ours.get("ad", "ad-1")).doc or "")
    for work in (
        entities.put("ad", "ad-1", {}, if_version=0),
        entities.patch("ad", "ad-1", {}, if_version=7),
        entities.delete("ad", "ad-1", if_version=3, if_epoch=4),
    ):
        with pytest.raises(Conflict):
            await work
    assert await ours.page("ad", prefix="ad") == await entities.page("ad", prefix="ad")
    assert await ours.explain("ad", "ad-1") == await entities.explain("ad", "ad-1")
    assert [] == list(await entities.parked(stage="photos", after=("ad/a", "photos")))
    assert 0 == await entities.release("ad", "ad-1", "photos")
    with pytest.raises(InvalidSpec):
        await entities.page("ad", limit=0)
    await entities.delete("ad", "ad-1")
    with pytest.raises(NotFound):
        await entities.get("ad", "ad-1")


async def test_the_client_compares_and_sets(gateway: Gateway, client: Client) -> None:
    """Both kinds of states; a lost race is None."""
    await declared(gateway, photos=2)
    entities = client.entities
    await entities.put("ad", "ad-1", {"n": 1})
    assert await entities.state("ad", "ad-1", "photos") is None
    text = StateWrite(body=b'{"a":1}', revision=2)
    stored = await entities.swap_state("ad", "ad-1", "photos", text, version=0)
    assert stored is not None
    assert (1, 2, b'{"a":1}', None) == (stored.version, stored.revision, stored.body, stored.type)
    message = StateWrite(body=b"\xff", revision=2, type="shop.v1.Photos")
    assert await entities.swap_state("ad", "ad-1", "photos", message, version=0) is None
    assert await entities.swap_state("ad", "ad-1", "photos", message, version=1, epoch=8) is None
    assert await entities.swap_state("ad", "ad-1", "photos", message, version=1, wake=False)
    assert (await gateway.app.entities.state("ad", "ad-1", "photos"))[1] == await entities.state(
        "ad", "ad-1", "photos"
    )
    assert ["photos"] == [each.name for each in await entities.stages()]
    await entities.backfill_stage("photos")
    assert 2 == await entities.forget_stage("photos")  # a row and a state


async def test_the_blocking_client_does_the_same(gateway: Gateway) -> None:
    """For programs without an event loop."""
    await declared(gateway, photos=1)

    def use() -> None:
        with BlockingClient(gateway.url) as client:
            entities = client.entities
            assert 1 == entities.put("ad", "ad-1", {"n": 1}, if_version=0).version
            assert 2 == entities.patch("ad", "ad-1", {"n": 2}).version
            assert entities.get("ad", "ad-1") == entities.page("ad").entities[0]
            assert "ad-1" == entities.explain("ad", "ad-1").id
            write = StateWrite(body=b"1", revision=1)
            assert entities.swap_state("ad", "ad-1", "photos", write, version=0)
            assert entities.state("ad", "ad-1", "photos")
            assert ["photos"] == [each.name for each in entities.stages()]
            entities.backfill_stage("photos")
            assert ([], 0) == (list(entities.parked()), entities.release("ad", "ad-1"))
            assert 2 == entities.forget_stage("photos")
            entities.delete("ad", "ad-1")
            with pytest.raises(NotFound):
                entities.get("ad", "ad-1")

    await asyncio.to_thread(use)
