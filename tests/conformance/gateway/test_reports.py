"""Reports over REST: the same as in process, bounded, and for who may look."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime

import pytest

from gnomon.client import Client
from gnomon.client.reports import ReportClient
from gnomon.clock import SystemClock
from gnomon.model.errors import InvalidRequest
from gnomon.model.load import LoadUnit
from gnomon.scheduler.reports import Reports
from tests.conformance.gateway.conftest import Gateway

VERBS = ("figures", "failures", "history", "load")


@pytest.mark.parametrize("verb", VERBS)
def test_the_client_has_the_verbs_of_the_scheduler(verb: str) -> None:
    """Under the same names, with the same parameters."""
    wanted = inspect.signature(getattr(Reports, verb)).parameters
    assert set(wanted) == set(inspect.signature(getattr(ReportClient, verb)).parameters)


async def test_figures_are_those_of_the_store(gateway: Gateway, client: Client) -> None:
    """Counts by queue, and ages as durations."""
    await gateway.create("a", queue="mail")
    answer = await gateway.call("GET", "/v1/figures")
    (queue,) = answer.json["queues"]
    assert ("mail", 1, 0, "P0D") == (
        queue["queue"],
        queue["waiting"],
        queue["overdue"],
        queue["overdue_for"],
    )
    here, there = await gateway.app.scheduler.reports.figures(), await client.reports.figures()
    assert here.queues == there.queues


class StillClock(SystemClock):
    """Goes on when it is told to."""

    passed_s = 100.0

    def monotonic(self) -> float:
        return self.passed_s


async def test_figures_are_asked_for_once_a_second(gateway: Gateway) -> None:
    """However many look."""
    clock = StillClock()
    reports = Reports(gateway.app.store, clock=clock)
    first = await reports.figures()
    await gateway.create("a")
    assert first == await reports.figures()
    clock.passed_s += 1.0
    assert ["default"] == [one.queue for one in (await reports.figures()).queues]


async def test_failures_are_grouped(gateway: Gateway, client: Client) -> None:
    """None, as long as nothing failed; a bad bound is refused."""
    report = await client.reports.failures(queue="mail", limit=5)
    assert ([], 0, False) == (list(report.groups), report.looked_at, report.partial)
    with pytest.raises(InvalidRequest):
        await client.reports.failures(limit=201)
    assert 400 == (await gateway.call("GET", "/v1/failures?limit=x")).status


async def test_the_load_ahead_is_shown_with_its_herds(gateway: Gateway, client: Client) -> None:
    """Of the queues, and of what comes again."""
    spec = {"action": {"type": "mock"}, "start_at": "2100-01-01T00:00:00Z"}
    hourly = {**spec, "policy": {"type": "periodic", "period": "PT1H"}}
    items = [{"id": f"a{number}", "spec": spec} for number in range(60)]
    items.append({"id": "hourly", "spec": hourly})
    await gateway.call("POST", "/v1/actions:bulk", {"actions": items})
    since = datetime(2100, 1, 1, tzinfo=UTC)
    report = await client.reports.load(since=since, unit=LoadUnit.HOUR, count=3)
    assert [(61, 0), (0, 1), (0, 1)] == [(one.due, one.recurring) for one in report.buckets]
    (herd,) = report.herds
    assert (since, 61) == (herd.at, herd.count)
    assert not report.estimated
    assert 400 == (await gateway.call("GET", "/v1/load?unit=year")).status
    assert 400 == (await gateway.call("GET", "/v1/load?count=401")).status
