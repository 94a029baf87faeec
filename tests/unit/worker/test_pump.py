"""The pump's order: what a round asks the store for, and of how much."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from gnomon.contracts.store import (
    ArrivalResult,
    BeginRequest,
    BeginResult,
    HeldShard,
    Lane,
    MoveResult,
    PollResult,
)
from gnomon.model.errors import StoreUnavailable
from gnomon.worker.config import WorkerConfig
from gnomon.worker.flood import MOMENT_S, NEWEST_EVERY_S, PATIENCE_S
from gnomon.worker.guest import guest_demand
from gnomon.worker.pump import ADMITTED_PART, PACED_ARRIVALS, Pump
from tests.unit.worker.surroundings import HandClock, surroundings

Asked = tuple[str, Any]  # a verb, and how much of what


class Around:
    """Store, leases, slots and recorder in one: they answer, and remember what they were asked."""

    owner = "me"
    is_behind = False
    is_open = True
    is_limited = False

    def __init__(self, clock: HandClock, *, free: int, shards: int) -> None:
        self._clock = clock
        self._free = free
        self._held = [HeldShard(shard=shard, lease_guid=UUID(int=1)) for shard in range(shards)]
        self.asked: list[Asked] = []
        self.is_away = False
        self.is_flooded = False
        self.is_in_doubt = False
        self.begun = 0
        self.limits: list[int] = []

    # -- recorder ---------------------------------------------------------------------------------

    def note_burst(self, *, goes_on: bool) -> None:
        assert not goes_on  # nothing is armed here

    # -- reservations -----------------------------------------------------------------------------

    async def are_in_doubt(self) -> bool:
        were_in_doubt, self.is_in_doubt = self.is_in_doubt, False
        return were_in_doubt

    # -- leases -----------------------------------------------------------------------------------

    @property
    def shards(self) -> list[int]:
        return [held.shard for held in self._held]

    def trusted(self) -> list[HeldShard]:
        return self._held

    def fresh(self, _age: timedelta) -> list[HeldShard]:
        return []

    def holding(self, shard: int) -> HeldShard:
        return self._held[shard]

    def mark(self, _marks: Iterable[tuple[int, datetime]]) -> None: ...

    # -- slots ------------------------------------------------------------------------------------

    def free(self, _queue: str) -> int:
        return self._free

    ask = free

    def share(self, queues: Collection[str], free_of: Any) -> dict[str, int]:
        return {queue: free_of(queue) for queue in queues if free_of(queue)}

    def promise(self, counts: Mapping[str, int], *, first: bool = False) -> Any:
        if first:
            self.asked.append(("promise first", dict(counts)))
        return _Promise(first=first)

    def take(self, _begun: object, _asked_at: float, *, first: bool = False) -> dict[str, int]:
        if first:
            self.asked.append(("take first", None))
        return {}

    # -- the store --------------------------------------------------------------------------------

    async def poll(self, _holdings: object) -> PollResult:
        return PollResult(shards=(), now=self._clock.now(), open=None)

    async def move_and_begin(
        self,
        holdings: Sequence[HeldShard],
        *,
        room: Mapping[str, int],
        newest: bool,
        limit: int,
        **_more: object,
    ) -> ArrivalResult:
        verb = "newest" if newest else "arrive"
        self.limits.append(limit)
        self.asked.append((verb, ([held.shard for held in holdings], dict(room))))
        if self.is_away:
            raise StoreUnavailable("away")
        moved = MoveResult(count=0, lanes={}, marks={}, more=self.is_flooded, now=self._clock.now())
        return ArrivalResult(moved, [])

    async def move(self, holdings: Sequence[HeldShard], *, limit: int) -> MoveResult:
        self.asked.append(("move", limit * len(holdings)))
        return MoveResult(count=0, lanes={}, marks={}, more=True, now=self._clock.now())

    async def find_begun(self, _shards: object, *, batch: UUID) -> list[Any]:
        return []

    async def begin(self, demands: Sequence[BeginRequest], **_more: object) -> BeginResult:
        """There is always more."""
        self.asked.append(("begin", sum(demand.limit for demand in demands)))
        now = self._clock.now()
        lane = Lane(0, "default", 5)
        begun: Any = [SimpleNamespace(lane=lane)] * self.begun
        return BeginResult(begun, {demand.lane: now for demand in demands}, now)


class _Promise:
    def __init__(self, *, first: bool) -> None:
        self.first = first

    def close(self) -> None: ...


class Situation:
    """A pump that knows the time, and rows that have arrived in all shards."""

    def __init__(self, *, free: int, shards: int = 3, is_behind: bool = True) -> None:
        env, clock, _ = surroundings()
        self.clock = clock
        self.around = Around(clock, free=free, shards=shards)
        all_of_it: Any = self.around
        self.pump = Pump(
            all_of_it,
            leases=all_of_it,
            slots=all_of_it,
            recorder=all_of_it,
            reservations=all_of_it,
            config=WorkerConfig(),
            env=env,
        )
        self.pump.time.observe(clock.now())
        if is_behind:
            self.pump.timeline.note(Lane(0, "default", 5), clock.now())

    async def round(self) -> list[Asked]:
        """What one round asks for, with arrivals everywhere."""
        self.pump.hint([])
        self.around.asked.clear()
        await self.pump._step()
        return list(self.around.asked)


FREE = 3 * ADMITTED_PART


async def test_a_backlog_leaves_arrivals_a_part_of_the_slots_and_the_first_turn() -> None:
    """A twelfth of what is free, before the backlog gets the rest."""
    part = {"default": 3}
    asked = await Situation(free=FREE).round()
    assert ("promise first", part) == asked[0]
    assert ("arrive", ([0, 1, 2], part)) == asked[1]
    assert ("take first", None) == asked[2]
    assert ("begin", FREE) == asked[3]


async def test_where_statements_are_dear_arrivals_come_first_only_if_slots_are_short() -> None:
    """While what is due leaves most slots free, one look at arrivals is enough for all of them."""
    situation = Situation(free=FREE)
    situation.pump.pace_s = 0.02
    alone = [("begin", FREE), ("arrive", ([0, 1, 2], {"default": FREE}))]
    assert alone == await situation.round()
    situation.around.begun = FREE // 2
    assert alone == await situation.round()
    assert ("promise first", {"default": 3}) == (await situation.round())[0]


async def test_where_statements_are_dear_all_that_comes_in_a_round_is_taken_at_once() -> None:
    """Few slots for many shards: one row of each would leave some waiting, every time."""
    situation = Situation(free=64, shards=64, is_behind=False)
    await situation.round()
    situation.pump.pace_s = 0.02
    await situation.round()
    assert [1, PACED_ARRIVALS] == situation.around.limits


async def test_what_comes_during_a_look_is_no_flood() -> None:
    """It is looked at in the next round; only what was there before may have waited."""
    situation = Situation(free=FREE, is_behind=False)
    look = situation.around.move_and_begin

    async def interrupted(*args: Any, **named: Any) -> ArrivalResult:
        situation.pump.hint([])
        return await look(*args, **named)

    situation.around.move_and_begin = interrupted  # type: ignore[method-assign]
    await situation.round()
    situation.clock.seconds += 2 * MOMENT_S
    assert "newest" not in [verb for verb, _ in await situation.round()]


async def test_without_a_backlog_arrivals_have_all_slots_and_nobody_is_before_another() -> None:
    asked = await Situation(free=FREE, is_behind=False).round()
    assert [("arrive", ([0, 1, 2], {"default": FREE}))] == asked


async def test_a_part_is_at_least_one_but_not_every_time() -> None:
    """Of so few slots a twelfth would be all, round after round: the backlog has its turn, too."""
    situation = Situation(free=1, shards=1)
    rounds = [await situation.round() for _ in range(4)]
    firsts = [("promise first", {"default": 1}) in asked for asked in rounds]
    assert [True, False, True, False] == firsts
    assert all(("begin", 1) in asked for asked in rounds)


async def test_a_full_part_is_given_every_time() -> None:
    """Where a part is no small number, there is enough left for the backlog."""
    situation = Situation(free=ADMITTED_PART * ADMITTED_PART)
    rounds = [await situation.round() for _ in range(3)]
    part = {"default": ADMITTED_PART}
    assert all(("promise first", part) == asked[0] for asked in rounds)


async def test_no_more_shards_are_looked_at_than_rows_may_begin() -> None:
    """The others keep their arrivals: they come with the rest of the round."""
    asked = await Situation(free=2 * ADMITTED_PART, shards=5).round()
    arrivals = [value[0] for verb, value in asked if verb == "arrive"]
    assert [[0, 1], [2, 3, 4]] == arrivals


async def test_without_a_free_slot_nothing_is_begun_and_the_arrivals_are_kept() -> None:
    situation = Situation(free=0)
    assert [] == await situation.round()
    situation.around._free = FREE
    asked = await situation.round()
    assert ("arrive", ([0, 1, 2], {"default": 3})) == asked[1]


async def test_arrivals_that_could_not_be_asked_for_are_kept() -> None:
    """The store was away: they are asked for again."""
    situation = Situation(free=FREE, shards=1)
    situation.around.is_away = True
    situation.pump.hint([0])
    for _ in range(2):
        situation.around.asked.clear()
        with pytest.raises(StoreUnavailable):
            await situation.pump._step()
        assert "arrive" in [verb for verb, _ in situation.around.asked]


async def test_arrivals_in_the_shards_of_others_wake_nobody() -> None:
    """Every worker hears every hint: of a hundred of them one has something to do."""
    situation = Situation(free=FREE, shards=1, is_behind=False)
    pump = situation.pump
    pump.hint([1, 2])
    assert (False, set()) == (pump._wake.is_set(), pump._arrivals)
    pump.hint([0, 1])
    assert (True, {0}) == (pump._wake.is_set(), pump._arrivals)


async def test_behind_a_flood_the_newest_arrivals_are_looked_at_too() -> None:
    """Now and then, with a part of the slots, and before anything else."""
    situation = Situation(free=FREE, is_behind=False)
    situation.around.is_flooded = True
    await situation.round()
    situation.clock.seconds += 2 * MOMENT_S
    newest = ("newest", ([0, 1, 2], {"default": 3}))

    assert [newest, ("take first", None)] == [
        one for one in await situation.round() if one[0] in {"newest", "take first"}
    ]
    assert newest not in await situation.round(), "not every round: it costs a look"
    situation.clock.seconds += 2 * NEWEST_EVERY_S
    assert newest in await situation.round()


async def test_without_a_flood_nobody_looks_at_the_newest_arrivals() -> None:
    """The look at the oldest has them."""
    situation = Situation(free=FREE, is_behind=False)
    await situation.round()
    situation.clock.seconds += 2 * MOMENT_S
    assert "newest" not in [verb for verb, _ in await situation.round()]


async def test_one_statement_moves_a_bounded_number_of_rows() -> None:
    """However many shards there are: on SQLite everybody waits for it."""
    situation = Situation(free=FREE, shards=64, is_behind=False)
    situation.around.is_flooded = True
    await situation.round()
    situation.clock.seconds += PATIENCE_S + 0.01
    (moved,) = [count for verb, count in await situation.round() if verb == "move"]
    assert WorkerConfig().move_batch // 2 <= moved <= WorkerConfig().move_batch


async def test_where_reservations_may_have_run_out_nothing_is_begun_for_others() -> None:
    """Not this time: what this process has in hand may wait there to be begun again."""
    situation = Situation(free=1)
    situation.around.is_in_doubt = True
    lanes = [Lane(7, "default", 5)]
    await situation.pump.begin_in(lanes, guest_demand)
    assert [] == situation.around.asked
    await situation.pump.begin_in(lanes, guest_demand)
    assert [("begin", 1)] == situation.around.asked


@pytest.mark.parametrize(
    ("pace_s", "naps"),
    [(0.0, [0.0, 0.0]), (0.02, [0.0, 0.02, 0.0, 0.005])],
    ids=["none", "some"],
)
async def test_where_statements_are_dear_a_round_gathers_what_comes(
    pace_s: float, naps: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round that took its time is followed at once; without a pace nothing is waited for."""
    stage = Situation(free=1)
    stage.pump.pace_s = pace_s
    lasting = iter([0.0, 0.015])
    slept: list[float] = []

    async def step() -> bool:
        took_s = next(lasting, None)
        if took_s is None:
            raise asyncio.CancelledError
        stage.clock.seconds += took_s
        return True

    async def sleep(nap_s: float) -> None:
        slept.append(round(nap_s, 6))

    monkeypatch.setattr(stage.pump, "_step", step)
    monkeypatch.setattr("gnomon.worker.pump.asyncio.sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        await stage.pump.keep_pumping()

    assert naps == slept
