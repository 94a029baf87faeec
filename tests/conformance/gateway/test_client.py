"""The client has the scheduler's verbs, values and errors."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

import gnomon
from gnomon.client import Client
from gnomon.contracts.store import ChangeResult, Selection
from gnomon.model.action import State
from gnomon.model.errors import (
    AlreadyExists,
    Conflict,
    FailedPrecondition,
    InvalidRequest,
    InvalidSpec,
    NotFound,
    StoreUnavailable,
    Unavailable,
)
from gnomon.model.spec import Mock, Retry, Spec
from gnomon.model.why import WaitReason
from gnomon.scheduler import Request, Scheduler
from tests.conformance.gateway.conftest import Gateway
from tests.conformance.gateway.test_errors import fail_get

FUTURE = datetime(2100, 1, 1, tzinfo=UTC)
SPEC = Spec(action=Mock(answer="x"), start_at=FUTURE, retry=Retry(max=3), labels={"k": "v"})
VERBS = (
    "create", "create_many", "replace", "delete", "get", "list", "attempts", "why", "pause",
    "resume", "run_now", "retry", "watch", "set_limit", "drop_limit", "get_limit", "list_limits",
    "change_selected", "count", "preview",
)  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
def test_verbs_have_the_schedulers_names_and_parameters(verb: str) -> None:
    """Whoever knows one knows the other; `within` and `actor` are for the same process only."""
    wanted = set(inspect.signature(getattr(Scheduler, verb)).parameters) - {"within", "actor"}
    assert wanted == set(inspect.signature(getattr(Client, verb)).parameters)


async def test_what_is_created_comes_back_the_same(gateway: Gateway, client: Client) -> None:
    """Get over HTTP and get in process are equal values."""
    changed = await client.create(Request(id="a", spec=SPEC))
    assert not changed.repeated
    assert await gateway.app.scheduler.get("a") == changed.action == await client.get("a")


async def test_keys_make_creation_repeatable(client: Client) -> None:
    request = Request(id="a", key="k", spec=SPEC)
    await client.create(request)
    assert (await client.create(request)).repeated


async def test_why_is_the_same_everywhere(gateway: Gateway, client: Client) -> None:
    """Over HTTP and in process; of what is not there it is said so."""
    await client.create(Request(id="a", spec=SPEC))
    there, here = await client.why("a"), await gateway.app.scheduler.why("a")
    assert (WaitReason.NOT_DUE, FUTURE) == (there.code, there.until)
    assert (here.code, here.until, here.facts.keys()) == (
        there.code,
        there.until,
        there.facts.keys(),
    )
    with pytest.raises(NotFound):
        await client.why("b")


async def test_many_are_created_with_one_answer_each(client: Client) -> None:
    bad = Spec(action=Mock(), queue="no such name!")
    results = await client.create_many([Request(id="a", spec=SPEC), Request(id="b", spec=bad)])
    assert [ChangeResult, InvalidSpec] == [type(result) for result in results]
    assert isinstance(results[1], InvalidSpec)
    assert "spec.queue" == results[1].path


async def test_life_of_an_action(client: Client) -> None:
    """Pause, resume, run, replace, delete, retry: each answers with the state it made."""
    created = (await client.create(Request(id="a", spec=SPEC))).action
    paused = (await client.pause("a", reason="the move", until=timedelta(hours=2))).action
    assert (State.PAUSED, "the move") == (paused.status.state, paused.status.reason)
    assert paused.status.paused_until is not None
    assert FUTURE == (await client.pause("a", until=FUTURE)).action.status.paused_until
    assert State.ACTIVE == (await client.resume("a")).action.status.state
    due = (await client.run_now("a")).action.status.scheduled_at
    assert due is not None
    assert due < FUTURE
    replaced = await client.replace(Request(id="a", spec=SPEC), barrier=True)
    assert created.meta.guid != replaced.action.meta.guid
    deleted = await client.delete("a", if_match=replaced.action.meta.guid)
    assert State.CANCELLED == deleted.action.status.state
    assert State.ACTIVE == (await client.retry("a")).action.status.state
    assert [] == list(await client.attempts("a", limit=5))


async def test_list_takes_every_filter(client: Client) -> None:
    await client.create(Request(id="a1", spec=SPEC))
    await client.create(Request(id="a2", spec=SPEC))
    chosen = Selection(
        states=(State.ACTIVE,), queue="default", id_prefix="a", labels={"k": "v"},
        due_before=datetime(2101, 1, 1, tzinfo=UTC),
    )  # fmt: skip
    page = await client.list(chosen, limit=1)
    assert ["a1"] == [action.meta.id for action in page.actions]
    rest = await client.list(chosen, after=page.next)
    assert ["a2"] == [action.meta.id for action in rest.actions]


async def test_errors_are_the_schedulers_own(gateway: Gateway, client: Client) -> None:
    """The same class, the same message, the same fields."""
    with pytest.raises(NotFound, match="action 'a' does not exist"):
        await client.get("a")
    await client.create(Request(id="a", spec=SPEC))
    with pytest.raises(AlreadyExists):
        await client.create(Request(id="a", spec=SPEC))
    stale = uuid4()
    with pytest.raises(Conflict) as conflict:
        await client.pause("a", if_match=stale)
    assert str(stale) == conflict.value.expected
    with pytest.raises(FailedPrecondition):
        await client.retry("a")
    with pytest.raises(InvalidSpec) as invalid:
        await client.get("a b")
    assert "id" == invalid.value.path
    with pytest.raises(InvalidRequest, match="limit"):
        await client.list(Selection(), limit=5000)


async def test_store_unavailable_keeps_its_class(
    gateway: Gateway, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_get(gateway, monkeypatch, StoreUnavailable("gone"))
    with pytest.raises(StoreUnavailable, match="gone"):
        await client.get("a")


async def test_no_server_is_unavailable() -> None:
    """Nobody listens: the error says where."""
    async with Client("http://127.0.0.1:9") as client:
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1:9"):
            await client.get("a")


async def test_everything_that_matches_is_counted_and_changed(
    gateway: Gateway, client: Client
) -> None:
    """Step by step; what does not match stays, and a wrong verb or state is told."""
    for number in range(5):
        await client.create(Request(id=f"a{number}", spec=SPEC))
    await client.create(Request(id="b", spec=Spec(action=Mock(), start_at=FUTURE)))
    labelled = Selection(labels={"k": "v"})
    assert (5, 3) == (await client.count(labelled), await client.count(labelled, limit=3))
    first = await client.change_selected("pause", labelled, limit=3)
    assert first.next is not None
    rest = await client.change_selected("pause", labelled, limit=3, after=first.next)
    assert (3, 2, None) == (first.changed, rest.changed, rest.next)
    assert State.ACTIVE is (await client.get("b")).status.state
    for verb, states in (("remove", ()), ("retry", (State.ACTIVE,))):
        with pytest.raises(InvalidRequest):
            await client.change_selected(verb, Selection(states=states))


async def test_a_schedule_is_previewed(client: Client) -> None:
    """As in process; nothing is stored."""
    options: Any = {"cron": "30 2 * * *", "timezone": "Europe/Berlin", "count": 3}
    start = datetime(2027, 3, 27, tzinfo=UTC)
    found = await client.preview(**options, from_=start)
    here = gnomon.preview(**options, from_=start)
    assert (here.words, 3) == (found.words, len(found.firings))
    assert [one.at for one in here.firings] == [one.at for one in found.firings]
    assert "Every 1h30m" == (await client.preview(every="90m")).words
    assert 0 == await client.count(Selection())


async def test_the_status_is_the_same_over_http(gateway: Gateway, client: Client) -> None:
    """With what is wrong: nobody works here."""
    await client.create(Request(id="a", spec=SPEC))
    status = await client.status()
    assert gateway.app.installation.id == status.installation
    assert ["no worker is alive"] == list(status.problems)
    assert [1] == [queue.waiting for queue in status.queues]
