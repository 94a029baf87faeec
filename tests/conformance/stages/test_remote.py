"""A stage behind gRPC (stages.md 4.5): what it may answer, and what is made of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from google.protobuf.wrappers_pb2 import StringValue

from gnomon.contracts.store.entities import Entity, StateWrite
from gnomon.model.errors import ConfigurationError
from gnomon.model.secret import Secret
from gnomon.stages.bound_stage import OutageError, RemoteStage, StageInput
from gnomon.stages.documents import LoadedDocument
from gnomon.stages.remote import GrpcStage
from gnomon.stages.stage_info import StageInfo
from gnomon.stages.wire import write_time
from gnomon.testing.stage_bench import StageBench
from gnomon.v1 import stage_pb2 as pb
from tests.conformance.gateway.recorder import Recorder
from tests.conformance.stages.given import stage
from tests.fixtures.authority import Authority
from tests.fixtures.strange_stage import StrangeStage, strange_stage

SHOULD_PROCESS = pb.STAGE_CAPABILITY_SHOULD_PROCESS
AFTER_SAVE = pb.STAGE_CAPABILITY_AFTER_SAVE
CALLERS: list[GrpcStage] = []  # of the test that runs


@pytest.fixture
async def strange() -> AsyncIterator[StrangeStage]:
    async with strange_stage() as found:
        yield found
        for remote in CALLERS:
            await remote.close()
        CALLERS.clear()


async def described(strange: StrangeStage, **options: Any) -> GrpcStage:
    options = {"tls": False, **options}
    remote = GrpcStage("ad", "strange", strange.address, **options)
    CALLERS.append(remote)
    assert await remote.describe(Recorder())
    return remote


async def bench_of(
    strange: StrangeStage,
    *stages: Any,
    entities: dict[str, Any],
    remote: GrpcStage | None = None,
) -> StageBench:
    bench = StageBench("ad", *stages)
    bench.stages.serve(remote or await described(strange))
    for entity_id, document in entities.items():
        await bench.put(entity_id, document)
    await bench.run_due()
    return bench


# -- what it says of itself -----------------------------------------------------------------------


async def test_it_describes_itself(strange: StrangeStage) -> None:
    """Revision, paths, batch and capabilities are the service's; limits are the caller's."""
    strange.description = pb.DescribeResponse(
        name="strange", kind="ad", revision=3, watch=["a", "b.c"], writes=["*"], max_batch=10_000,
        capabilities=[AFTER_SAVE],
    )  # fmt: skip
    remote = await described(strange, parallel=4, rate="50/s", alongside=True)
    info = remote.info
    assert isinstance(remote, RemoteStage)
    assert (3, ("a", "b.c"), ("",)) == (info.revision, info.reach.watch, info.reach.writes)
    assert (1000, 4, 50.0, True) == (info.batch, info.parallel, info.rate, info.alongside)
    assert info.wants_saves
    assert not await remote.describe(Recorder())  # nothing is new
    await remote.close()


@pytest.mark.parametrize(
    ("described_s", "option", "found"),
    [
        (5, {}, timedelta(seconds=5)),
        (5, {"debounce": timedelta(seconds=1)}, timedelta(seconds=1)),
        (5, {"debounce": timedelta(0)}, timedelta(0)),
        (0, {}, timedelta(0)),
        (-5, {}, timedelta(0)),
        (1_000_000, {}, timedelta(days=1)),
    ],
)
async def test_how_long_it_settles_is_the_services_unless_the_caller_says(
    strange: StrangeStage, described_s: int, option: dict[str, Any], found: timedelta
) -> None:
    """From nothing to a day; and no entity is given to it before."""
    strange.description.debounce.seconds = described_s
    remote = await described(strange, **option)
    assert found == remote.info.debounce

    bench = await bench_of(strange, entities={"a": {"n": 1}}, remote=remote)
    assert (found == timedelta(0)) == bool(strange.given)
    await bench.advance(seconds=found.total_seconds())
    assert {"a"} == {item.entity.id for request in strange.given for item in request.items}


async def test_before_it_has_described_itself_everything_is_kept_for_it(
    strange: StrangeStage,
) -> None:
    """It is not called and not declared; what changes meanwhile is queued, whatever it is."""
    remote = GrpcStage("ad", "strange", strange.address, tls=False)
    bench = StageBench("ad")
    bench.stages.serve(remote)
    await bench.put("a", {"n": 1})
    await bench.run_due()
    assert ([], 0) == (strange.given, len(await bench.stages.stages()))
    [row] = (await bench.explain("a")).stages
    assert ("strange", 0) == (row.stage, row.attempts)
    with pytest.raises(OutageError, match="described"):
        await remote.process([])

    assert await remote.describe(Recorder())
    worker = bench.worker
    worker.reconciler.redescribed("strange")
    await worker.reconciler.declare()
    await bench.run_due()
    assert {"a"} == {item.entity.id for request in strange.given for item in request.items}
    assert [("strange", 1)] == [(each.name, each.revision) for each in await bench.stages.stages()]
    await remote.close()


async def test_a_raised_revision_is_declared_and_sweeps(strange: StrangeStage) -> None:
    """Learned while everything goes on."""
    remote = await described(strange)
    bench = await bench_of(strange, entities={"a": {"n": 1}, "b": {"n": 2}}, remote=remote)
    before = len(strange.given)
    strange.description.revision = 2
    assert await remote.describe(Recorder())
    bench.worker.reconciler.redescribed("strange")
    await bench.worker.reconciler.declare()
    await bench.run_due()
    again = [item for request in strange.given[before:] for item in request.items]
    assert {"a", "b"} == {item.entity.id for item in again}
    assert {2} == {request.revision for request in strange.given[before:]}
    assert all("backfill r2" in item.reasons[0] for item in again)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"name": "another"}, "the service is stage 'another'"),
        ({"kind": "order"}, "the service looks after the kind 'order', not 'ad'"),
        ({"kind": ""}, "the service looks after the kind '', not 'ad'"),
        ({"writes": ["k"]}, "it does not write m any more"),
        ({"writes": []}, "it does not write m any more"),
        ({"writes": ["m.inner"]}, "it does not write m any more"),
        ({"revision": 0}, "must be at least 1"),
        ({"watch": ["p"] * 1001}, "more than 1000 paths"),
    ],
)
async def test_a_description_that_cannot_be_is_refused(
    strange: StrangeStage, change: dict[str, Any], problem: str
) -> None:
    """An alarm, once; it is not called until it is itself again, and then it is."""
    remote = await described(strange)
    known, good = remote.info, pb.DescribeResponse()
    good.CopyFrom(strange.description)
    for name, value in change.items():
        strange.description.ClearField(name)  # type: ignore[arg-type]
        if isinstance(value, list):
            getattr(strange.description, name).extend(value)
        else:
            setattr(strange.description, name, value)
    recorder = Recorder()
    assert not await remote.describe(recorder)
    assert not await remote.describe(recorder)
    [(event, fields)] = recorder.events
    assert ("stage_refused", "strange") == (event, fields["stage"])
    assert problem in str(fields["problem"])
    assert known == remote.info
    with pytest.raises(OutageError, match="refused"):
        await remote.process([])
    strange.description = good
    assert await remote.describe(recorder)
    assert [] == await remote.process([])
    await remote.close()


async def test_more_writes_are_no_reason_to_refuse(strange: StrangeStage) -> None:
    """The graph of all stages follows."""
    other = stage("zone", watch="k")
    remote = await described(strange)
    bench = await bench_of(strange, other, entities={"a": {"n": 1}}, remote=remote)
    before = bench.worker.reconciler.router.graph.rank
    assert before["strange"] > before["zone"]
    strange.description.writes.append("k")
    assert await remote.describe(Recorder())
    bench.worker.reconciler.redescribed("strange")
    rank = bench.worker.reconciler.router.graph.rank
    assert rank["strange"] < rank["zone"]
    strange.process = lambda request: strange.answered(request, merge_patch=b'{"k": 5}')
    await bench.patch("a", {"n": 2})
    await bench.run_due()
    assert 5 == bench["a"]["k"]
    assert "k" in str(other.given[-1].reasons)


# -- what it answers ------------------------------------------------------------------------------


async def test_an_item_has_all_that_a_stage_is_shown(strange: StrangeStage) -> None:
    """Document, version, time, reasons, attempt; and its own state only."""
    noisy = stage("noisy", watch="other")
    bench = await bench_of(strange, noisy, entities={"a": {"n": "ä"}})
    [request] = strange.given
    [item] = request.items
    assert ("strange", 1) == (request.stage, request.revision)
    assert ("a", 1, 1, '{"n":"ä"}') == (
        item.entity.id, item.entity.epoch, item.entity.version, item.entity.document.decode(),
    )  # fmt: skip
    assert write_time(bench.now) == item.now
    assert (1, False) == (item.attempt, item.HasField("state"))
    assert "change v1 by user" in item.reasons[0]


async def test_patch_state_timer_and_note_are_saved(strange: StrangeStage) -> None:
    """All that `Update` can say, and a JSON state comes back with its version."""
    at = datetime(2026, 3, 1, tzinfo=UTC)
    strange.process = lambda request: strange.answered(
        request, merge_patch=b'{"m": {"x": 1}}', state=pb.StageState(json=b'{"b": 1, "a": 2}'),
        wake=write_time(at), note="so it is",
    )  # fmt: skip
    bench = await bench_of(strange, entities={"a": {"n": 1}})
    assert {"n": 1, "m": {"x": 1}} == bench["a"]
    [row] = (await bench.explain("a")).stages
    assert (at, "so it is") == (row.timer_at, row.last_note)
    _, state = await bench.stages.entities.state("ad", "a", "strange")
    assert state is not None
    assert (b'{"a":2,"b":1}', 1, 1, None) == (
        state.body, state.version, state.revision, state.type,
    )  # fmt: skip

    strange.process = lambda request: strange.answered(
        request, json_patch=b'[{"op": "replace", "path": "/m", "value": null}]', cancel_timer=True
    )
    await bench.patch("a", {"n": 2})
    await bench.run_due()
    assert {"n": 2, "m": None} == bench["a"]
    assert () == (await bench.explain("a")).stages
    assert (1, b'{"a":2,"b":1}') == (
        strange.given[-1].items[0].state.version, strange.given[-1].items[0].state.json,
    )  # fmt: skip


async def test_a_message_is_carried_and_never_looked_into(strange: StrangeStage) -> None:
    """The type need not be known here: its name and its bytes are all there is."""
    carried = AnyMessage(type_url="type.example/shop.v1.Angles", value=b"\xff\x00 no protobuf")
    strange.process = lambda request: strange.answered(
        request, state=pb.StageState(message=carried)
    )
    bench = await bench_of(strange, entities={"a": {"n": 1}})
    _, state = await bench.stages.entities.state("ad", "a", "strange")
    assert state is not None
    assert ("shop.v1.Angles", b"\xff\x00 no protobuf") == (state.type, state.body)
    await bench.patch("a", {"n": 2})
    await bench.run_due()
    shown = strange.given[-1].items[0].state.message
    assert ("type.googleapis.com/shop.v1.Angles", carried.value) == (shown.type_url, shown.value)


async def test_a_state_changed_from_outside_wakes_it(strange: StrangeStage) -> None:
    """The stage sees what was put there, and that it was a compare-and-set."""
    bench = await bench_of(strange, entities={"a": {"n": 1}})
    message = StringValue(value="loaded")
    write = StateWrite(
        body=message.SerializeToString(), revision=1, type="google.protobuf.StringValue"
    )
    assert await bench.stages.entities.swap_state("ad", "a", "strange", write, version=0)
    await bench.run_due()
    item = strange.given[-1].items[0]
    unpacked = StringValue()
    assert item.state.message.Unpack(unpacked)
    assert ("loaded", ["state-cas"]) == (unpacked.value, list(item.reasons))


@pytest.mark.parametrize(
    ("failure", "status", "error"),
    [
        (pb.Failure(message="slow"), "ready", "RemoteError: slow"),
        (
            pb.Failure(
                kind=pb.FAILURE_KIND_RETRY, message="busy", retry_after=Duration(seconds=300)
            ),
            "ready",
            "RetryLater: busy",
        ),
        (
            pb.Failure(kind=pb.FAILURE_KIND_QUARANTINE, message="a person"),
            "quarantined",
            "Quarantine: a person",
        ),
    ],
)
async def test_a_failure_is_that_of_its_entity(
    strange: StrangeStage, failure: pb.Failure, status: str, error: str
) -> None:
    """The others of the call are saved."""

    def process(request: pb.ProcessRequest) -> pb.ProcessResponse:
        answer = strange.answered(request, merge_patch=b'{"m": 1}')
        for outcome in answer.outcomes:
            if outcome.entity_id == "bad":
                outcome.failure.CopyFrom(failure)
        return answer

    strange.process = process
    bench = await bench_of(strange, entities={"bad": {"n": 1}, "good": {"n": 1}})
    assert 1 == bench["good"]["m"]
    [row] = (await bench.explain("bad")).stages
    assert (status, error, 1) == (row.status, row.last_error, row.attempts)
    if failure.HasField("retry_after"):
        assert bench.now + timedelta(minutes=5) == row.next_try_at


def outcome(request: pb.ProcessRequest, **fields: Any) -> pb.ProcessResponse:
    """A single answer, with some of it replaced."""
    item = request.items[0]
    given = {"entity_id": item.entity.id, "version": item.entity.version, "update": pb.Update()}
    return pb.ProcessResponse(outcomes=[pb.Outcome(**{**given, **fields})])


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (lambda r: outcome(r, entity_id="other"), "mixed up"),
        (lambda r: outcome(r, version=9), "mixed up"),
        (lambda _: pb.ProcessResponse(), "answered 0 of 1"),
        (lambda r: outcome(r, update=None), "neither update nor failure"),
        (lambda r: outcome(r, update=pb.Update(merge_patch=b"[]")), "merge_patch must be"),
        (lambda r: outcome(r, update=pb.Update(merge_patch=b"{")), "merge_patch must be"),
        (lambda r: outcome(r, update=pb.Update(merge_patch=b"[" * 5000)), "merge_patch must be"),
        (lambda r: outcome(r, update=pb.Update(merge_patch=b"")), "merge_patch must be"),
        (lambda r: outcome(r, update=pb.Update(json_patch=b"{}")), "json_patch must be"),
        (lambda r: outcome(r, update=pb.Update(state=pb.StageState())), "a message or json"),
        (lambda r: outcome(r, update=pb.Update(state=pb.StageState(json=b"{"))), "must be JSON"),
        (
            lambda r: outcome(r, update=pb.Update(state=pb.StageState(message=AnyMessage()))),
            "must name a protobuf message",
        ),
        (
            lambda r: outcome(r, update=pb.Update(wake=Timestamp(seconds=1 << 60))),
            "between the years",
        ),
        (lambda _: b"\xff\xff", "no ProcessResponse"),
        (lambda _: b"x" * (17 << 20), "RESOURCE_EXHAUSTED"),
        (lambda _: grpc.StatusCode.INVALID_ARGUMENT, "this is INVALID_ARGUMENT"),
    ],
)
async def test_a_bad_answer_is_a_failure_and_nothing_is_saved(
    strange: StrangeStage, answer: Any, error: str
) -> None:
    """It is told, counted and tried again; the entity stays as it was."""
    strange.process = answer
    bench = await bench_of(strange, entities={"a": {"n": 1}})
    [row] = (await bench.explain("a")).stages
    assert error in (row.last_error or "")
    assert ("ready", 1, 1) == (row.status, row.attempts, bench.version("a"))


async def test_too_deep_a_patch_is_a_bug_of_the_stage(strange: StrangeStage) -> None:
    """Nothing recurses into it; the others go on."""
    deep = b'{"m": ' * 200 + b"1" + b"}" * 200
    strange.process = lambda request: strange.answered(request, merge_patch=deep)
    bench = await bench_of(strange, entities={"a": {"n": 1}})
    [row] = await bench.parked()
    assert "nested deeper than 32" in (row.error or "")


async def test_one_wrong_echo_fails_one_entity_alone(strange: StrangeStage) -> None:
    """The batch is not believed, and halved until the culprit is by itself."""

    def process(request: pb.ProcessRequest) -> pb.ProcessResponse:
        answer = strange.answered(request, merge_patch=b'{"m": 1}')
        for each in answer.outcomes:
            if each.entity_id == "e7":
                each.entity_id = "e8"
        return answer

    strange.process = process
    bench = await bench_of(strange, entities={f"e{n}": {"n": n} for n in range(20)})
    assert [7] == [n for n in range(20) if "m" not in bench[f"e{n}"]]
    [row] = (await bench.explain("e7")).stages
    assert "mixed up" in (row.last_error or "")


async def test_large_entities_travel_in_several_calls(strange: StrangeStage) -> None:
    """No call is larger than what services take by default, whatever the batch is."""
    remote, text = await described(strange), msgspec.json.encode({"t": "ä" * 300_000}).decode()
    now = datetime(2026, 1, 1, tzinfo=UTC)
    views = [
        StageInput(
            Entity(key=f"ad/e{number}", shard=0, epoch=1, version=1, doc=text, changed_at=now),
            LoadedDocument(text),
            {},
            now,
        )
        for number in range(9)
    ]
    assert 9 == len(await remote.process(views))
    assert [5, 4] == [len(request.items) for request in strange.given]


# -- whether it is wanted -------------------------------------------------------------------------


async def test_without_the_capability_it_is_not_asked(strange: StrangeStage) -> None:
    """What it watches decides alone."""
    bench = await bench_of(strange, entities={"a": {"n": 1}})
    await bench.patch("a", {"unwatched": 1})
    await bench.run_due()
    assert (0, 1) == (len(strange.asked), len(strange.given))


async def test_it_is_asked_in_batches(strange: StrangeStage) -> None:
    """No, now or later, by position."""
    strange.description.capabilities.append(SHOULD_PROCESS)
    later = datetime(2026, 2, 1, tzinfo=UTC)

    def should_process(request: pb.ShouldProcessRequest) -> pb.ShouldProcessResponse:
        answers = {"no": pb.Answer(), "now": pb.Answer(process=True)}
        answers["later"] = pb.Answer(wake=write_time(later))
        return pb.ShouldProcessResponse(answers=[answers[item.entity.id] for item in request.items])

    strange.should_process = should_process
    bench = await bench_of(strange, entities={"no": {}, "now": {}, "later": {}})
    assert 3 == sum(len(request.items) for request in strange.asked)
    assert len(strange.asked) < 3
    assert ["now"] == [item.entity.id for request in strange.given for item in request.items]
    [row] = (await bench.explain("later")).stages
    assert ("sleeping", later) == (row.status, row.timer_at)
    assert () == (await bench.explain("no")).stages


async def test_who_does_not_answer_an_ask_in_time_gets_the_entity(
    strange: StrangeStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Missing the deadline is an error of the ask, and an entity is never lost by one."""
    monkeypatch.setattr("gnomon.stages.remote.ASK_TIMEOUT_S", 0.1)
    strange.description.capabilities.append(SHOULD_PROCESS)
    strange.should_process = lambda _: asyncio.sleep(5, pb.ShouldProcessResponse())
    await bench_of(strange, entities={"a": {"n": 1}})
    assert (1, 1) == (len(strange.asked), len(strange.given))


