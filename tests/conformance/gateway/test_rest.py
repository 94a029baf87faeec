"""Every route answers as docs/reference/api.md says."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from gnomon.gateways.rest import store_time
from gnomon.gateways.rest.routes import ROUTES
from tests.conformance.gateway.conftest import Gateway

FUTURE = "2100-01-01T00:00:00Z"
SPEC = {"action": {"type": "mock"}, "start_at": FUTURE}
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "api.md"


async def test_create_answers_201_with_etag_and_location(gateway: Gateway) -> None:
    """A new action: 201, its generation as ETag, its place as Location, and its durability."""
    answer = await gateway.call("POST", "/v1/actions", {"id": "a", "spec": SPEC})
    assert 201 == answer.status
    assert "/v1/actions/a" == answer.headers["Location"]
    assert f'"{answer.json["meta"]["guid"]}"' == answer.headers["ETag"]
    assert "local" == answer.json["durability"]
    assert "active" == answer.json["status"].get("state", "active")
    assert {"a"} == await gateway.ids()


async def test_create_without_id_makes_one(gateway: Gateway) -> None:
    """Without an id the action gets one, and the Location names it."""
    answer = await gateway.call("POST", "/v1/actions", {"spec": SPEC})
    assert f"/v1/actions/{answer.json['meta']['id']}" == answer.headers["Location"]


async def test_repeat_with_the_same_key_is_200(gateway: Gateway) -> None:
    """The same idempotency key changes nothing and says so."""
    sent = {"body": {"id": "a", "spec": SPEC}, "headers": {"Idempotency-Key": "k1"}}
    first = await gateway.call("POST", "/v1/actions", **sent)  # type: ignore[arg-type]
    second = await gateway.call("POST", "/v1/actions", **sent)  # type: ignore[arg-type]
    assert [201, 200] == [first.status, second.status]
    assert first.headers["ETag"] == second.headers["ETag"]
    assert second.json["repeated"]


async def test_times_are_utc_and_durations_iso(gateway: Gateway) -> None:
    """Times are shown in UTC whatever zone they were sent in; durations in ISO 8601."""
    spec = {
        "action": {"type": "mock"},
        "start_at": "2100-01-01T02:00:00+02:00",
        "policy": {"type": "periodic", "period": "90s"},
    }
    answer = await gateway.call("POST", "/v1/actions", {"id": "a", "spec": spec})
    assert FUTURE == answer.json["spec"]["start_at"]
    assert "PT90S" == answer.json["spec"]["policy"]["period"]
    assert datetime.fromisoformat(answer.json["meta"]["created_at"]).utcoffset() is not None
    assert answer.json["meta"]["created_at"].endswith("Z")


async def test_get_shows_the_action(gateway: Gateway) -> None:
    """Get answers what create answered, with the same ETag."""
    created = await gateway.create("a", labels={"k": "v"})
    answer = await gateway.call("GET", "/v1/actions/a")
    assert 200 == answer.status
    assert created == answer.json
    assert f'"{created["meta"]["guid"]}"' == answer.headers["ETag"]


async def test_list_filters_and_pages(gateway: Gateway) -> None:
    """Every filter narrows the listing; `next` continues it."""
    await gateway.create("a1", queue="mail", labels={"k": "v"})
    await gateway.create("a2", start_at="2090-01-01T00:00:00Z")
    await gateway.create("b1")
    await gateway.call("POST", "/v1/actions/b1/pause")

    async def ids(query: str) -> list[str]:
        answer = await gateway.call("GET", f"/v1/actions?{query}")
        assert 200 == answer.status, answer.body
        return [item["meta"]["id"] for item in answer.json["actions"]]

    assert ["a1", "a2", "b1"] == await ids("")
    assert ["a1"] == await ids("queue=mail")
    assert ["a1"] == await ids("label=k=v")
    assert [] == await ids("argument=order.id=7")
    assert ["a1", "a2"] == await ids("id_prefix=a")
    assert ["b1"] == await ids("state=paused")
    assert ["a1", "a2", "b1"] == await ids("state=paused&state=active")
    assert ["a2"] == await ids("due_before=2095-01-01T00:00:00Z")
    first = await gateway.call("GET", "/v1/actions?limit=2")
    assert ["b1"] == await ids(f"limit=2&after={first.json['next']}")


async def test_replace_gives_a_new_generation(gateway: Gateway) -> None:
    """PUT replaces; with the right If-Match, and with a barrier."""
    created = await gateway.create("a")
    answer = await gateway.call(
        "PUT", "/v1/actions/a?barrier=true", {"spec": {**SPEC, "priority": 1}},
        headers={"If-Match": f'"{created["meta"]["guid"]}"'},
    )  # fmt: skip
    assert 200 == answer.status, answer.body
    assert 1 == answer.json["spec"]["priority"]
    assert created["meta"]["guid"] != answer.json["meta"]["guid"]
    assert f'"{answer.json["meta"]["guid"]}"' == answer.headers["ETag"]


async def test_delete_cancels(gateway: Gateway) -> None:
    """DELETE cancels the action, which stays visible."""
    await gateway.create("a")
    answer = await gateway.call("DELETE", "/v1/actions/a")
    assert (200, "cancelled") == (answer.status, answer.json["status"]["state"])
    assert "cancelled" == (await gateway.call("GET", "/v1/actions/a")).json["status"]["state"]


async def test_pause_and_resume(gateway: Gateway) -> None:
    """POST …/pause and …/resume change the state."""
    await gateway.create("a")
    paused = await gateway.call("POST", "/v1/actions/a/pause")
    assert (200, "paused") == (paused.status, paused.json["status"]["state"])
    resumed = await gateway.call("POST", "/v1/actions/a/resume")
    assert 200 == resumed.status
    assert "active" == resumed.json["status"].get("state", "active")


async def test_pause_with_a_reason_and_an_end(gateway: Gateway) -> None:
    """For one action, and for all that match; those that it paused can be found again."""
    await gateway.create("a")
    await gateway.create("b")
    until = "2090-01-01T06:00:00+01:00"
    query = f"reason=the%20move&until={until.replace('+', '%2B')}"
    paused = await gateway.call("POST", f"/v1/actions/a/pause?{query}")
    status = paused.json["status"]
    assert ("the move", "2090-01-01T05:00:00Z") == (status["reason"], status["paused_until"])
    why = await gateway.call("GET", "/v1/actions/a/why")
    assert (
        "It is paused: the move; nothing begins until 2090-01-01 05:00:00 UTC"
        in (why.json["sentence"])
    )
    step = await gateway.call("POST", "/v1/actions:change?verb=pause&until=2h&reason=lunch")
    assert 1 == step.json["changed"]
    found = await gateway.call("GET", "/v1/actions?paused_for=lunch")
    assert ["b"] == [action["meta"]["id"] for action in found.json["actions"]]
    assert "paused_until" in found.json["actions"][0]["status"]
    step = await gateway.call("POST", "/v1/actions:change?verb=resume&paused_for=lunch")
    assert 1 == step.json["changed"]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("until=2020-01-01T00:00:00Z", "must be in the future"),
        ("until=0s", "must be in the future"),
        ("until=2090-01-01T00:00:00", "must have a time zone"),
        ("until=tomorrow", "must be a time such as"),
        ("until=-2h", "must be a time such as"),
        ("until=99999h", "must be at most"),
        ("reason=", "must be one line"),
        ("reason=a%0Ab", "must be one line"),
        (f"reason={'x' * 201}", "must be one line"),
    ],
)
async def test_a_pause_is_refused(gateway: Gateway, query: str, said: str) -> None:
    """With the field's name, for one and for all."""
    await gateway.create("a")
    for path in ("/v1/actions/a/pause?", "/v1/actions:change?verb=pause&"):
        answer = await gateway.call("POST", path + query)
        assert 400 <= answer.status < 500
        assert said in answer.json["detail"]
        assert query.partition("=")[0] in answer.json["detail"]
    wrong = await gateway.call("POST", "/v1/actions:change?verb=resume&reason=x")
    assert "reason: is for pause only" in wrong.json["detail"]


