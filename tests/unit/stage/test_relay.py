"""The relay: order per entity, what a failure holds back, and an outage of the receiver."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID

import pytest

from gnomon.clock import SystemEntropy
from gnomon.contracts.clock import Clock
from gnomon.contracts.env import Env
from gnomon.contracts.store import Holding
from gnomon.contracts.store.entities import EntityStore, Outgoing, StageState
from gnomon.stages.config import StagesConfig
from gnomon.stages.delivering import HeldBackError, deliver_in_order
from gnomon.stages.relay import OUTAGE_MAX_S, Relay
from gnomon.stages.relays import headers_of, message_of
from gnomon.testing.stage_bench import BenchClock

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def save(entity_id: str, version: int, **fields: Any) -> Outgoing:
    given = {
        "shard": 0, "n": version, "sink": "", "entity_id": entity_id, "epoch": 1,
        "version": version, "author": "user", "paths": ("a",), "doc": "{}", "state": None,
        "key": f"{entity_id}/1.{version}", "attempts": 0, "at": NOW,
    }  # fmt: skip
    return Outgoing(**{**given, **fields})


class Outbox:
    """An outbox that always has these rows, and remembers what becomes of them."""

    def __init__(self, *rows: Outgoing) -> None:
        self.rows = rows
        self.arrived: list[str] = []
        self.put_off: list[tuple[str, float, bool]] = []

    async def outgoing(self, _: Sequence[Holding], *, limit: int) -> Sequence[Outgoing]:
        return self.rows[:limit]

    async def sent(self, rows: Sequence[Outgoing]) -> None:
        self.arrived += [row.key for row in rows]

    async def unsent(
        self, rows: Sequence[Outgoing], *, delay: timedelta, error: str, counts: bool
    ) -> None:
        assert error
        self.put_off += [(row.key, delay.total_seconds(), counts) for row in rows]


class Refusing:
    """Refuses some entities."""

    def __init__(self, *entities: str) -> None:
        self.entities: tuple[str, ...] = entities
        self.seen: list[str] = []

    async def send(self, rows: Sequence[Outgoing]) -> Sequence[Exception | None]:
        return await deliver_in_order(rows, self._take)

    async def _take(self, row: Outgoing) -> None:
        self.seen.append(row.key)
        if row.entity_id in self.entities:
            raise ConnectionError("no")

    async def close(self) -> None: ...


class Everything:
    """Holds one shard."""

    worker = UUID(int=0)

    def trusted(self) -> list[Holding]:
        return [cast("Holding", object())]

    def holding(self, shard: int) -> Holding | None:
        raise AssertionError(shard)


def relay_of(outbox: Outbox, target: Refusing | None, *, clock: Clock | None = None) -> Relay:
    return Relay(
        cast("EntityStore", outbox),
        [],
        target,
        ownership=Everything(),
        env=Env(clock=clock or BenchClock(NOW), entropy=SystemEntropy()),
        config=StagesConfig(),
    )


async def test_saves_of_one_entity_wait_for_each_other_and_others_do_not() -> None:
    """Whoever is slow delays itself only; its saves keep their order."""
    seen: list[str] = []
    slow = asyncio.Event()

    async def deliver(row: Outgoing) -> None:
        if row.entity_id == "slow" and row.version == 1:
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

    async def deliver(_: Outgoing) -> None:
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
    assert [("bad/1.1", 8.0, True)] == outbox.put_off


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
        assert {(pause_s, False)} == {row[1:] for row in outbox.put_off}
        outbox.put_off.clear()
        clock.move_to(clock.now() + timedelta(seconds=pause_s))
    assert 6 * 2 == len(target.seen)
    target.entities = ()
    assert await relay.step()
    assert ["a/1.1", "b/1.1"] == outbox.arrived


async def test_without_a_relay_here_saves_wait_for_a_process_that_has_one() -> None:
    """A worker with fewer settings than the others loses nothing."""
    outbox = Outbox(save("a", 1))
    assert not await relay_of(outbox, None).step()
    assert [("a/1.1", 1.0, False)] == outbox.put_off


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


def test_an_author_of_any_alphabet_fits_into_a_header() -> None:
    """Percent-encoded where it is not visible ASCII."""
    assert "J%C3%BCrgen%20B" == headers_of(save("a", 1, author="Jürgen B"))["entity-author"]
