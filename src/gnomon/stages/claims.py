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
from gnomon.model.attempt_boundary import AttemptBoundary
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


class CallRoom:
    """The room of one call of a stage. It is left as soon as the stage has answered: to write what
    it said is no call, and the next one need not wait for that."""

    __slots__ = ("_is_taken", "_left", "_pipeline")

    def __init__(self, pipeline: StagePipeline, left: Callable[[StagePipeline], None]) -> None:
        self._pipeline = pipeline
        self._left = left
        self._is_taken = True

    def leave(self) -> None:
        """Once, however often it is said."""
        if self._is_taken:
            self._is_taken = False
            self._pipeline.capacity.ended()
            self._left(self._pipeline)


class StageClaims:
    """What the stages of this process have in hand."""

    def __init__(
        self,
        store: QueueStore,
        router: ChangeRouter,
        runs: StageRunner,
        pipelines: Iterable[StagePipeline],
        *,
        shards: StageShards,
        env: Env,
        time: DatabaseClock,
        config: StagesConfig,
    ) -> None:
        self._store = store
        self._router = router
        self._runs = runs
        self._shards = shards
        self._clock = env.clock
        self._observer = env.observer
        self._time = time
        self._config = config
        self.woken = asyncio.Event()  # there may be something to do
        self.is_stale = True  # something happened whose consequences are not known here
        self.tell_saved: Callable[[Sequence[Commit]], None] = lambda _: None  # after saves
        self.tell_starved: Callable[[], None] = lambda: None  # when a stage may not do what it has
        self.pipelines = {pipeline.stage.info.name: pipeline for pipeline in pipelines}
        self._tasks: dict[asyncio.Task[None], None] = {}  # in order, as the slots of attempts
        self._busy: set[str] = set()  # entities that a stage works on, or is about to
        self._wanting: set[str] = set()  # stages of this process, of the changes asked about last
        self._freed = 0  # how often some of them were: what was looked for before may be there now
        self._is_draining = False

    def in_order(self) -> None:
        """The pipelines by the rank of their stages."""
        rank = self._router.graph.rank
        ordered = sorted(self.pipelines.items(), key=lambda item: rank[item[0]])
        self.pipelines.clear()
        self.pipelines.update(ordered)

    @property
    def in_hand(self) -> int:
        """Calls on their way, and what else was begun here."""
        return len(self._tasks)

    @property
    def is_behind(self) -> bool:
        """Whether more changes could not be followed up at once: saves wait for the store, or none
        of the stages that wanted the last ones has room."""
        if self._runs.is_behind:
            return True
        now, wanting = self._moment(), [self.pipelines[name] for name in self._wanting]
        return bool(wanting) and not any(
            pipeline.may_follow(*now, self._config.claim_ahead) for pipeline in wanting
        )

    def begin(self, call: Coroutine[Any, Any, None], name: str) -> None:
        """Let it go on by itself; it is waited for like a call."""
        task = asyncio.create_task(call, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def idle(self) -> None:
        """Wait until no call is on its way; those that follow from it included."""
        while self._tasks:
            await asyncio.wait(self._tasks)
            await asyncio.sleep(0)  # what has ended is forgotten in a turn of its own

    async def drain(self, within: timedelta) -> None:
        """Let calls end; those that do not are dropped: their rows are still in the queue."""
        self._is_draining = True
        for pipeline in self.pipelines.values():
            self._let_go(pipeline)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=within.total_seconds())
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def hold_background(self, *, held: bool) -> None:
        """Begin nothing of the background lane, until it is said again."""
        for pipeline in self.pipelines.values():
            gone = pipeline.hold_background(held=held)
            self._free(pipeline, [claim.entity.key for claim in gone])
        self.is_stale = True
        self.woken.set()

    # -- what follows at once ---------------------------------------------------------------------

    def asked(
        self,
        changed: Sequence[ChangedEntity],
        answers: Sequence[Routing],
        made: Sequence[tuple[NewRow, ...] | None],
    ) -> None:
        """The stages were asked about these, and rows were made for what they want."""
        now, followers = self._moment(), list[ClaimedEntity]()
        rooms = self._rooms(now)
        names = {enqueue.stage for answer in answers for enqueue in answer.enqueues}
        self._wanting = names & self.pipelines.keys()
        for change, answer, rows in zip(changed, answers, made, strict=True):
            if rows is None:
                continue
            claims = claims_after_asking(change, answer.enqueues, rows)
            is_busy = change.entity.key in self._busy
            followers += self._followers(claims, answer.enqueues, now, rooms, is_busy=is_busy)
        self._follow(followers, now)

    def _after_saves(self, pipeline: StagePipeline, saved: Sequence[SavedRun]) -> None:
        """What follows from commits of ours, at once or later."""
        now, followers = self._moment(), list[ClaimedEntity]()
        rooms = self._rooms(now)
        is_busy = pipeline.stage.info.alongside  # with some other stage, perhaps
        for claim, commit, answer in saved:
            if _sets_timer(commit):
                self.is_stale = True
            claims = claims_after_save(claim, commit, answer.made) if answer.made else ()
            followers += self._followers(claims, commit.enqueues, now, rooms, is_busy=is_busy)
        self._follow(followers, now)
        if saved:
            self.tell_saved([part for _, commit, _ in saved for part in commit.parts])

    def _moment(self) -> ClockReading:
        return ClockReading(self._clock.monotonic(), self._time.now())

    def _rooms(self, now: ClockReading) -> frozenset[str]:
        """The stages that may have at once what becomes ready this moment."""
        ahead = self._config.claim_ahead
        return frozenset(
            name for name, pipeline in self.pipelines.items() if pipeline.may_follow(*now, ahead)
        )

    def _followers(
        self,
        claims: Iterable[ClaimedEntity],
        enqueues: Sequence[Enqueue],
        now: ClockReading,
        rooms: frozenset[str],
        *,
        is_busy: bool,
    ) -> list[ClaimedEntity]:
        """Of the claims on one entity that enqueues made, those that their stages may have at once:
        one at a time, and besides it those that work alongside. The other rows are looked for."""
        chosen: dict[str, ClaimedEntity] = {}
        for claim in claims:
            name = claim.row.stage
            if name not in rooms or not self._is_ours_alone(claim):
                continue
            pipeline = self.pipelines[name]
            if pipeline.stage.info.alongside:
                chosen[name] = claim
            elif not is_busy and self._comes_first(pipeline, claim):
                chosen[name], is_busy = claim, True
        if len(chosen) < len(enqueues):
            others = [enqueue for enqueue in enqueues if enqueue.stage not in chosen]
            self._note_enqueues(others, now.time)
        return list(chosen.values())

    def _is_ours_alone(self, claim: ClaimedEntity) -> bool:
        """Whether its stage works here, and no other process has a stage that waits for it: who
        comes first of those, the store says."""
        shard = claim.entity.shard
        return self._shards.at(claim.row.stage, shard) is not None and not any(
            self._shards.is_elsewhere(stage, shard) for stage in claim.waiting
        )

    def _follow(self, claims: Sequence[ClaimedEntity], now: ClockReading) -> None:
        """Take these in: their entities are nobody else's at this moment."""
        by_stage: dict[str, list[ClaimedEntity]] = {}
        for claim in claims:
            by_stage.setdefault(claim.row.stage, []).append(claim)
        for name, some in by_stage.items():
            pipeline = self.pipelines[name]
            left: Sequence[ClaimedEntity] = some
            if not self._is_draining and pipeline.capacity.is_open(now.monotonic):
                left = pipeline.take_followers(some, now.monotonic, self._config.claim_ahead)
            if not pipeline.stage.info.alongside:
                taken = some[: len(some) - len(left)]
                self._busy.update(claim.entity.key for claim in taken)
            for claim in left:
                pipeline.left(StageLane.MAIN, claim.now)
        for name in by_stage:
            self._start(self.pipelines[name])

    def tell_enqueued(self, enqueues: Sequence[Enqueue]) -> None:
        """Rows were put into queues by us: they are to be looked for."""
        self._note_enqueues(enqueues, self._time.now())

    def _note_enqueues(self, enqueues: Sequence[Enqueue], now: datetime) -> None:
        for enqueue in enqueues:
            pipeline = self.pipelines.get(enqueue.stage)
            if enqueue.ready and enqueue.looping is None and pipeline is not None:
                pipeline.left(enqueue.lane, now + max(enqueue.delay, enqueue.debounce))
            if enqueue.wake is not None:
                self.is_stale = True
        self.woken.set()

    # -- claiming ---------------------------------------------------------------------------------

    async def claim_all(self) -> bool:
        """Claim what is due for stages that have room; True if there was any."""
        now = self._clock.monotonic()
        claims = []
        for pipeline in self.pipelines.values():
            if pipeline.capacity.free(now):
                self._start(pipeline)  # of what was claimed while there was no room
                claims.append(self._claim(pipeline))
            elif pipeline.is_waiting and pipeline.capacity.is_short:
                self.tell_starved()
        results = await asyncio.gather(*claims, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return any(results)

    async def _claim(self, pipeline: StagePipeline) -> bool:
        """Load entities for a stage, of both lanes."""
        did, holdings = False, self._shards.of(pipeline.stage.info.name)
        if not holdings:
            return False
        for lane in StageLane:
            room = pipeline.room(lane, self._clock.monotonic(), self._config.claim_ahead)
            if room:
                did = await self._peek(pipeline, lane, room, holdings) or did
        self._start(pipeline)
        return did

    async def _peek(
        self, pipeline: StagePipeline, lane: StageLane, limit: int, holdings: Sequence[HeldShard]
    ) -> bool:
        at = pipeline.next_at.get(lane)
        if at is None or at > self._time.now():
            return False
        del pipeline.next_at[lane]
        pipeline.lagging_since.pop(lane, None)
        freed = self._freed
        pipeline.held.end(self._clock.monotonic())
        peeked = await self._store.lane_head(
            holdings,
            pipeline.stage.info.name,
            lane,
            limit=limit,
            skip={*pipeline.claimed, *pipeline.behind, *pipeline.held.waiting},
        )
        self._note_held(pipeline, lane)
        if pipeline.is_held and lane is StageLane.BACKGROUND:
            return False  # since just now
        if peeked.next_at is not None:
            pipeline.left(lane, peeked.next_at)
        taken = [claim for claim in peeked.claims if self._is_free(pipeline, claim)]
        pipeline.take_in(lane, taken, self._clock.monotonic())
        if not pipeline.stage.info.alongside:
            self._busy.update(claim.entity.key for claim in taken)
        left = [claim for claim in peeked.claims if claim.entity.key not in pipeline.claimed]
        if left and freed != self._freed:
            pipeline.note(lane, at)  # what they wait for may be over
        else:
            pipeline.behind.update((claim.entity.key, lane) for claim in left)
        return bool(taken)

    def _note_held(self, pipeline: StagePipeline, lane: StageLane) -> None:
        """Look again when the first of those that somebody holds may be tried again."""
        at = pipeline.held.next_at
        if at is not None:
            wait_s = max(0.0, at - self._clock.monotonic())
            pipeline.note(lane, self._time.now() + timedelta(seconds=wait_s, microseconds=1))

    def _is_free(self, pipeline: StagePipeline, claim: ClaimedEntity) -> bool:
        """Nobody else has claimed it meanwhile, and no other stage comes first."""
        if claim.entity.key in pipeline.claimed:
            return False
        if pipeline.stage.info.alongside:
            return True
        return (
            claim.entity.key not in self._busy
            and self._comes_first(pipeline, claim)
            and self._is_first_of_all(claim)
        )

    def _is_first_of_all(self, claim: ClaimedEntity) -> bool:
        """Whether no other process works on the entity, or is about to: of all rows that are due
        the first comes first, wherever its stage is. They are not waited for for ever."""
        ready_at = claim.row.ready_at
        if not claim.ahead or ready_at is None or claim.now - ready_at > PATIENCE:
            return True
        shard = claim.entity.shard
        return not any(self._shards.is_elsewhere(stage, shard) for stage in claim.ahead)

    def _comes_first(self, pipeline: StagePipeline, claim: ClaimedEntity) -> bool:
        """Stages that can wake this one come before it: if they can work, and not for long, or a
        slow one would hold up the others."""
        first = claim.waiting & self._router.graph.before[pipeline.stage.info.name]
        if not first:
            return True
        ready_at = claim.row.ready_at
        if ready_at is None or claim.now - ready_at > PATIENCE:
            return True
        now = self._clock.monotonic()
        return not any(
            other.capacity.is_open(now) and not other.stage.info.alongside
            for name in first
            if (other := self.pipelines.get(name)) is not None
        )

    def _start(self, pipeline: StagePipeline) -> None:
        name = f"stage-{pipeline.stage.info.name}"
        # What was made must be written: no more is made as long as much of it waits for the store.
        while not self._runs.is_behind and pipeline.may_begin(now := self._clock.monotonic()):
            batch = pipeline.next_batch(now, self._time.now())
            pipeline.began(batch, now)
            self.begin(self._perform(pipeline, batch), name)

    def _start_all_after(self, pipeline: StagePipeline) -> None:
        """In turn: the background lanes may have to share one call, and none shall starve."""
        pipelines = list(self.pipelines.values())
        place = pipelines.index(pipeline) + 1
        for follower in (*pipelines[place:], *pipelines[:place]):
            self._start(follower)

    async def _perform(self, pipeline: StagePipeline, claims: list[ClaimedEntity]) -> None:
        stage = pipeline.stage.info.name
        held = [(claim, self._shards.at(stage, claim.entity.shard)) for claim in claims]
        ours = [(claim, holding) for claim, holding in held if holding is not None]
        saved: list[SavedRun] = []
        room = CallRoom(pipeline, self._start)
        try:
            with AttemptBoundary(Exception) as attempt:  # its rows are still there
                await self._call(pipeline, ours, saved, room.leave)
            if attempt.error is not None:
                await self._blame(pipeline, ours, attempt.error)
        finally:
            room.leave()
            pipeline.ended(claims, self._clock.monotonic())
            self._free(pipeline, [claim.entity.key for claim in claims])
            self._after_saves(pipeline, saved)
            if len(saved) < len(claims):  # of what was saved there is nothing left to learn
                self.is_stale = True
            self.woken.set()
            self._start_all_after(pipeline)

    async def _call(
        self,
        pipeline: StagePipeline,
        pairs: Sequence[tuple[ClaimedEntity, HeldShard]],
        saved: list[SavedRun],
        answered: Callable[[], None],
    ) -> None:
        try:
            if pairs:
                await self._runs.perform(
                    pipeline.stage,
                    [claim for claim, _ in pairs],
                    [holding for _, holding in pairs],
                    saved,
                    answered,
                )
            pipeline.capacity.went_well()
        except OutageError as exc:
            wanted_s = exc.after.total_seconds() if exc.after else 0.0
            pause_s = pipeline.capacity.was_away(self._clock.monotonic(), at_least_s=wanted_s)
            self._let_go(pipeline)
            self._observer.event(
                "stage_away", stage=pipeline.stage.info.name, error=str(exc), pause_s=pause_s
            )
        except Unavailable as exc:
            self._tell_store_away(exc)

    def _tell_store_away(self, error: Unavailable) -> None:
        self._observer.count("store_errors", operation="reconcile")
        self._observer.event("reconcile_failed", error=str(error))

    async def _blame(
        self,
        pipeline: StagePipeline,
        pairs: Sequence[tuple[ClaimedEntity, HeldShard]],
        error: Exception,
    ) -> None:
        """An error that nobody foresaw: told, counted and not repeated at once."""
        name = pipeline.stage.info.name
        self._observer.count("stage_bugs", stage=name)
        self._observer.event("stage_bug", stage=name, error=f"{type(error).__name__}: {error}")
        pipeline.capacity.was_away(self._clock.monotonic())
        try:
            await self._runs.fail(pipeline.stage, pairs, error)
        except Unavailable as exc:
            self._tell_store_away(exc)

    def _free(self, pipeline: StagePipeline, entity_keys: Sequence[str]) -> None:
        """The stage is done with these: it is the turn of others."""
        pipeline.claimed.difference_update(entity_keys)
        if pipeline.stage.info.alongside:
            return
        self._freed += 1
        self._busy.difference_update(entity_keys)
        now = self._time.now()
        for other in self.pipelines.values():
            other.freed(entity_keys, now)

    def let_go_of_old(self) -> None:
        """What a busy stage claimed long ago and has not begun, others may have before it."""
        before = self._time.now() - PATIENCE
        for pipeline in self.pipelines.values():
            gone = pipeline.let_go(before)
            if gone:
                self._free(pipeline, [claim.entity.key for claim in gone])

    def _let_go(self, pipeline: StagePipeline) -> None:
        """Forget what was claimed ahead: other stages need not wait for this one."""
        self._free(pipeline, [claim.entity.key for claim in pipeline.let_go()])
        self.is_stale = True
        self.woken.set()


def _sets_timer(commit: Commit) -> bool:
    return isinstance(commit.wake, datetime) or any(
        isinstance(part.wake, datetime) for part in commit.then
    )
