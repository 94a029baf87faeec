"""What REST tells of the installation: its workers, and the audit page by page."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from gnomon.contracts.store import AuditEntry, LeaseRequest
from gnomon.gateways.rest.installation import page_of
from gnomon.model.offer import Offer
from tests.conformance.gateway.conftest import Gateway

SPEC = {"action": {"type": "mock"}, "start_at": "2100-01-01T00:00:00Z"}
MINUTE = timedelta(minutes=1)
WORKER = UUID(int=7)
START = datetime(2030, 1, 1, tzinfo=UTC)


async def test_workers_are_shown_with_what_they_hold(gateway: Gateway) -> None:
    """And which shards nobody holds."""
    leases = gateway.app.store.leases
    seen = next(lock for lock in await leases.list_locks() if lock.shard == 3)
    request = LeaseRequest(seen=seen, lease_guid=UUID(int=9))
    (held,) = await leases.acquire([request], owner="host/1/ab", lease_for=MINUTE)
    offer = Offer(only=("mail",), needs=("function welcome",))
    await leases.heartbeat(
        WORKER, owner="host/1/ab", holdings=[held], alive_for=MINUTE, offer=offer
    )

    found = (await gateway.call("GET", "/v1/workers")).json
    (worker,) = [one for one in found["workers"] if one["worker"] == str(WORKER)]
    assert ("host/1/ab", True, [3]) == (worker["name"], worker["alive"], worker["shards"])
    assert (["mail"], ["function welcome"]) == (worker["only"], worker["needs"])
    assert 3 not in found["unowned"]
    assert found["shards"] - 1 == len(found["unowned"])


async def test_the_audit_comes_in_pages(gateway: Gateway) -> None:
    """Newest first; none twice, none left out."""
    for number in range(5):
        body = {"id": f"a-{number}", "spec": SPEC}
        assert 201 == (await gateway.call("POST", "/v1/actions", body)).status
    ids, query = [], "limit=2"
    while query:
        page = (await gateway.call("GET", f"/v1/audit?{query}")).json
        ids += [entry["id"] for entry in page["entries"]]
        query = page["next"] and f"limit=2&before={page['next']}"
    assert ["a-4", "a-3", "a-2", "a-1", "a-0"] == ids
    (only,) = (await gateway.call("GET", "/v1/audit?id=a-3&actor=local")).json["entries"]
    assert "create" == only["verb"]
    assert 400 == (await gateway.call("GET", "/v1/audit?limit=0")).status


async def test_the_audit_tells_the_face(gateway: Gateway) -> None:
    """Which a client says in a header; it is shown as REST if we know none of that name."""
    for said in ("console", "cli", "python", "root", ""):
        body = {"id": f"face-{said}", "spec": SPEC}
        headers = {"Gnomon-Face": said} if said else {}
        assert 201 == (await gateway.call("POST", "/v1/actions", body, headers=headers)).status
    await gateway.app.scheduler.delete("face-cli")
    found = (await gateway.call("GET", "/v1/audit")).json["entries"]
    faces = ["python", "rest", "rest", "python", "cli", "console"]
    assert faces == [entry["face"] for entry in found]
    assert {"local"} == {entry["actor"] for entry in found}
    here = {"Gnomon-Face": "console"}
    await gateway.call("PUT", "/v1/entities/ad/ad-1", {"title": "x"}, headers=here)
    (entry,) = (await gateway.call("GET", "/v1/audit?id=ad/ad-1")).json["entries"]
    assert "console" == entry["face"]


async def test_schedules_are_told_in_words(gateway: Gateway) -> None:
    """With their next firings; what fires once is no schedule; a search is by id or queue."""
    policies = {
        "digest": {"type": "cron", "expression": "0 9 * * 1-5", "timezone": "Europe/Berlin"},
        "ping": {"type": "periodic", "period": "5m"},
        "once": {"type": "once"},
    }
    for id, policy in policies.items():
        body = {"id": id, "spec": {**SPEC, "policy": policy}}
        assert 201 == (await gateway.call("POST", "/v1/actions", body)).status
    assert 200 == (await gateway.call("POST", "/v1/actions/ping/pause")).status

    digest, ping = (await gateway.call("GET", "/v1/schedules")).json["schedules"]
    assert ("digest", "active") == (digest["id"], digest["state"])
    assert "Europe/Berlin" in digest["words"]
    assert "2100-01-01T08:00:00Z" == digest["firings"][0]
    assert ("ping", "paused", []) == (ping["id"], ping["state"], ping["firings"])
    found = (await gateway.call("GET", "/v1/schedules?search=DIG")).json
    assert (["digest"], None) == ([one["id"] for one in found["schedules"]], found["next"])
    assert 400 == (await gateway.call("GET", "/v1/schedules?limit=201")).status


async def test_schedules_are_found_behind_many_others(gateway: Gateway) -> None:
    """On the first page, though no page of actions has one; none twice, none left out."""
    items = [{"id": f"a-{number:04}", "spec": SPEC} for number in range(150)]
    repeated = {**SPEC, "policy": {"type": "periodic", "period": "1h"}}
    items += [{"id": f"b-{number}", "spec": repeated} for number in range(3)]
    assert 200 == (await gateway.call("POST", "/v1/actions:bulk", {"actions": items})).status
    ids, query, pages = [], "limit=2", 0
    while query:
        page = (await gateway.call("GET", f"/v1/schedules?{query}")).json
        ids += [one["id"] for one in page["schedules"]]
        query, pages = page["next"] and f"limit=2&after={page['next']}", pages + 1
    assert ["b-0", "b-1", "b-2"] == ids
    assert 2 == pages


def entry(seconds: int, id: str) -> AuditEntry:
    at = START + timedelta(seconds=seconds)
    return AuditEntry(at=at, actor="ann", verb="run", id=id, guid=UUID(int=1))


def test_a_page_ends_between_two_moments() -> None:
    """What was changed at the same moment stands on one page."""
    entries = [entry(2, "c"), entry(1, "b"), entry(1, "a")]
    page = page_of(entries, 2)
    assert (["c"], START + timedelta(seconds=2)) == ([one.id for one in page.entries], page.next)
    assert None is page_of(entries, 3).next
    crowded = page_of([entry(1, "c"), entry(1, "b"), entry(1, "a")], 2)
    assert ["c", "b"] == [one.id for one in crowded.entries]