async def test_run_makes_it_due(gateway: Gateway) -> None:
    """POST …/run makes the action due now."""
    await gateway.create("a")
    answer = await gateway.call("POST", "/v1/actions/a/run")
    assert 200 == answer.status
    assert answer.json["status"]["scheduled_at"] < FUTURE


async def test_retry_arms_a_finished_action(gateway: Gateway) -> None:
    """POST …/retry makes a cancelled action active again, as a new generation."""
    created = await gateway.create("a")
    await gateway.call("DELETE", "/v1/actions/a")
    answer = await gateway.call("POST", "/v1/actions/a/retry")
    assert 200 == answer.status
    assert "active" == answer.json["status"].get("state", "active")
    assert created["meta"]["guid"] != answer.json["meta"]["guid"]


async def test_attempts_are_listed(gateway: Gateway) -> None:
    """Nothing attempted yet: an empty list."""
    await gateway.create("a")
    answer = await gateway.call("GET", "/v1/actions/a/attempts?limit=5")
    assert (200, {"attempts": []}) == (answer.status, answer.json)


async def test_health_asks_the_store_once_a_second(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers everybody, so it must not cost a query each."""
    installation = gateway.app.store.installation
    asked, now = [], installation.now

    async def counted() -> datetime:
        asked.append(1)
        return await now()

    monkeypatch.setattr(installation, "now", counted)
    monkeypatch.setattr(store_time, "REFRESH_S", 3600.0)
    for _ in range(20):
        assert 200 == (await gateway.call("GET", "/health")).status
    assert 1 == len(asked)


async def test_health_says_what_the_store_is(gateway: Gateway) -> None:
    """Health names engine, durability and schema version, and what the process adds."""
    health = (await gateway.call("GET", "/health")).json
    assert ("ok", "sqlite", "local") == (health["status"], health["engine"], health["durability"])
    assert gateway.app.installation.schema_version == health["schema_version"]
    assert 0 == health["workers"]


async def test_metrics_are_for_prometheus(gateway: Gateway) -> None:
    """The text format, with our names."""
    answer = await gateway.call("GET", "/metrics")
    assert 200 == answer.status
    assert answer.headers["Content-Type"].startswith("text/plain")
    assert b"gnomon_shards_held" in answer.body


# -- bulk -----------------------------------------------------------------------------------------


async def test_bulk_answers_each_item_in_order(gateway: Gateway) -> None:
    """A bad item spoils no other; repeats and clashes are told where they stand."""
    items = [
        {"id": "a", "spec": SPEC},
        {"id": "b", "spec": {**SPEC, "colour": "red"}},
        {"id": "a", "spec": SPEC},
        {"id": "c", "key": "k", "spec": SPEC},
        17,
        {"id": "bad id", "spec": SPEC},
    ]
    answer = await gateway.call("POST", "/v1/actions:bulk", {"actions": items})
    assert 200 == answer.status
    codes = [item.get("problem", {}).get("code") for item in answer.json["items"]]
    assert [None, "unknown_field", "already_exists", None, "invalid_spec", "invalid_spec"] == codes
    assert "spec.colour" == answer.json["items"][1]["problem"]["path"]
    assert {"a", "c"} == await gateway.ids()
    again = await gateway.call("POST", "/v1/actions:bulk", {"actions": [items[3]]})
    assert again.json["items"][0]["action"]["repeated"]


async def test_bulk_takes_10000_actions(gateway: Gateway) -> None:
    """As many as are promised, and not one more."""
    items = [{"id": f"n{number}", "spec": SPEC} for number in range(10_000)]
    answer = await gateway.call("POST", "/v1/actions:bulk", {"actions": items})
    assert 10_000 == sum("action" in item for item in answer.json["items"])
    refused = await gateway.call("POST", "/v1/actions:bulk", {"actions": [*items, items[0]]})
    assert (400, "actions") == (refused.status, refused.json["path"])


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"{}",
        b'{"actions": 5}',
        b'{"actions": [], "actions": []}',
        b'{"actions": [], "more": 1}',
        b'{"actions": [}',
        b'{"actions": [' + b"[" * 5000 + b"]" * 5000 + b"]}",
        b"\xef\xbb\xbf" + b'{"actions": []}',
    ],
)
async def test_bulk_refuses_a_bad_frame(gateway: Gateway, raw: bytes) -> None:
    """What is not `{"actions": […]}` is refused whole, or the bad item is."""
    answer = await gateway.call("POST", "/v1/actions:bulk", raw=raw)
    problems = [answer.json] if answer.status == 400 else answer.json["items"]
    assert "invalid" in str(problems)
    assert set() == await gateway.ids()


# -- the frame ------------------------------------------------------------------------------------


def test_every_route_is_in_the_reference() -> None:
    """docs/reference/api.md names every route with its method."""
    page = PAGE.read_text()
    for route in ROUTES:
        assert f"`{route.method} {route.path}`" in page