@pytest.mark.parametrize("answers", [0, 2])
async def test_a_wrong_number_of_answers_is_no_answer(strange: StrangeStage, answers: int) -> None:
    """The entity is processed."""
    strange.description.capabilities.append(SHOULD_PROCESS)
    strange.should_process = lambda _: pb.ShouldProcessResponse(answers=[pb.Answer()] * answers)
    await bench_of(strange, entities={"a": {"n": 1}})
    assert 1 == len(strange.given)


# -- outages --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "status",
    [
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.UNIMPLEMENTED,
    ],
)
async def test_an_outage_burns_no_attempts(strange: StrangeStage, status: grpc.StatusCode) -> None:
    """It is left alone as long as it asked for; then everything goes on."""
    strange.process = lambda _: status
    bench = await bench_of(strange, entities={"a": {"n": 1}})
    await bench.advance(seconds=6)
    assert 1 == len(strange.given)  # 7 s, it said
    [row] = (await bench.explain("a")).stages
    assert ("ready", 0) == (row.status, row.attempts)
    assert f"the stage is away: Process answered {status.name}" in (row.last_error or "")
    strange.process = lambda request: strange.answered(request, merge_patch=b'{"m": 1}')
    await bench.advance(seconds=60)
    assert (1, 1) == (bench["a"]["m"], strange.given[-1].items[0].attempt)


