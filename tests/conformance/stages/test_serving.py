"""A Python stage served to others: the same stage here and elsewhere does the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.wrappers_pb2 import StringValue

from gnomon.contracts.store.queues import RowStatus
from gnomon.model.errors import ConfigurationError
from gnomon.model.secret import Secret
from gnomon.stages import EntityView, Quarantine, RetryLater, SavedVersion, Stage, Update, Wake
from gnomon.stages.bound_stage import OutageError
from gnomon.stages.remote import GrpcStage
from gnomon.stages.stage_server import StageServer, StageServerOptions, serve_stage
from gnomon.testing.stage_bench import StageBench
from tests.conformance.gateway.recorder import Recorder
from tests.conformance.stages.given import It, stage
from tests.fixtures.authority import Authority


class Both:
    """The same stage on a bench of its own, and behind gRPC on another one."""

    def __init__(self, remote: GrpcStage, local: Any) -> None:
        self.remote = remote
        self.here = StageBench("ad", local)
        self.there = StageBench("ad")
        self.there.stages.serve(remote)

    async def put(self, entity_id: str, document: Any) -> None:
        for bench in (self.here, self.there):
            await bench.put(entity_id, document)
            await bench.run_due()

    async def advance(self, **time: float) -> None:
        for bench in (self.here, self.there):
            await bench.advance(**time)


@asynccontextmanager
async def served(
    served_stage: Stage[Any, Any], *, options: StageServerOptions | None = None, **endpoint: Any
) -> AsyncIterator[GrpcStage]:
    server = StageServer("ad", served_stage, "127.0.0.1:0", options=options)
    await server.start()
    given = {
        "kind": "ad",
        "name": served_stage.name,
        "address": server.address,
        "tls": False,
        **endpoint,
    }
    remote = GrpcStage(**given)
    try:
        yield remote
    finally:
        await remote.close()
        await server.stop()


@asynccontextmanager
async def both(make: Any) -> AsyncIterator[Both]:
    async with served(make()) as remote:
        assert await remote.describe(Recorder())
        yield Both(remote, make())


def make_rich(**options: Any) -> Any:
    """Uses all that a stage may: an ask, a state, a timer, a note."""

    def ask(it: It) -> bool | Wake:
        if it.entity["n"] == "later":
            return Wake(it.now + timedelta(days=1))
        return bool(it.entity["n"] != "no")

    def process(it: It) -> Update[Any]:
        count = (it.state or 0) + 1
        return Update({"m": count}, state=count, wake=it.now + timedelta(hours=3), note="counted")

    return stage("rich", watch="n", writes="m", ask=ask, process=process, batch=10, **options)


async def test_it_is_described_as_it_is_declared() -> None:
    """Both capabilities only if the stage has them."""
    debounce = timedelta(milliseconds=1500)
    async with served(make_rich(revision=4, after=lambda _: None, debounce=debounce)) as remote:
        assert await remote.describe(Recorder())
        info = remote.info
        assert (4, 10, True) == (info.revision, info.batch, info.wants_saves)
        assert debounce == info.debounce
        assert (("n",), ("m",)) == (info.reach.watch, info.reach.writes)

    class Plain(Stage[dict[str, Any], None]):
        name = "plain"
        writes = ("*",)

        async def process(self, it: EntityView[dict[str, Any], None]) -> Update[None] | None:
            return None

    async with served(Plain()) as remote:
        assert await remote.describe(Recorder())
        assert (False, ("",)) == (remote.info.wants_saves, remote.info.reach.writes)


async def test_it_does_the_same_here_and_there() -> None:
    """Documents, states, timers, notes, over three hours."""
    async with both(make_rich) as two:
        for name in ("now", "no", "later"):
            await two.put(name, {"n": name})
        for hours in (0, 2, 2, 24):
            await two.advance(hours=hours)
            for name in ("now", "no", "later"):
                assert two.here[name] == two.there[name]
                here, there = await two.here.explain(name), await two.there.explain(name)
                assert [(row.status, row.timer_at, row.last_note) for row in here.stages] == [
                    (row.status, row.timer_at, row.last_note) for row in there.stages
                ]
        assert 2 < two.there["now"]["m"]


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (ValueError("never"), "RemoteError: ValueError: never"),
        (RetryLater("slow", after=timedelta(minutes=5)), "RetryLater: slow"),
        (Quarantine("a person"), "Quarantine: a person"),
    ],
)
async def test_failures_are_told_as_they_are(error: Exception, shown: str) -> None:
    """With the time to wait, and who needs a person needs one there, too."""

    def process(it: It) -> None:
        if it.id == "bad":
            raise error

    async with both(lambda: stage("failing", process=process, batch=8)) as two:
        await two.put("good", {})
        await two.put("bad", {})
        [here] = (await two.here.explain("bad")).stages
        [there] = (await two.there.explain("bad")).stages
        assert (shown, here.status, here.attempts) == (
            there.last_error, there.status, there.attempts,
        )  # fmt: skip
        if isinstance(error, RetryLater):
            assert here.next_try_at == there.next_try_at
        assert () == (await two.there.explain("good")).stages


async def test_a_failing_batch_is_halved_there_too() -> None:
    """The culprit ends alone."""

    class Poisoned(type(stage("poisoned", writes="ok", batch=64))):  # type: ignore[misc]
        async def process_many(self, its: Sequence[EntityView[Any, Any]]) -> Sequence[Any]:
            if any(it.id == "e3" for it in its):
                raise RuntimeError("poison")
            return [Update({"ok": True}) for _ in its]

    async with served(Poisoned()) as remote:
        await remote.describe(Recorder())
        bench = StageBench("ad")
        bench.stages.serve(remote)
        for number in range(10):
            await bench.put(f"e{number}", {})
        await bench.run_due()
        assert [3] == [n for n in range(10) if "ok" not in bench[f"e{n}"]]
        [row] = (await bench.explain("e3")).stages
        assert "UNKNOWN: RuntimeError: poison" in (row.last_error or "")


async def test_an_outage_behind_it_is_an_outage() -> None:
    """A stage that says it is away is left alone, and nothing counts."""

    class Away(type(stage("away"))):  # type: ignore[misc]
        async def process_many(self, its: Sequence[EntityView[Any, Any]]) -> Sequence[Any]:
            raise OutageError("the model is loading")

        async def process(self, it: EntityView[Any, Any]) -> Any:
            raise OutageError("the model is loading")

    async with served(Away()) as remote:
        await remote.describe(Recorder())
        bench = StageBench("ad")
        bench.stages.serve(remote)
        await bench.put("a", {})
        await bench.run_due()
        [row] = (await bench.explain("a")).stages
        assert 0 == row.attempts


async def test_a_message_of_its_own_type_is_its_state() -> None:
    """Declared by the stage, decoded there, only carried here."""

    class Typed(Stage[dict[str, Any], StringValue]):
        name = "typed"
        writes = ("m",)

        async def process(self, it: EntityView[dict[str, Any], StringValue]) -> Update[StringValue]:
            said = it.state.value if it.state else ""
            return Update({"m": said}, state=StringValue(value=f"{said}x"))

    async with both(Typed) as two:
        for number in range(3):
            await two.put("a", {"n": number, "m": "?"})
        assert two.here["a"] == two.there["a"]
        assert "x" in two.there["a"]["m"]


@asynccontextmanager
async def telling(after: Callable[[SavedVersion[Any, Any]], None]) -> AsyncIterator[StageBench]:
    """A bench with one stage that is elsewhere, and is told of its saves."""
    made = stage("telling", writes="m", process=lambda _: Update({"m": 1}), after=after)
    async with served(made) as remote:
        await remote.describe(Recorder())
        bench = StageBench("ad")
        bench.stages.serve(remote)
        yield bench


async def test_after_save_is_told_there() -> None:
    """What fails comes again."""
    told: list[SavedVersion[Any, Any]] = []

    def after(saved: SavedVersion[Any, Any]) -> None:
        told.append(saved)
        if len(told) == 1:
            raise ValueError("not now")

    async with telling(after) as bench:
        await bench.put("a", {})
        await bench.advance(minutes=1)
    assert ["a", "a"] == [saved.id for saved in told]
    assert bench.published[0].root == told[1].root
    assert told[0].key == told[1].key
    assert {"m": 1} == told[1].entity


async def test_a_save_that_needs_a_person_is_quarantined_from_there() -> None:
    """What is behind it waits; other entities are told."""
    told: list[str] = []

    def after(saved: SavedVersion[Any, Any]) -> None:
        told.append(saved.id)
        if saved.id == "bad":
            raise Quarantine("look at it")

    async with telling(after) as bench:
        for name in ("bad", "good"):
            await bench.put(name, {})
        await bench.advance(hours=1)
        (row,) = await bench.parked()
    assert ["bad", "good"] == sorted(told)
    assert ("bad", RowStatus.UNDELIVERED, "Quarantine: look at it") == (
        row.entity_id, row.status, row.error,
    )  # fmt: skip


async def test_a_save_is_told_again_when_it_says_there() -> None:
    """Not by the doubling pauses."""
    times: list[datetime] = []

    def after(_: SavedVersion[Any, Any]) -> None:
        times.append(bench.now)
        if len(times) == 1:
            raise RetryLater("closed", after=timedelta(minutes=10))

    async with telling(after) as bench:
        await bench.put("a", {})
        await bench.advance(hours=1)
    first, second = times
    assert timedelta(minutes=10) <= second - first < timedelta(minutes=11)


# -- who may call ---------------------------------------------------------------------------------


async def test_a_token_is_needed_if_there_is_one() -> None:
    """Without it, or with another one, nothing is told."""
    options = StageServerOptions(token=Secret("right"))
    for token, is_allowed in ((Secret("right"), True), (Secret("wrong"), False), (None, False)):
        async with served(stage("guarded"), options=options, token=token) as remote:
            assert is_allowed is await remote.describe(Recorder())


async def test_certificates_of_both_sides(tmp_path: Path) -> None:
    """TLS, and with an authority only its own callers."""
    authority = Authority(tmp_path)
    server, caller = authority.issue("IP:127.0.0.1"), authority.issue("DNS:gnomon")
    options = StageServerOptions(
        certificate_file=str(server.certificate),
        key_file=str(server.key),
        client_ca_file=str(authority.file),
    )
    trusted = {"tls": True, "ca_file": str(authority.file)}
    ours = {"certificate_file": str(caller.certificate), "key_file": str(caller.key)}
    async with served(stage("guarded"), options=options, **trusted, **ours) as remote:
        assert await remote.describe(Recorder())
    async with served(stage("guarded"), options=options, **trusted) as remote:
        assert not await remote.describe(Recorder())


async def test_others_are_served_with_tls_only() -> None:
    """Unless a proxy in front does it; and a port that is taken is told."""
    for address in ("0.0.0.0:0", "[::]:0", "example.org:0"):
        with pytest.raises(ConfigurationError, match="not a loopback address"):
            StageServer("ad", stage("open"), address)
    plain = StageServer(
        "ad", stage("open"), "0.0.0.0:0", options=StageServerOptions(allow_plain=True)
    )
    await plain.start()
    with pytest.raises(ConfigurationError, match="cannot listen"):
        StageServer("ad", stage("open"), f"127.0.0.1:{plain.address.rpartition(':')[2]}")
    await plain.stop()


@pytest.mark.parametrize(
    "options",
    [
        {"certificate_file": "/nowhere"},
        {"key_file": "/nowhere"},
        {"client_ca_file": "/nowhere"},
    ],
)
def test_halves_of_certificates_are_refused(options: dict[str, Any]) -> None:
    """Certificate, key and authority go together."""
    with pytest.raises(ConfigurationError):
        StageServerOptions(**options)


async def test_another_stage_at_the_address_is_noticed() -> None:
    """It says that it is not the one."""
    async with served(stage("one"), name="two") as remote:
        recorder = Recorder()
        assert not await remote.describe(recorder)
        assert "this is stage one" in str(recorder.events)


async def test_serving_ends_when_it_is_told() -> None:
    """`serve_stage` is all that a service needs."""
    stop = asyncio.Event()
    serving = asyncio.create_task(serve_stage("ad", stage("short"), "127.0.0.1:0", stop=stop))
    await asyncio.sleep(0)
    stop.set()
    async with asyncio.timeout(30):
        await serving
    assert serving.done()
