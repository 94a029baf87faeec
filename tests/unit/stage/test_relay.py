"""The relay: order per entity, what a failure holds back, an outage of the receiver, and sinks that
do not wait for each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID

import pytest

from gnomon.clock import SystemEntropy
from gnomon.contracts.clock import Clock
from gnomon.contracts.env import Env
from gnomon.contracts.store import HeldShard
from gnomon.contracts.store.entities import StageState
from gnomon.contracts.store.outbox import OutboxRow, SinkQueue
from gnomon.model.errors import ConfigurationError, StoreUnavailable
from gnomon.model.ids import EntityKey
from gnomon.model.outcome import Abandoned, Failed, Interrupted, Outcome, Succeeded, Unserved
from gnomon.model.spec import Mock
from gnomon.stages.bound_stage import LocalStage
from gnomon.stages.config import StagesConfig
from gnomon.stages.delivery import HeldBackError, deliver_in_order
from gnomon.stages.relay import Relay, RelayTarget
from gnomon.stages.relays import (
    EffectRelay,
    FunctionRelay,
    headers_of,
    http_call,
    kafka_record,
    message_of,
    rabbitmq_message,
)
from gnomon.stages.sender import OUTAGE_MAX_S, Sender, Sink, UndeliverableError
from gnomon.stages.stage import EntityView, Quarantine, SavedVersion, Stage
from gnomon.testing.bench_clock import BenchClock

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ROOT = UUID(int=7)
WAIT_S = 60.0


def save(entity_id: str, version: int, **fields: Any) -> OutboxRow:
    given = {
        "shard": 0, "n": version, "sink": "", "entity_key": f"ad/{entity_id}", "epoch": 1,
        "version": version, "author": "user", "root": ROOT, "paths": ("a",), "doc": "{}",
        "state": None, "key": f"{entity_id}/1.{version}", "attempts": 0, "at": NOW,
    }  # fmt: skip
    return OutboxRow(**{**given, **fields})


class Outbox:
    """An outbox in memory, and what became of its rows; nothing is ever put off in truth."""

    def __init__(self, *rows: OutboxRow) -> None:
        self.rows = list(rows)
        self.arrived: list[str] = []
        self.delayed: list[tuple[str, float, bool]] = []
        self.quarantined: list[tuple[str, str]] = []
        self.failures = 0  # so many calls fail
        self.surveys = 0

    async def waiting_sinks(self, _: Sequence[HeldShard]) -> Sequence[SinkQueue]:
        self.surveys += 1
        nothing = timedelta(0)
        return [
            SinkQueue(sink, nothing, nothing) for sink in sorted({row.sink for row in self.rows})
        ]

    async def due_saves(
        self, _: Sequence[HeldShard], sink: str, *, limit: int, skip: Collection[str] = ()
    ) -> Sequence[OutboxRow]:
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("away")
        wanted = [row for row in self.rows if row.sink == sink and row.entity_key not in skip]
        return wanted[:limit]

    async def remove(self, rows: Sequence[OutboxRow]) -> None:
        self.arrived += [row.key for row in rows]
        self.rows = [row for row in self.rows if row not in rows]

    async def put_off(
        self, rows: Sequence[OutboxRow], *, delay: timedelta, error: str, counts: bool
    ) -> frozenset[str]:
        assert error
        self.delayed += [(row.key, delay.total_seconds(), counts) for row in rows]
        return frozenset()

    async def quarantine(self, row: OutboxRow, *, error: str) -> bool:
        self.quarantined.append((row.key, error))
        return True

    async def backlog(self) -> Sequence[Any]:
        raise AssertionError("only the doctor asks for it")


class Refusing:
    """Refuses some entities."""

    def __init__(self, *entities: str) -> None:
        self.entities: tuple[str, ...] = entities
        self.seen: list[str] = []

    async def send(self, rows: Sequence[OutboxRow]) -> Sequence[Exception | None]:
        return await deliver_in_order(rows, self._take)

    async def _take(self, row: OutboxRow) -> None:
        self.seen.append(row.key)
        if EntityKey.parse(row.entity_key).id in self.entities:
            raise ConnectionError("no")

    async def close(self) -> None: ...


class Everything:
    """Holds one shard."""

    worker = UUID(int=0)

    def trusted(self) -> list[HeldShard]:
        return [cast("HeldShard", object())]

    def holding(self, shard: int) -> HeldShard | None:
        raise AssertionError(shard)


class Telling(Stage[Any, Any]):
    """Tells a function of saves."""

    def __init__(
        self, name: str, tell: Callable[[SavedVersion[Any, Any]], Awaitable[None]]
    ) -> None:
        self.name = name  # type: ignore[misc]
        self._tell = tell

    async def process(self, it: EntityView[Any, Any]) -> None: ...

    async def after_save(self, saved: SavedVersion[Any, Any]) -> None:
        await self._tell(saved)


def relay_of(
    outbox: Outbox,
    target: RelayTarget | None,
    *stages: Stage[Any, Any],
    clock: Clock | None = None,
    poll: timedelta = timedelta(milliseconds=10),
    **config: Any,
) -> Relay:
    return Relay(
        outbox,
        [LocalStage("ad", stage) for stage in stages],
        target,
        ownership=Everything(),
        env=Env(clock=clock or BenchClock(NOW), entropy=SystemEntropy()),
        config=StagesConfig(poll=poll, **config),
    )


@asynccontextmanager
async def relaying(relay: Relay) -> AsyncIterator[None]:
    task = asyncio.create_task(relay.keep_relaying())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def until(predicate: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not predicate():
            await asyncio.sleep(0.005)


async def test_saves_of_one_entity_wait_for_each_other_and_others_do_not() -> None:
    """Whoever is slow delays itself only; its saves keep their order."""
    seen: list[str] = []
    slow = asyncio.Event()

    async def deliver(row: OutboxRow) -> None:
        if row.entity_key == "ad/slow" and row.version == 1:
            await slow.wait()
        seen.append(row.key)
        if row.key == "other/1.2":
            slow.set()

    rows = [save("slow", 1), save("slow", 2), save("other", 1), save("other", 2)]
    assert [None] * 4 == await deliver_in_order(rows, deliver)
    assert ["other/1.1", "other/1.2", "slow/1.1", "slow/1.2"] == seen


async def test_after_a_failure_later_saves_of_the_entity_are_not_tried() -> None:
    """A receiver never gets version 2 of what it has no version 1 of."""
    target = Refusing("bad")
    rows = [save("bad", 1), save("good", 1), save("bad", 2)]
    first, good, second = await target.send(rows)
    assert (ConnectionError, type(None), HeldBackError) == (type(first), type(good), type(second))
    assert ["bad/1.1", "good/1.1"] == sorted(target.seen)


async def test_no_more_than_so_many_at_once() -> None:
    """The bound of a stage's own parallelism holds for its pushes, too."""
    at_once = most = 0

    async def deliver(_: OutboxRow) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        at_once -= 1

    await deliver_in_order([save(f"e-{n}", 1) for n in range(20)], deliver, at_once=3)
    assert 3 == most


