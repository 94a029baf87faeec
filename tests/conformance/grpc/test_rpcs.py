"""Every rpc does what its verb does, over a real connection."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from grpc_health.v1 import health_pb2, health_pb2_grpc

from gnomon.contracts.store import ChangeResult
from gnomon.gateways.config import ServerConfig
from gnomon.gateways.grpc import service as service_module
from gnomon.gateways.grpc.boundary import SERVICE
from gnomon.gateways.grpc.conversion import write_changed
from gnomon.gateways.grpc.server import GrpcServer, require_upb
from gnomon.gateways.grpc.service import SchedulerRpcs
from gnomon.model.errors import ConfigurationError, StoreUnavailable
from gnomon.stages.wire import write_time
from gnomon.v1 import action_pb2 as actions
from gnomon.v1 import scheduler_pb2 as pb
from gnomon.v1 import scheduler_pb2_grpc
from tests.conformance.grpc.conftest import Served, spec_of


async def test_create_stores_and_shows(served: Served) -> None:
    """The answer has meta, the spec with its defaults, the status, and what a commit survives."""
    changed = await served.create("a", labels={"k": "v"})
    stored = await served.app.scheduler.get("a")
    assert ("a", str(stored.meta.guid)) == (changed.action.meta.id, changed.action.meta.guid)
    assert {"k": "v"} == dict(changed.action.spec.labels)
    assert ("default", 5, 15) == (
        changed.action.spec.queue,
        changed.action.spec.priority,
        changed.action.spec.timeout.seconds,
    )
    assert actions.STATE_ACTIVE == changed.action.status.state
    assert 1 == changed.action.status.occurrence_no
    assert "local" == changed.durability


async def test_create_without_id_makes_one(served: Served) -> None:
    """Without an id the action gets one."""
    answer = await served.stub.Create(pb.CreateRequest(spec=spec_of()))
    assert answer.changed.action.meta.id


async def test_repeat_with_the_same_key_changes_nothing(served: Served) -> None:
    """The same idempotency key gives the same generation, and says so."""
    request = pb.CreateRequest(id="a", spec=spec_of(), idempotency_key="k1")
    first = (await served.stub.Create(request)).changed
    second = (await served.stub.Create(request)).changed
    assert (False, True) == (first.repeated, second.repeated)
    assert first.action.meta.guid == second.action.meta.guid


async def test_get_shows_what_create_answered(served: Served) -> None:
    """The same action, whole."""
    created = await served.create("a")
    answer = await served.stub.Get(pb.GetRequest(id="a"))
    assert created.action == answer.action


async def test_replace_with_if_match_and_barrier(served: Served) -> None:
    """A new spec, a new generation."""
    created = await served.create("a")
    answer = await served.stub.Replace(
        pb.ReplaceRequest(
            id="a", spec=spec_of(priority=1), if_match=created.action.meta.guid, barrier=True
        )
    )
    assert 1 == answer.changed.action.spec.priority
    assert created.action.meta.guid != answer.changed.action.meta.guid


async def test_the_verbs_change_the_state(served: Served) -> None:
    """Pause, resume, run now, delete, retry: each as its verb says."""
    await served.create("a")
    seen = []
    for name, kind in [
        ("Pause", pb.PauseRequest),
        ("Resume", pb.ResumeRequest),
        ("RunNow", pb.RunNowRequest),
        ("Delete", pb.DeleteRequest),
        ("Retry", pb.RetryRequest),
    ]:
        answer = await getattr(served.stub, name)(kind(id="a"))
        seen.append(actions.State.Name(answer.changed.action.status.state))
    assert [
        "STATE_PAUSED", "STATE_ACTIVE", "STATE_ACTIVE", "STATE_CANCELLED", "STATE_ACTIVE",
    ] == seen  # fmt: skip


async def test_a_pause_has_a_reason_and_an_end(served: Served) -> None:
    """A time, or so long after now; and those that it paused are found by the reason."""
    await served.create("a")
    end = write_time(datetime(2090, 1, 1, tzinfo=UTC))
    answer = await served.stub.Pause(pb.PauseRequest(id="a", reason="the move", until_time=end))
    status = answer.changed.action.status
    assert ("the move", end) == (status.reason, status.paused_until)
    longer = pb.PauseRequest(id="a", until_after=Duration(seconds=60))
    status = (await served.stub.Pause(longer)).changed.action.status
    assert not status.HasField("reason")
    assert status.paused_until.seconds < end.seconds
    with pytest.raises(grpc.aio.AioRpcError, match="must be in the future"):
        await served.stub.Pause(pb.PauseRequest(id="a", until_after=Duration()))


async def test_delete_says_whether_an_attempt_was_asked_to_end(served: Served) -> None:
    """Here nothing runs: the action is cancelled, and nobody was asked."""
    await served.create("a")
    answer = await served.stub.Delete(pb.DeleteRequest(id="a", running=True))
    assert actions.STATE_CANCELLED == answer.changed.action.status.state
    assert not answer.changed.asked
    asked = ChangeResult(action=await served.app.scheduler.get("a"), asked=True)
    assert write_changed(asked, "local").asked


async def test_list_filters_and_pages(served: Served) -> None:
    """Every filter narrows the listing; `next` continues it."""
    await served.create("a1", queue="mail", labels={"k": "v"})
    early = actions.StartPolicy(start_at=write_time(datetime(2090, 1, 1, tzinfo=UTC)))
    await served.create("a2", start_policy=early)
    await served.create("b1")
    await served.stub.Pause(pb.PauseRequest(id="b1"))

    async def ids(**fields: Any) -> list[str]:
        answer = await served.stub.List(pb.ListRequest(**fields))
        return [action.meta.id for action in answer.actions]

    assert ["a1", "a2", "b1"] == await ids()
    assert ["a1"] == await ids(queue="mail")
    assert ["a1"] == await ids(labels={"k": "v"})
    assert ["a1", "a2"] == await ids(id_prefix="a")
    assert ["b1"] == await ids(states=[actions.STATE_PAUSED])
    assert ["a2"] == await ids(due_before=write_time(datetime(2095, 1, 1, tzinfo=UTC)))
    first = await served.stub.List(pb.ListRequest(limit=2))
    assert ["b1"] == await ids(limit=2, after=first.next)
    assert not (await served.stub.List(pb.ListRequest())).HasField("next")


async def test_a_page_that_would_be_too_large_is_shorter(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No message is larger than its bound; the pages still hold everything, once."""
    monkeypatch.setattr(service_module, "MESSAGE_BYTES_MAX", 500)
    for number in range(10):
        await served.create(f"n{number}")
    found: list[str] = []
    after, pages = None, 0
    while True:
        page = await served.stub.List(pb.ListRequest(after=after))
        found += [action.meta.id for action in page.actions]
        pages += 1
        if not page.HasField("next"):
            break
        after = page.next
    assert [f"n{number}" for number in range(10)] == found
    assert pages > 2


