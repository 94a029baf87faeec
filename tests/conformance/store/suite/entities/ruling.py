"""Part of the suite: every engine merges offers as `gnomon.model.stage.queue_merge` says.

Random walks of one queue row: offers, failures, timers, releases. Each step is compared with the
rule. The present that a statement saw is told by a witness: a row of another stage that the same
statement makes ready.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import msgspec

from gnomon.contracts.store import Store
from gnomon.contracts.store.queues import Enqueue, QueueRow, RowStatus, StageLane
from gnomon.model.stage.queue_merge import REASONS_MAX, EnqueueRule, QueuedEntity, made, merged
from tests.conformance.store.suite.entities.given import STAGE, GivenEntities
from tests.conformance.store.suite.given import HOUR, SECOND

STEPS = 60
SEEDS = (2, 3, 4, 5)  # each meets every kind of row, which is asserted
NONE = timedelta(0)
DELAYS = (NONE, NONE, NONE, SECOND, 10 * SECOND, HOUR)
SETTLES = (NONE, NONE, NONE, NONE, 2 * SECOND, 2 * HOUR)
WAKES = (None, None, -HOUR, HOUR, 2 * HOUR)
MICROSECOND = timedelta(microseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class TestMergeRule:
    """`Enqueue`, `fire` and `release`: one rule, whatever the engine."""

    async def test_an_offer_does_what_the_rule_says(self, entities: GivenEntities) -> None:
        """To whatever row it finds, or to none."""
        for seed in SEEDS:
            await walk_by_offers(entities, f"ad-{seed}", Random(seed))

    async def test_a_timer_does_what_the_rule_says(self, entities: GivenEntities) -> None:
        """As an offer to the main lane would, without its timer."""
        for seed in SEEDS:
            await fire_timers(entities, f"ad-{seed}", Random(seed))

    async def test_what_is_freed_by_hand_is_as_the_rule_says(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """With many reasons, of which the oldest goes."""
        await entities.queued("ad", reason="r0")
        for number in range(1, 9):
            await entities.offered("ad", entities.offer(reason=f"r{number}"))
        assert await entities.set_back(await entities.claim("ad"), RowStatus.QUARANTINED)
        before = await row_of(entities)

        assert 1 == await store.queues.release("ad", None, shard=entities.given.shard_of("ad"))

        after = await row_of(entities)
        assert before is not None
        assert after is not None
        offer = entities.offer(reason="by hand", frees=True, root=after.root)
        assert merged(before, wanted_of(offer), after.first_at) == after
        assert ("r2", "by hand") == (after.reasons[0], after.reasons[-1])


async def walk_by_offers(entities: GivenEntities, name: str, random: Random) -> None:
    await entities.written(name)
    await entities.asked(name)
    found, most = set[object](), 0
    for number in range(STEPS):
        before = await row_of(entities, name)
        offer = any_offer(entities, random, await entities.given.now())
        now = await offer_with_witness(entities, name, offer, number)
        after = await row_of(entities, name)

        assert_as_ruled(before, wanted_of(offer), now, after, (name, number, offer))
        found.add(before and before.status)
        most = max(most, len(after.reasons) if after else 0)
        await disturb(entities, name, random)
    assert {"ready", "sleeping", "looping", "quarantined"} <= found
    assert REASONS_MAX == most


async def fire_timers(entities: GivenEntities, prefix: str, random: Random) -> None:
    fired = set[str]()
    for number in range(STEPS // 4):
        name = f"{prefix}-{number}"
        past = await entities.earlier()
        await entities.written(name)
        await entities.asked(name)
        for _ in range(random.randrange(20) if number % 3 else 0):
            await entities.offered(name, any_offer(entities, random, past))
            await disturb(entities, name, random)
        await entities.offered(name, entities.offer(ready=False, wake=past))
        await entities.offered(name, entities.offer("witness", ready=False, wake=past))
        before = await row_of(entities, name)
        await entities.fire()
        after = await row_of(entities, name)
        assert before is not None
        assert after is not None
        now = micros((await entities.row(name, "witness")).first_at)

        if before.status in (RowStatus.LOOPING, RowStatus.QUARANTINED):
            assert before == after  # what is parked keeps its timer
            continue
        timer = entities.offer(reason="timer", root=after.root)
        ruled = merged(before._replace(timer_at=None), wanted_of(timer), now)
        assert ruled == after, name
        fired.add(before.status)
    assert {"ready", "sleeping"} == fired


def any_offer(entities: GivenEntities, random: Random, now: datetime) -> Enqueue:
    """Of any kind; each kind often enough to meet every kind of row."""
    wake = random.choice(WAKES)
    fields: dict[str, Any] = {
        "reason": f"r{random.randrange(12)}",
        "depth": random.choice((0, 3)),
        "ready": random.random() < 0.8,
        "lane": random.choice(tuple(StageLane)),
        "wake": None if wake is None else now + wake,
        "delay": random.choice(DELAYS),
        "debounce": random.choice(SETTLES),
        "frees": random.random() < 0.3,
        "looping": "a proof" if random.random() < 0.15 else None,
    }
    return entities.offer(**fields)


async def offer_with_witness(
    entities: GivenEntities, name: str, offer: Enqueue, number: int
) -> int:
    """Make it, and the same to another stage by the same statement; the present it saw."""
    witness = f"witness-{number}"
    fields = {"stage": witness, "ready": True, "wake": None, "looping": None}
    other = msgspec.structs.replace(offer, **fields)
    await entities.offered(name, offer, other)
    return micros((await entities.row(name, witness)).first_at)


def assert_as_ruled(
    before: QueuedEntity | None,
    offer: EnqueueRule,
    now: int,
    after: QueuedEntity | None,
    which: object,
) -> None:
    if before is not None:
        assert merged(before, offer, now) == after, which
        return
    new = made(offer, now, 0)
    assert (new is None) == (after is None), which
    if new is not None and after is not None:  # `seq` begins anywhere, and timers are armed apart
        first_at = after.first_at if new.status != RowStatus.READY else new.first_at
        lane = after.lane if new.status == RowStatus.SLEEPING else new.lane
        assert new._replace(seq=after.seq, first_at=first_at, lane=lane) == after, which


async def disturb(entities: GivenEntities, name: str, random: Random) -> None:
    """What else happens to a row: it fails, is parked, or is done with."""
    row = (await entities.rows(name)).get(STAGE)
    if row is None or row.status is not RowStatus.READY:
        return
    claim = await entities.claim(name)
    choices: list[Callable[[], Any]] = [
        lambda: entities.set_back(claim, RowStatus.READY, delay=random.choice(DELAYS), counts=True),
        lambda: entities.set_back(claim, RowStatus.QUARANTINED, error="no", counts=True),
        lambda: entities.set_back(claim, None),
    ]
    if random.random() < 0.3:  # seldom enough for rows to have all the reasons they may
        await random.choices(choices, weights=(6, 3, 1))[0]()


async def row_of(entities: GivenEntities, name: str = "ad") -> QueuedEntity | None:
    row = (await entities.rows(name)).get(STAGE)
    return None if row is None else waiting_of(row)


def waiting_of(row: QueueRow) -> QueuedEntity:
    return QueuedEntity(
        lane=row.lane,
        status=row.status,
        ready_at=None if row.ready_at is None else micros(row.ready_at),
        timer_at=None if row.timer_at is None else micros(row.timer_at),
        first_at=micros(row.first_at),
        seq=row.seq,
        attempts=row.attempts,
        reasons=row.reasons,
        root=row.root,
        depth=row.depth,
        error=row.error,
    )


def wanted_of(offer: Enqueue) -> EnqueueRule:
    return EnqueueRule(
        reason=offer.reason,
        root=offer.root,
        depth=offer.depth,
        ready=offer.ready,
        lane=offer.lane,
        wake=None if offer.wake is None else micros(offer.wake),
        delay=max(offer.delay, offer.debounce) // MICROSECOND,
        debounce=offer.debounce // MICROSECOND,
        frees=offer.frees,
        looping=offer.looping,
    )


def micros(moment: datetime) -> int:
    return (moment - EPOCH) // MICROSECOND