async def test_a_failure_is_counted_and_puts_only_its_own_entity_off() -> None:
    """Doubled with each attempt; what is behind it is put off by the store, not by name."""
    outbox = Outbox(save("bad", 1, attempts=3), save("bad", 2), save("good", 1))
    assert await relay_of(outbox, Refusing("bad")).step()
    assert ["good/1.1"] == outbox.arrived
    assert [("bad/1.1", 8.0, True)] == outbox.delayed


async def test_an_outage_of_the_receiver_is_nobodys_failure() -> None:
    """Nothing arrives: all wait, longer and longer up to a bound, and no attempts are counted.
    Until then what comes in between waits untried."""
    outbox = Outbox(save("a", 1), save("b", 1))
    clock = BenchClock(NOW)
    target = Refusing("a", "b")
    relay = relay_of(outbox, target, clock=clock)
    for pause_s in (1.0, 2.0, 4.0, 8.0, OUTAGE_MAX_S, OUTAGE_MAX_S):
        for _ in range(3):
            assert not await relay.step()
        assert [("a/1.1", pause_s, False), ("b/1.1", pause_s, False)] == outbox.delayed
        outbox.delayed.clear()
        clock.move_to(clock.now() + timedelta(seconds=pause_s))
    assert 6 * 2 == len(target.seen)
    target.entities = ()
    assert await relay.step()
    assert ["a/1.1", "b/1.1"] == outbox.arrived


# -- what is given up -----------------------------------------------------------------------------


async def refuse(_: SavedVersion[Any, Any]) -> None:
    raise ValueError("never")