async def test_bulk_answers_each_in_order(served: Served) -> None:
    """A bad one spoils no other; each has its own answer."""
    request = pb.CreateManyRequest(
        actions=[
            pb.CreateRequest(id="a", spec=spec_of()),
            pb.CreateRequest(id="b", spec=spec_of(priority=99)),
            pb.CreateRequest(id="a", spec=spec_of()),
            pb.CreateRequest(id="bad id", spec=spec_of()),
            pb.CreateRequest(id="c"),
            pb.CreateRequest(id="d", spec=spec_of(), idempotency_key="k"),
        ]
    )
    answer = await served.stub.CreateMany(request)
    told = [result.problem.code or result.created.meta.id for result in answer.results]
    assert ["a", "invalid_spec", "already_exists", "invalid_spec", "invalid_spec", "d"] == told
    assert "spec.priority" == answer.results[1].problem.fields["path"]
    assert answer.results[0].created.scheduled_at.seconds > 0
    again = await served.stub.CreateMany(pb.CreateManyRequest(actions=[request.actions[5]]))
    assert again.results[0].created.repeated


async def test_attempts_are_shown_newest_first(served: Served) -> None:
    """With outcome, error and times; cut when they would not fit."""
    spec = actions.Spec(
        action=actions.Action(mock=actions.MockAction(fail=1)),
        send_policy=actions.SendPolicy(
            send_once_policy=actions.SendOncePolicy(retry_policy=actions.RetryPolicy(max_retries=1))
        ),
    )
    await served.stub.Create(pb.CreateRequest(id="a", spec=spec))
    async with working(served):
        last = [answer async for answer in served.stub.Watch(pb.WatchRequest(id="a"))][-1]
    assert actions.STATE_DONE == last.action.status.state
    assert (2, 1, 1) == (
        last.action.status.attempts_counter,
        last.action.status.successful_attempts_counter,
        last.action.status.failed_attempts_counter,
    )
    assert 2 == last.action.status.last_attempt_status.attempt_no
    answer = await served.stub.Attempts(pb.AttemptsRequest(id="a"))
    assert ["succeeded", "failed"] == [attempt.outcome for attempt in answer.attempts]
    assert "mock failure 1 of 1" == answer.attempts[1].error
    assert not answer.truncated
    assert 1 == len((await served.stub.Attempts(pb.AttemptsRequest(id="a", limit=1))).attempts)