async def test_a_missed_deadline_is_an_outage(strange: StrangeStage) -> None:
    """The deadline is the service's own, and no longer than ours."""
    strange.description.deadline.FromMilliseconds(100)
    strange.process = lambda _: asyncio.sleep(5, pb.ProcessResponse())
    bench = await bench_of(strange, entities={"a": {"n": 1}})
    [row] = (await bench.explain("a")).stages
    assert ("ready", 0) == (row.status, row.attempts)
    assert "DEADLINE_EXCEEDED" in (row.last_error or "")


async def test_a_stage_that_is_there_again_is_called_at_once(strange: StrangeStage) -> None:
    """The pause after an outage grows; who describes himself again after it need not wait."""
    remote = await described(strange)
    bench = await bench_of(strange, entities={}, remote=remote)
    assert strange.server is not None
    await strange.server.stop(None)
    await bench.put("a", {"n": 1})
    await bench.advance(minutes=5)  # the pauses have grown
    assert not await remote.describe(Recorder())
    strange.server = await strange.start()
    while not await remote.describe(Recorder()):  # gRPC connects again within a second
        await asyncio.sleep(0.05)
    bench.worker.reconciler.redescribed("strange")
    await bench.advance(seconds=1)
    assert 1 == len(strange.given)
    assert not await remote.describe(Recorder())