async def test_a_stage_that_failed_so_often_gets_the_save_no_more() -> None:
    """At the limit, not before; those behind it are held back by the store, not by name."""
    almost, last = save("almost", 1, sink="one", attempts=3), save("bad", 1, sink="one", attempts=4)
    outbox = Outbox(almost, last, save("bad", 2, sink="one"))
    await relay_of(outbox, None, Telling("one", refuse), failures_max=5).step()
    assert [("almost/1.1", 8.0, True)] == outbox.delayed
    assert [("bad/1.1", "ValueError: never")] == outbox.quarantined


async def test_a_lone_save_is_the_receivers_fault_for_a_while_then_its_own() -> None:
    """Every try counts and is later than the one before; the sink is away for the first few only;
    in the end the save is set aside."""
    outbox, clock = Outbox(save("bad", 1)), BenchClock(NOW)
    relay = relay_of(outbox, Refusing("bad"), clock=clock, failures_max=8)
    away = []
    for _ in range(8):
        assert not await relay.step()
        away.append(relay._senders[""].is_away)
        clock.move_to(clock.now() + timedelta(hours=1))
    assert [(2.0**number, True) for number in range(7)] == [put[1:] for put in outbox.delayed]
    assert [True] * 4 + [False] * 4 == away
    assert [("bad/1.1", "ConnectionError: no")] == outbox.quarantined


async def test_a_lone_save_is_due_as_soon_as_another_arrives() -> None:
    """Perhaps it was the receiver after all."""
    outbox, clock = Outbox(save("old", 1)), BenchClock(NOW)
    target = Refusing("old")
    relay = relay_of(outbox, target, clock=clock)
    await relay.step()
    outbox.rows = [save("new", 1)]
    outbox.delayed.clear()
    clock.move_to(clock.now() + timedelta(hours=1))
    assert await relay.step()
    assert [("old/1.1", 0.0, False)] == outbox.delayed


async def test_what_cannot_arrive_is_set_aside_at_once_and_holds_up_nothing() -> None:
    """A message that is larger than Kafka takes, alone or beside others."""
    large = save("large", 1, doc=f'{{"a": "{"x" * 1_048_576}"}}')
    with pytest.raises(UndeliverableError, match="Kafka takes"):
        kafka_record(StagesConfig(relay="k"), large)

    async def take(saved: SavedVersion[Any, Any]) -> None:
        if saved.id == "large":
            raise UndeliverableError("too large")

    outbox = Outbox(large)
    relay = relay_of(outbox, FunctionRelay(take))
    await relay.step()
    assert (["large/1.1"], []) == ([key for key, _ in outbox.quarantined], outbox.delayed)
    assert not relay._senders[""].is_away


async def test_a_relay_is_not_tried_for_ever() -> None:
    """Nor if it says that a person is needed."""

    async def take(saved: SavedVersion[Any, Any]) -> None:
        if saved.id == "bad":
            raise Quarantine("a person, please")

    outbox = Outbox(save("bad", 1, attempts=99), save("good", 1))
    assert await relay_of(outbox, FunctionRelay(take)).step()
    assert ([], ["bad/1.1"]) == (outbox.delayed, [key for key, _ in outbox.quarantined])


async def test_a_save_that_does_not_decode_is_given_up_at_once() -> None:
    """It would not decode the next time either."""
    outbox = Outbox(save("bad", 1, sink="one", doc="{"))
    await relay_of(outbox, None, Telling("one", refuse)).step()
    [(key, error)] = outbox.quarantined
    assert ("bad/1.1", True) == (key, error.startswith("UndecodableError: "))


async def test_who_wants_the_latest_has_the_oldest_given_up() -> None:
    """So that all of them wait, and none is told instead."""
    telling = Telling("one", refuse)
    telling.latest = True  # type: ignore[misc]
    rows = [save("bad", version, sink="one", attempts=19) for version in (1, 2, 3)]
    outbox = Outbox(*rows)
    await relay_of(outbox, None, telling).step()
    assert ["bad/1.1"] == [key for key, _ in outbox.quarantined]


async def test_of_an_entity_only_the_first_failure_counts() -> None:
    """Though the stage was told of all its saves at once, as one elsewhere is."""

    async def tell(rows: Sequence[OutboxRow]) -> Sequence[Exception | None]:
        return [ValueError("no") for _ in rows]

    outbox = Outbox(*(save("bad", version, sink="one") for version in (1, 2)))
    sink = Sink("one", tell)
    env = Env(clock=BenchClock(NOW), entropy=SystemEntropy())
    await Sender(sink, outbox, ownership=Everything(), env=env, config=StagesConfig()).step()
    assert [("bad/1.1", 1.0, True)] == outbox.delayed