async def test_attempts_beyond_the_bound_are_left_out(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer says that it is not all."""
    await served.stub.Create(pb.CreateRequest(id="a", spec=actions.Spec(action=spec_of().action)))
    async with working(served):
        _ = [answer async for answer in served.stub.Watch(pb.WatchRequest(id="a"))]
    monkeypatch.setattr(service_module, "MESSAGE_BYTES_MAX", 10)
    answer = await served.stub.Attempts(pb.AttemptsRequest(id="a"))
    assert (0, True) == (len(answer.attempts), answer.truncated)


async def test_watch_shows_every_state_until_the_end(served: Served) -> None:
    """The action now, then each change, then the stream ends by itself."""
    await served.create("a")
    call = served.stub.Watch(pb.WatchRequest(id="a"))
    states = []
    async for answer in call:
        states.append(actions.State.Name(answer.action.status.state))
        if len(states) == 1:
            await served.stub.Pause(pb.PauseRequest(id="a"))
        if len(states) == 2:
            await served.stub.Delete(pb.DeleteRequest(id="a"))
    assert ["STATE_ACTIVE", "STATE_PAUSED", "STATE_CANCELLED"] == states
    assert grpc.StatusCode.OK == await call.code()


async def test_watch_ends_with_its_caller(served: Served) -> None:
    """A caller that goes away leaves no watcher behind; others are served on."""
    await served.create("a")
    looks = 0
    get = served.app.store.actions.get

    async def counting(id: str) -> Any:
        nonlocal looks
        looks += 1
        return await get(id)

    served.app.store.actions.get = counting  # type: ignore[method-assign]
    call = served.stub.Watch(pb.WatchRequest(id="a"))
    async for _ in call:
        break
    call.cancel()
    await served.stub.Get(pb.GetRequest(id="a"))
    before = -1
    async with asyncio.timeout(20):  # the server hears of it a little later
        while before != looks:
            before = looks
            await asyncio.sleep(1.5)  # who watches looks once a second


async def test_a_deadline_of_the_caller_ends_the_call(served: Served) -> None:
    """A watch with a time limit ends with it."""
    await served.create("a")
    call = served.stub.Watch(pb.WatchRequest(id="a"), timeout=0.3)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        _ = [answer async for answer in call]
    assert grpc.StatusCode.DEADLINE_EXCEEDED == caught.value.code()


async def test_a_burst_on_a_new_connection_is_answered(served: Served) -> None:
    """Hundreds of calls at once, before client and server know each other."""
    await served.create("a")
    for _ in range(3):
        async with grpc.aio.insecure_channel(
            served.address, options=(("grpc.use_local_subchannel_pool", 1),)
        ) as channel:
            stub: Any = scheduler_pb2_grpc.SchedulerServiceStub(channel)
            answers = await asyncio.gather(*(stub.Get(pb.GetRequest(id="a")) for _ in range(800)))
        assert 800 == len(answers)


async def test_calls_that_are_given_up_leave_the_store_sound(served: Served) -> None:
    """Deadlines that pass at any moment of a change: what was acknowledged is there, what was not
    may be, and with its key it can be asked for again."""
    await give_up_calls(served)


async def test_calls_that_are_given_up_leave_postgres_sound(served_by_postgres: Served) -> None:
    """The same, with a pool of connections."""
    await give_up_calls(served_by_postgres)


async def give_up_calls(served: Served) -> None:
    async def create(number: int) -> bool:
        request = pb.CreateRequest(id=f"n{number}", spec=spec_of(), idempotency_key="k")
        try:
            # The first of each score is too short for any machine.
            await served.stub.Create(request, timeout=0.000_001 + 0.0005 * (number % 20))
        except grpc.aio.AioRpcError as exc:
            refusals.add(exc.code())
            return False
        return True

    refusals: set[grpc.StatusCode] = set()
    acknowledged = [number for number in range(200) if await create(number)]
    found = {action.meta.id for action in (await all_of(served))}
    assert {f"n{number}" for number in acknowledged} <= found
    assert grpc.StatusCode.DEADLINE_EXCEEDED in refusals
    # The server, cut off by the same deadline, may say so first.
    assert refusals <= {grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}
    for number in range(200):
        await served.stub.Create(
            pb.CreateRequest(id=f"n{number}", spec=spec_of(), idempotency_key="k")
        )
    assert 200 == len(await all_of(served))
    assert [] == list(await served.app.store.installation.doctor())


async def all_of(served: Served) -> list[actions.ScheduledAction]:
    return list((await served.stub.List(pb.ListRequest(limit=1000))).actions)


async def test_health_is_serving(served: Served) -> None:
    """For the server and for the service."""
    stub: Any = health_pb2_grpc.HealthStub(served.channel)

    async def status(name: str) -> str:
        answer: Any = await stub.Check(health_pb2.HealthCheckRequest(service=name))
        return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)

    assert ["SERVING", "SERVING"] == [await status(""), await status(SERVICE.full_name)]


async def test_health_without_a_store_is_not_serving(served: Served) -> None:
    """As soon as the next look finds none."""

    async def gone() -> None:
        raise StoreUnavailable("no database")

    served.app.store.installation.now = gone  # type: ignore[method-assign, assignment]
    stop = asyncio.Event()
    server = GrpcServer(served.app.scheduler, ServerConfig(grpc_port=0))
    serving = asyncio.create_task(server.serve(stop=stop))
    async with grpc.aio.insecure_channel(server.address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        answer = await stub.Check(health_pb2.HealthCheckRequest(service=""))
    stop.set()
    await serving
    assert health_pb2.HealthCheckResponse.NOT_SERVING == answer.status


async def test_a_taken_port_is_told(served: Served) -> None:
    """Two servers do not share a port unnoticed."""
    port = int(served.address.rpartition(":")[2])
    with pytest.raises(ConfigurationError, match="grpc_port"):
        GrpcServer(served.app.scheduler, ServerConfig(grpc_port=port))


def test_every_rpc_has_a_method() -> None:
    """And the scheduler's service has no rpc that nobody answers."""
    missing = [m.name for m in SERVICE.methods if not hasattr(SchedulerRpcs, snake(m.name))]
    assert [] == missing
    assert 15 == len(SERVICE.methods)


def snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


def test_the_fast_parser_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pure Python parser has other rules; with it the server does not start."""
    require_upb()
    monkeypatch.setattr("google.protobuf.internal.api_implementation.Type", lambda: "python")
    with pytest.raises(ConfigurationError, match="upb"):
        require_upb()


class working:  # noqa: N801 - reads as a verb
    """A worker beside the server."""

    def __init__(self, served: Served) -> None:
        self._app = served.app
        self._stop = asyncio.Event()

    async def __aenter__(self) -> None:
        self._working = asyncio.create_task(self._app.work(self._stop))

    async def __aexit__(self, *_: object) -> None:
        self._stop.set()
        async with asyncio.timeout(timedelta(seconds=30).total_seconds()):
            await self._working