# -- after the save -------------------------------------------------------------------------------


async def test_saves_are_told_until_they_are_accepted(strange: StrangeStage) -> None:
    """What is not named comes again, with the same key; a delete says so."""
    strange.description.capabilities.append(AFTER_SAVE)
    strange.process = lambda request: strange.answered(
        request, merge_patch=b'{"m": 1}', state=pb.StageState(json=b"7")
    )
    strange.after_save = lambda _: pb.AfterSaveResponse()
    bench = await bench_of(strange, entities={"a": {"n": 1}})
    [saved] = strange.told[0].saved
    assert ("a", 2, b'{"m":1,"n":1}', "stage:strange", ["m"], False) == (
        saved.entity.id, saved.entity.version, saved.entity.document, saved.author,
        list(saved.changed), saved.deleted,
    )  # fmt: skip
    assert b"7" == saved.state.json
    assert str(bench.published[0].root) == saved.root
    strange.after_save = strange._accepted
    await bench.advance(minutes=1)
    told = len(strange.told)
    assert [saved.key] == [each.key for each in strange.told[-1].saved]
    await bench.advance(minutes=10)
    assert told == len(strange.told)
    await bench.delete("a")
    await bench.advance(minutes=1)
    [gone] = strange.told[-1].saved
    assert (True, b"") == (gone.deleted, gone.entity.document)