async def test_without_a_relay_here_saves_wait_for_a_process_that_has_one() -> None:
    """A worker with fewer settings than the others loses nothing, and writes nothing."""
    outbox = Outbox(save("a", 1), save("a", 1, sink="elsewhere"))
    assert not await relay_of(outbox, None).step()
    assert ([], []) == (outbox.arrived, outbox.delayed)


# -- sinks do not wait for each other -------------------------------------------------------------


async def test_a_slow_sink_holds_up_no_other() -> None:
    """While one takes its time over a single save, others get round after round of theirs."""
    outbox = Outbox(save("a", 1, sink="slow"), *(save(f"e{n}", 1) for n in range(20)))
    go_on = asyncio.Event()
    told: list[str] = []

    async def slowly(saved: SavedVersion[Any, Any]) -> None:
        await go_on.wait()
        told.append(saved.id)

    async with relaying(relay_of(outbox, Refusing(), Telling("slow", slowly), relay_batch=5)):
        await until(lambda: 20 == len(outbox.arrived))
        outbox.rows.append(save("later", 1))
        await until(lambda: "later/1.1" in outbox.arrived)
        assert [] == told
        go_on.set()
        await until(lambda: not outbox.rows)
    assert ["a"] == told


async def test_a_sink_has_no_more_on_its_way_than_its_batch() -> None:
    """However often it is woken: a round ends before the next one begins."""
    outbox = Outbox(*(save(f"e{n}", 1, sink="one") for n in range(30)))
    present = most = 0

    async def tell(_: SavedVersion[Any, Any]) -> None:
        nonlocal present, most
        present += 1
        most = max(most, present)
        await asyncio.sleep(0.001)
        present -= 1

    stage = Telling("one", tell)
    stage.parallel = 1_000  # type: ignore[misc]
    relay = relay_of(outbox, None, stage, relay_batch=4)
    async with relaying(relay):
        while outbox.rows:
            relay.saved("one")
            relay.wake()
            await asyncio.sleep(0)
    assert 4 == most
    assert 30 == len(set(outbox.arrived)) == len(outbox.arrived)


async def test_who_sends_nothing_is_not_woken() -> None:
    """A hint is for those who have a sink: a look costs the store something, each time."""
    sending, idle = Outbox(), Outbox()
    hour = timedelta(hours=1)
    told, silent = relay_of(sending, Refusing(), poll=hour), relay_of(idle, None, poll=hour)
    async with relaying(told), relaying(silent):
        await until(lambda: bool(sending.surveys and idle.surveys))
        before = idle.surveys
        for _ in range(5):
            told.wake()
            silent.wake()
            looks = sending.surveys
            await until(lambda looks=looks: sending.surveys > looks)  # type: ignore[misc]
    assert before == idle.surveys


async def test_a_sink_that_raises_is_away_and_others_go_on() -> None:
    """Whatever a target of the user's own does: its saves wait."""

    class Broken:
        async def send(self, rows: Sequence[OutboxRow]) -> Sequence[Exception | None]:
            raise RuntimeError(f"cannot send {len(rows)}")

        async def close(self) -> None: ...

    async def tell(_: SavedVersion[Any, Any]) -> None: ...

    outbox = Outbox(save("a", 1), save("a", 1, sink="one"))
    assert await relay_of(outbox, Broken(), Telling("one", tell)).step()
    assert ["a/1.1"] == outbox.arrived
    assert [("a/1.1", 1.0, False)] == outbox.delayed


async def test_a_sink_that_is_away_is_left_alone_whatever_comes_in() -> None:
    """Only what was tried is put off; what comes meanwhile is not even looked at."""
    outbox, clock, target = Outbox(save("a", 1)), BenchClock(NOW), Refusing("a", "b")
    relay = relay_of(outbox, target, clock=clock)
    await relay.step()
    outbox.rows.append(save("b", 1))
    relay.saved("")
    await relay.step()
    assert ["a/1.1"] == target.seen
    assert [("a/1.1", 1.0, True)] == outbox.delayed
    assert NOW + timedelta(seconds=1) == relay.next_at()


