"""Claims, and the calls of stages about them.

For one entity only one stage works at a time, because this, in the process that holds the entity's
shard, does not claim it again meanwhile. What a save makes ready is claimed at once, from memory,
if nothing else waits for its stage; otherwise it is found in the queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from gnomon.clock import DatabaseClock
from gnomon.contracts.env import Env
from gnomon.contracts.store import HeldShard
from gnomon.contracts.store.queues import (
    ChangedEntity,
    ClaimedEntity,
    Commit,
    Enqueue,
    NewRow,
    QueueStore,
    Routing,
    StageLane,
)
from gnomon.model.errors import Unavailable
from gnomon.stages.attendance import StageShards
from gnomon.stages.bound_stage import OutageError
from gnomon.stages.change_router import ChangeRouter
from gnomon.stages.config import StagesConfig
from gnomon.stages.follow_up import claims_after_asking, claims_after_save
from gnomon.stages.pipeline import StagePipeline
from gnomon.stages.runner import StageRunner
from gnomon.stages.stage_run import SavedRun

PATIENCE = timedelta(seconds=30)  # so long a stage waits for those that can wake it


class ClockReading(NamedTuple):
    """The present by both clocks."""

    monotonic: float
    time: datetime


class StageClaims:
    """What the stages of this process have in hand."""

    def __init__(
        self,
        store: QueueStore,
        asker: ChangeRouter,
        runs: StageRunner,
        lines: Iterable[StagePipeline],
        *,
        places: StageShards,
        env: Env,
        time: DatabaseClock,
        config: StagesConfig,
    ) -> None:
        self._store = store
        self._asker = asker
        self._runs = runs
        self._places = places
        self._clock = env.clock
        self._observer = env.observer
        self._time = time
        self._config = config
        self.woken = asyncio.Event()  # there may be something to do
        self.is_stale = True  # something happened whose consequences are not known here
        self.tell_saved: Callable[[Sequence[Commit]], None] = lambda _: None  # after saves
        self.tell_starved: Callable[[], None] = lambda: None  # when a stage may not do what it has
        self.lines = {line.served.info.name: line for line in lines}
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy: set[str] = set()  # entities that a stage works on, or is about to
        self._freed = 0  # how often some of them were: what was looked for before may be there now
        self._is_draining = False

    def in_order(self) -> None:
        """The lines by the rank of their stages."""
        rank = self._asker.graph.rank
        ordered = sorted(self.lines.items(), key=lambda each: rank[each[0]])
        self.lines.clear()
        self.lines.update(ordered)

    @property
    def in_hand(self) -> int:
        """Calls on their way, and what else was begun here."""
        return len(self._tasks)

    def begin(self, call: Coroutine[Any, Any, None], name: str) -> None:
        """Let it go on by itself; it is waited for like a call."""
        task = asyncio.create_task(call, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def idle(self) -> None:
        """Wait until no call is on its way; those that follow from it included."""
        while self._tasks:
            await asyncio.wait(self._tasks)
            await asyncio.sleep(0)  # what has ended is forgotten in a turn of its own

    async def drain(self, within: timedelta) -> None:
        """Let calls end; those that do not are dropped: their rows are still in the queue."""
        self._is_draining = True
        for line in self.lines.values():
            self._let_go(line)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=within.total_seconds())
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def hold_background(self, *, held: bool) -> None:
        """Begin nothing of the background lane, until it is said again."""
        for line in self.lines.values():
            gone = line.hold_background(held=held)
            self._free(line, [claim.entity.id for claim in gone])
        self.is_stale = True
        self.woken.set()

    # -- what follows at once ---------------------------------------------------------------------

    def asked(
        self,
        fed: Sequence[ChangedEntity],
        answers: Sequence[Routing],
        made: Sequence[tuple[NewRow, ...] | None],
    ) -> None:
        """The stages were asked about these, and rows were made for what they want."""
        now, followers = self._moment(), list[ClaimedEntity]()
        for each, answer, rows in zip(fed, answers, made, strict=True):
            if rows is None:
                continue
            claims = claims_after_asking(each, answer.enqueues, rows)
            is_busy = each.entity.id in self._busy
            followers += self._followers(claims, answer.enqueues, now, is_busy=is_busy)
        self._follow(followers, now)

    def _after_saves(self, line: StagePipeline, saved: Sequence[SavedRun]) -> None:
        """What follows from commits of ours, at once or later."""
        now, followers = self._moment(), list[ClaimedEntity]()
        is_busy = line.served.info.alongside  # with some other stage, perhaps
        for claim, commit, answer in saved:
            if any(isinstance(part.wake, datetime) for part in commit.parts):
                self.is_stale = True
            claims = claims_after_save(claim, commit, answer.made) if answer.made else ()
            followers += self._followers(claims, commit.enqueues, now, is_busy=is_busy)
        self._follow(followers, now)
        if saved:
            self.tell_saved([part for _, commit, _ in saved for part in commit.parts])

    def _moment(self) -> ClockReading:
        return ClockReading(self._clock.monotonic(), self._time.now())

    def _followers(
        self,
        claims: Iterable[ClaimedEntity],
        offers: Sequence[Enqueue],
        now: ClockReading,
        *,
        is_busy: bool,
    ) -> list[ClaimedEntity]:
        """Of the claims on one entity that offers made, those that their stages may have at once:
        one at a time, and besides it those that work alongside. The other rows are looked for."""
        chosen: dict[str, ClaimedEntity] = {}
        for claim in claims:
            name = claim.row.stage
            line = self.lines.get(name)
            if line is None or not line.may_follow(*now, self._config.claim_ahead):
                continue
            if not self._is_ours_alone(claim):
                continue
            if line.served.info.alongside:
                chosen[name] = claim
            elif not is_busy and self._comes_first(line, claim):
                chosen[name], is_busy = claim, True
        if len(chosen) < len(offers):
            self._note_offers([each for each in offers if each.stage not in chosen], now.time)
        return list(chosen.values())

    def _is_ours_alone(self, claim: ClaimedEntity) -> bool:
        """Whether its stage works here, and no other process has a stage that waits for it: who
        comes first of those, the store says."""
        shard = claim.entity.shard
        return self._places.at(claim.row.stage, shard) is not None and not any(
            self._places.is_elsewhere(stage, shard) for stage in claim.waiting
        )

    def _follow(self, claims: Sequence[ClaimedEntity], now: ClockReading) -> None:
        """Take these in: their entities are nobody else's at this moment."""
        for claim in claims:
            line = self.lines[claim.row.stage]
            is_full = not line.may_follow(*now, self._config.claim_ahead)  # by those before it
            if self._is_draining or is_full or not line.capacity.is_open(now.monotonic):
                line.left(StageLane.MAIN, claim.now)
                continue
            if not line.served.info.alongside:
                self._busy.add(claim.entity.id)
            line.take_in(StageLane.MAIN, [claim], now.monotonic)
        for name in dict.fromkeys(claim.row.stage for claim in claims):
            self._start(self.lines[name])

    def offered(self, offers: Sequence[Enqueue]) -> None:
        """Rows were put into queues by us: they are to be looked for."""
        self._note_offers(offers, self._time.now())

    def _note_offers(self, offers: Sequence[Enqueue], now: datetime) -> None:
        for offer in offers:
            line = self.lines.get(offer.stage)
            if offer.ready and offer.looping is None and line is not None:
                line.left(offer.lane, now + max(offer.delay, offer.debounce))
            if offer.wake is not None:
                self.is_stale = True
        self.woken.set()

    # -- claiming ---------------------------------------------------------------------------------

    async def claim_all(self) -> bool:
        """Claim what is due for stages that have room; True if there was any."""
        now = self._clock.monotonic()
        claims = []
        for line in self.lines.values():
            if line.capacity.free(now):
                self._start(line)  # of what was claimed while there was no room
                claims.append(self._claim(line))
            elif line.is_waiting and line.capacity.is_short:
                self.tell_starved()
        found = await asyncio.gather(*claims, return_exceptions=True)
        for each in found:
            if isinstance(each, BaseException):
                raise each
        return any(found)

    async def _claim(self, line: StagePipeline) -> bool:
        """Load entities for a stage, of both lanes."""
        did, holdings = False, self._places.of(line.served.info.name)
        if not holdings:
            return False
        for lane in StageLane:
            room = line.room(lane, self._clock.monotonic(), self._config.claim_ahead)
            if room:
                did = await self._peek(line, lane, room, holdings) or did
        self._start(line)
        return did

    async def _peek(
        self, line: StagePipeline, lane: StageLane, limit: int, holdings: Sequence[HeldShard]
    ) -> bool:
        at = line.next_at.get(lane)
        if at is None or at > self._time.now():
            return False
        del line.next_at[lane]
        line.lagging_since.pop(lane, None)
        freed = self._freed
        peeked = await self._store.lane_head(
            holdings, line.served.info.name, lane, limit=limit, skip={*line.claimed, *line.behind}
        )
        if line.is_held and lane is StageLane.BACKGROUND:
            return False  # since just now
        if peeked.next_at is not None:
            line.left(lane, peeked.next_at)
        taken = [claim for claim in peeked.claims if self._is_free(line, claim)]
        line.take_in(lane, taken, self._clock.monotonic())
        if not line.served.info.alongside:
            self._busy.update(claim.entity.id for claim in taken)
        left = [claim for claim in peeked.claims if claim.entity.id not in line.claimed]
        if left and freed != self._freed:
            line.note(lane, at)  # what they wait for may be over
        else:
            line.behind.update((claim.entity.id, lane) for claim in left)
        return bool(taken)

    def _is_free(self, line: StagePipeline, claim: ClaimedEntity) -> bool:
        """Nobody else has claimed it meanwhile, and no other stage comes first."""
        if claim.entity.id in line.claimed:
            return False
        if line.served.info.alongside:
            return True
        return (
            claim.entity.id not in self._busy
            and self._comes_first(line, claim)
            and self._is_first_of_all(claim)
        )

    def _is_first_of_all(self, claim: ClaimedEntity) -> bool:
        """Whether no other process works on the entity, or is about to: of all rows that are due
        the first comes first, wherever its stage is. They are not waited for for ever."""
        ready_at = claim.row.ready_at
        if not claim.ahead or ready_at is None or claim.now - ready_at > PATIENCE:
            return True
        shard = claim.entity.shard
        return not any(self._places.is_elsewhere(stage, shard) for stage in claim.ahead)

    def _comes_first(self, line: StagePipeline, claim: ClaimedEntity) -> bool:
        """Stages that can wake this one come before it: if they can work, and not for long, or a
        slow one would hold up the others."""
        first = claim.waiting & self._asker.graph.before[line.served.info.name]
        if not first:
            return True
        ready_at = claim.row.ready_at
        if ready_at is None or claim.now - ready_at > PATIENCE:
            return True
        now = self._clock.monotonic()
        return not any(
            other.capacity.is_open(now) and not other.served.info.alongside
            for name in first
            if (other := self.lines.get(name)) is not None
        )

    def _start(self, line: StagePipeline) -> None:
        name = f"stage-{line.served.info.name}"
        while line.may_begin(now := self._clock.monotonic()):
            batch = line.next_batch(now, self._time.now())
            line.began(batch, now)
            self.begin(self._perform(line, batch), name)

    def _start_all_after(self, line: StagePipeline) -> None:
        """In turn: the background lanes may have to share one call, and none shall starve."""
        lines = list(self.lines.values())
        place = lines.index(line) + 1
        for each in (*lines[place:], *lines[:place]):
            self._start(each)

    async def _perform(self, line: StagePipeline, claims: list[ClaimedEntity]) -> None:
        stage = line.served.info.name
        held = [(claim, self._places.at(stage, claim.entity.shard)) for claim in claims]
        ours = [(claim, holding) for claim, holding in held if holding is not None]
        saved: list[SavedRun] = []
        try:
            if ours:
                await self._runs.perform(
                    line.served,
                    [claim for claim, _ in ours],
                    [holding for _, holding in ours],
                    saved,
                )
            line.capacity.went_well()
        except OutageError as exc:
            wanted_s = exc.after.total_seconds() if exc.after else 0.0
            pause_s = line.capacity.was_away(self._clock.monotonic(), at_least_s=wanted_s)
            self._let_go(line)
            self._observer.event(
                "stage_away", stage=line.served.info.name, error=str(exc), pause_s=pause_s
            )
        except Unavailable as exc:
            self._observer.count("store_errors", operation="reconcile")
            self._observer.event("reconcile_failed", error=str(exc))
        except Exception as exc:  # noqa: BLE001 - the service loop boundary: its rows are still there
            await self._blame(line, ours, exc)
        finally:
            line.ended(claims, self._clock.monotonic())
            self._free(line, [claim.entity.id for claim in claims])
            self._after_saves(line, saved)
            if len(saved) < len(claims):  # of what was saved there is nothing left to learn
                self.is_stale = True
            self.woken.set()
            self._start_all_after(line)

    async def _blame(
        self,
        line: StagePipeline,
        pairs: Sequence[tuple[ClaimedEntity, HeldShard]],
        error: Exception,
    ) -> None:
        """An error that nobody foresaw: told, counted and not repeated at once."""
        name = line.served.info.name
        self._observer.count("stage_bugs", stage=name)
        self._observer.event("stage_bug", stage=name, error=f"{type(error).__name__}: {error}")
        line.capacity.was_away(self._clock.monotonic())
        try:
            await self._runs.fail(line.served, pairs, error)
        except Unavailable as exc:
            self._observer.count("store_errors", operation="reconcile")
            self._observer.event("reconcile_failed", error=str(exc))

    def _free(self, line: StagePipeline, entity_ids: Sequence[str]) -> None:
        """The stage is done with these: it is the turn of others."""
        line.claimed.difference_update(entity_ids)
        if line.served.info.alongside:
            return
        self._freed += 1
        self._busy.difference_update(entity_ids)
        now = self._time.now()
        for other in self.lines.values():
            other.freed(entity_ids, now)

    def let_go_of_old(self) -> None:
        """What a busy stage claimed long ago and has not begun, others may have before it."""
        before = self._time.now() - PATIENCE
        for line in self.lines.values():
            gone = line.let_go(before)
            if gone:
                self._free(line, [claim.entity.id for claim in gone])

    def _let_go(self, line: StagePipeline) -> None:
        """Forget what was claimed ahead: other stages need not wait for this one."""
        self._free(line, [claim.entity.id for claim in line.let_go()])
        self.is_stale = True
        self.woken.set()