async def test_saves_wait_while_it_is_away(strange: StrangeStage) -> None:
    """Put off, and none is lost."""
    strange.description.capabilities.append(AFTER_SAVE)
    strange.process = lambda request: strange.answered(request, merge_patch=b'{"m": 1}')
    strange.after_save = lambda _: grpc.StatusCode.UNAVAILABLE
    bench = await bench_of(strange, entities={"a": {"n": 1}})
    assert strange.told
    strange.after_save = strange._accepted
    await bench.advance(minutes=1)
    assert ["a"] == [saved.entity.id for saved in strange.told[-1].saved]


# -- the way to it --------------------------------------------------------------------------------


async def test_both_sides_may_ask_for_certificates(tmp_path: Path) -> None:
    """TLS by default; with an authority of one's own and a certificate of the caller's."""
    authority = Authority(tmp_path)
    server, caller = authority.issue("IP:127.0.0.1"), authority.issue("DNS:gnomon")
    credentials = grpc.ssl_server_credentials(
        [(server.key.read_bytes(), server.certificate.read_bytes())],
        root_certificates=authority.file.read_bytes(), require_client_auth=True,
    )  # fmt: skip
    async with strange_stage(credentials) as strange:
        trusted = {"tls": True, "ca_file": str(authority.file)}
        ours = {"certificate_file": str(caller.certificate), "key_file": str(caller.key)}
        remote = await described(strange, **trusted, **ours)
        await remote.close()
        for options in (trusted, {"tls": True, **ours}, {"tls": False}):
            connection: Any = options
            remote = GrpcStage("ad", "strange", strange.address, **connection)
            recorder = Recorder()
            assert not await remote.describe(recorder)
            assert ["stage_undescribed"] == [name for name, _ in recorder.events]
            await remote.close()