async def test_a_store_that_is_away_stops_no_sender() -> None:
    """The next look finds what is left."""
    outbox = Outbox(save("a", 1))
    outbox.failures = 3
    async with relaying(relay_of(outbox, Refusing())):
        await until(lambda: outbox.arrived)
    assert ["a/1.1"] == outbox.arrived


async def test_what_was_saved_here_leaves_without_a_look() -> None:
    """The sender of the sink is told, and no other."""
    outbox = Outbox()
    stage = Telling("one", lambda _: asyncio.sleep(0))
    relay = relay_of(outbox, Refusing(), stage, poll=timedelta(hours=1))
    async with relaying(relay):
        await until(lambda: outbox.surveys)
        outbox.rows += [save("a", 1), save("a", 1, sink="one")]
        relay.saved("")
        relay.saved("nobody")
        await until(lambda: outbox.arrived)
        assert ["one"] == [row.sink for row in outbox.rows]
    assert 1 == outbox.surveys


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (None, b'"state":null'),
        (
            StageState(version=3, revision=2, body=b'{"x":1}'),
            b'"state":{"version":3,"revision":2,"json":{"x":1}}',
        ),
        (
            StageState(version=3, revision=2, body=b"\x08\x01", type="acme.Plan"),
            b'"state":{"version":3,"revision":2,"type":"acme.Plan","message":"CAE="}',
        ),
    ],
)
def test_a_message_carries_entity_and_state(state: StageState | None, told: bytes) -> None:
    """The document as stored; a state as JSON, or a protobuf message with its type."""
    message = message_of(save("a", 7, doc='{"n":1.50}', state=state))
    assert b'"entity":{"n":1.50}' in message
    assert told in message


def test_headers_and_message_carry_the_root_of_the_chain() -> None:
    """The one that `explain` shows."""
    row = save("a", 1)
    assert str(ROOT) == headers_of(row)["entity-root"]
    assert f'"root":"{ROOT}"'.encode() in message_of(row)


def test_an_author_of_any_alphabet_fits_into_a_header() -> None:
    """Percent-encoded where it is not visible ASCII."""
    assert "J%C3%BCrgen%20B" == headers_of(save("a", 1, author="Jürgen B"))["entity-author"]


def test_a_place_may_have_the_kind_in_it() -> None:
    """A topic for each kind; the key of a record is the entity's, so that two kinds do not meet."""
    config = StagesConfig(
        relay="events", relay_topic="shop.{kind}", relay_routing_key="{kind}.saved"
    )
    row = save("1", 1)
    record = kafka_record(config, row)
    assert ("shop.ad", "ad/1") == (record.topic, record.key)
    assert "ad.saved" == rabbitmq_message(config, row).routing_key
    assert "https://in.shop/ad" == http_call("https://in.shop/{kind}", row).url
    assert ("ad", "1") == (headers_of(row)["entity-kind"], headers_of(row)["entity-id"])
    assert message_of(row).startswith(b'{"kind":"ad","id":"1",')


@pytest.mark.parametrize("name", ["relay_topic", "relay_routing_key", "relay_url"])
@pytest.mark.parametrize("text", ["{id}", "{kind", "kind}", "{}", "{{kind}}", "a.{Kind}"])
def test_a_place_has_no_other_braces(name: str, text: str) -> None:
    """A mistake is told when settings are read, not with each save."""
    with pytest.raises(ConfigurationError, match=r"may have \{kind\} in it"):
        StagesConfig(**{name: text})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        (Succeeded(), None),
        (Failed(error="no such topic"), "no such topic"),
        (Unserved("kafka target hub"), "it was unserved"),
        (Abandoned(), "it was abandoned"),
        (Interrupted(reason="shut down"), "it was interrupted"),
    ],
)
async def test_a_save_is_sent_only_if_the_receiver_took_it(
    outcome: Outcome, told: str | None
) -> None:
    """Whatever else an executor says, the save stays and is sent again."""

    class Executor:
        async def execute(self, _order: object) -> Outcome:
            return outcome

    executor: Any = Executor()
    env = Env(clock=BenchClock(NOW), entropy=SystemEntropy())
    relay = EffectRelay(executor, lambda _: Mock(), env=env, timeout=timedelta(seconds=5))

    (error,) = await relay.send([save("a", 1)])

    assert told == (None if error is None else str(error))