async def test_a_token_is_sent_and_never_told(strange: StrangeStage) -> None:
    """Not even when the service repeats it."""
    remote = await described(strange, token=Secret("canary-token"))
    assert "Bearer canary-token" == strange.metadata[0]["authorization"]
    strange.process, strange.says = lambda _: grpc.StatusCode.UNAVAILABLE, " to canary-token"
    bench = await bench_of(strange, entities={"a": {"n": 1}}, remote=remote)
    [row] = (await bench.explain("a")).stages
    assert "this is UNAVAILABLE to ***" in (row.last_error or "")
    assert "canary" not in repr(remote)


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"address": "nowhere"}, "stage strange.address"),
        ({"address": "host:99999"}, "stage strange.address"),
        ({"address": "unix:/tmp/x:1"}, "stage strange.address"),
        ({"name": "no name"}, "stage no name.name"),
        ({"parallel": 0}, "stage strange.parallel"),
        ({"rate": "fast"}, "stage strange.rate"),
        ({"ca_file": "/nowhere"}, "stage strange.ca_file"),
        ({"tls": False, "ca_file": "/nowhere"}, "stage strange.tls"),
        ({"key_file": "/nowhere"}, "stage strange.key_file"),
    ],
)
def test_a_bad_endpoint_is_refused_at_once(options: dict[str, Any], path: str) -> None:
    """The option is named."""
    given = {"kind": "ad", "name": "strange", "address": "127.0.0.1:1", **options}
    with pytest.raises(ConfigurationError) as refused:
        GrpcStage(**given)
    assert path == refused.value.path


def test_an_unknown_stage_may_watch_everything() -> None:
    """And nothing is assumed about what it writes."""
    info: StageInfo = GrpcStage("ad", "strange", "h:1", tls=False).info
    assert (0, (), ()) == (info.revision, info.reach.watch, info.reach.writes)
