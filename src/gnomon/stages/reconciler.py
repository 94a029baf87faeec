"""The owner's loop over entities: fire timers, ask about changes, claim, backfill, then rest.

Nothing here is needed for safety: the store's fences answer for whatever it does too early, too
late or twice.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from gnomon.clock import DatabaseClock, wait_set
from gnomon.contracts.env import Env
from gnomon.contracts.leased_service import Ownership
from gnomon.contracts.store import HeldShard, Store
from gnomon.contracts.store.batches import BATCH_BYTES_MAX
from gnomon.contracts.store.outbox import RELAY_SINK
from gnomon.contracts.store.queues import Commit, NextWork, Routing, size_of
from gnomon.contracts.store.register import RELAY_DECLARATION
from gnomon.model.errors import Unavailable
from gnomon.stages.announcement import announce
from gnomon.stages.attendance import AttendanceWatch, StageShards
from gnomon.stages.backfill import Backfiller
from gnomon.stages.bound_stage import BoundStage
from gnomon.stages.change_router import ChangeRouter
from gnomon.stages.claims import StageClaims
from gnomon.stages.config import StagesConfig
from gnomon.stages.documents import LoadedDocuments
from gnomon.stages.held import HeldPauses
from gnomon.stages.pipeline import BackgroundShare, StagePipeline
from gnomon.stages.runner import StageRunner

FEED_BATCH = 500
FIRE_BATCH = 1_000
NAP_S = 0.001
ASK_WITHIN_S = 1.0
FIRE_AGAIN_S = 0.2  # after timers that were due, and that somebody holds
DECLARE_EVERY_S = 30.0


class Reconciler:
    """Brings entities to the stages of this process, in the shards that it holds."""

    def __init__(
        self,
        store: Store,
        stages: Sequence[BoundStage],
        *,
        ownership: Ownership,
        shard_count: int,
        env: Env,
        config: StagesConfig | None = None,
        has_relay: bool = False,
        saved: Callable[[Sequence[Commit]], None] = lambda _: None,  # told after saves
    ) -> None:
        self._queues = store.queues
        self._register = store.register
        self._shard_count = shard_count
        self._config = config or StagesConfig()
        self._clock = env.clock
        self._entropy = env.entropy
        self._observer = env.observer
        self.time = DatabaseClock(env.clock)
        by_name = {stage.info.name: stage for stage in stages}
        self._has_relay = has_relay
        serves = [*by_name, RELAY_SINK] if has_relay else [*by_name]
        self.shards = StageShards(ownership, serves, env)
        self.attendance = AttendanceWatch(store.register, self.shards, ownership=ownership, env=env)
        documents = LoadedDocuments()
        self.router = ChangeRouter(
            by_name,
            documents,
            env=env,
            depth_max=self._config.depth_max,
            grain=self._config.grain,
        )
        background = self._background = BackgroundShare()
        pipelines = {name: StagePipeline(stage, background) for name, stage in by_name.items()}
        self.claims = StageClaims(
            store.queues,
            self.router,
            StageRunner(
                store.queues,
                self.router,
                documents,
                config=self._config,
                env=env,
                pipelines=pipelines,
            ),
            pipelines.values(),
            shards=self.shards,
            env=env,
            time=self.time,
            config=self._config,
        )
        self.claims.tell_saved = saved
        self.claims.in_order()
        self._pipelines: Mapping[str, StagePipeline] = self.claims.pipelines
        self._backfiller = Backfiller(
            store.queues,
            self.router,
            self._pipelines,
            background,
            shards=self.shards,
            env=env,
            tell_enqueued=self.claims.tell_enqueued,
        )
        self._survey: NextWork | None = None
        self._survey_at = 0.0
        self._behind_until = 0.0  # looks that come between do not put it off
        self._declare_at = 0.0
        self._description = 0  # counts how often a stage has described itself anew
        self._announced = -1  # the description that the register and the log know
        self._has_changes = False
        self._ask_by = -math.inf  # there is more to ask about than one batch: no later than this
        self._held_changes: HeldPauses[str] = HeldPauses()  # entities
        self._fire_again_at = 0.0
        self._declaring_failed = False
        self._is_backfilling = False
        self._is_held = False  # the background lane, and backfills with it
        self._held: frozenset[int] = frozenset()

    # -- what others tell it ----------------------------------------------------------------------

    def hint(self, shards: Collection[int]) -> None:
        """Something may have changed in these shards."""
        if not shards or not self._held.isdisjoint(shards):
            self.claims.is_stale = self._has_changes = True
            self.claims.woken.set()

    def wake(self) -> None:
        """Look again."""
        self.claims.is_stale = True
        self.claims.woken.set()

    def hold_background(self, *, held: bool) -> None:
        """Let no backfill go on and begin no background row, until it is said again."""
        self._is_held = held
        self.claims.hold_background(held=held)

    def redescribed(self, name: str) -> None:
        """A stage elsewhere is another one now, or there again: order and declaration follow."""
        self.router.relearn()
        self.claims.in_order()
        self._pipelines[name].capacity.came_back(self._pipelines[name].stage.info)
        self._description += 1
        self.wake()

    @property
    def pipelines(self) -> Mapping[str, StagePipeline]:
        """The stages' work in this process."""
        return self._pipelines

    # -- the loop ---------------------------------------------------------------------------------

    async def declare(self) -> None:
        """Tell the register which stages are served here; warn of what looks wrong with them."""
        description = self._description  # another one may come meanwhile
        every = [pipeline.stage.info for pipeline in self._pipelines.values()]
        infos = [info for info in every if info.revision]
        declarations = [info.declaration() for info in infos]
        if self._has_relay:
            declarations.append(RELAY_DECLARATION)
        if not declarations:
            return
        known = await self._register.declare(declarations)
        if self._announced != description:
            self._announced = description
            announce(self._observer, self.router.graph, infos, known)

    async def keep_reconciling(self) -> None:
        """Work until cancelled; an unavailable store is waited for."""
        while True:
            try:
                await self._declare_or_tell()
                busy = await self.step()
            except Unavailable as exc:
                self._tell_failed(exc)
                await asyncio.sleep(self._config.poll.total_seconds())
                continue
            if busy:
                await asyncio.sleep(0)
            else:
                await self._rest()

    def _tell_failed(self, error: Unavailable) -> None:
        self._observer.count("store_errors", operation="reconcile")
        self._observer.event("reconcile_failed", error=str(error))

    async def _declare_or_tell(self) -> None:
        """Somebody may hold what a new revision frees: the stages work meanwhile."""
        try:
            await self.declare_in_time()
            self._declaring_failed = False
        except Unavailable as exc:
            self._tell_failed(exc)
            self._declaring_failed = True
            self._declare_at = self._clock.monotonic() + self._config.poll.total_seconds()

    async def declare_in_time(self) -> None:
        """Declare the stages every half minute: the register knows then that they are served."""
        now = self._clock.monotonic()
        is_known = self._announced == self._description
        if now < self._declare_at and (is_known or self._declaring_failed):
            return
        await self.declare()
        self._declare_at = now + DECLARE_EVERY_S
        for pipeline in self._pipelines.values():
            info = pipeline.stage.info
            if info.backfill_every is not None and info.revision:
                await self._register.begin_backfill(
                    info.name, reason="backfill in turn", unless_within=info.backfill_every
                )

    async def step(self) -> bool:
        """One round; True if there may be more to do at once."""
        self.claims.woken.clear()
        await self._attend_in_time()
        holdings = self.shards.trusted()
        self._note_holdings(holdings)
        if not self._held or not self.attendance.has_stages:
            self._survey_at = self._clock.monotonic() + self._config.poll.total_seconds()
            return False
        did = await self._fire(holdings)
        # Side by side, for most of the time is spent waiting for the store.
        results = await asyncio.gather(
            self._ask(holdings), self.claims.claim_all(), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result
            did = did or result
        self._start_backfills()
        is_late = self._clock.monotonic() >= self._survey_at  # also when there is always something
        if is_late or (not did and self.claims.is_stale):
            did = await self._look(holdings) or did
        return did

    async def _attend_in_time(self) -> None:
        """Know who serves what, and all stages that are to be told of changes."""
        if self.attendance.is_due and await self.attendance.attend():
            self.router.know(self.attendance.elsewhere)
            self.claims.in_order()

    def _note_holdings(self, holdings: Sequence[HeldShard]) -> None:
        guests = self.shards.guests()
        held = frozenset(holding.shard for holding in holdings).union(*guests.values())
        if held != self._held:
            self._held = held
            self.claims.is_stale = self._has_changes = True
        for name, pipeline in self._pipelines.items():
            shards = len(holdings) + len(guests.get(name, ()))
            pipeline.capacity.share = shards / self._shard_count

    async def _rest(self) -> None:
        await wait_set(self.claims.woken, self._rest_s())

    def _rest_s(self) -> float:
        now, time = self._clock.monotonic(), self.time.now()
        rest_s = self._survey_at - now
        for at in self._open_times(now):
            rest_s = min(rest_s, (at - time).total_seconds())
        if self._survey and self._survey.timer_at:
            timer_s = (self._survey.timer_at - time).total_seconds()
            rest_s = min(rest_s, max(timer_s, self._fire_again_at - now))
        if self._held_changes.next_at is not None:
            rest_s = min(rest_s, self._held_changes.next_at - now)
        for pipeline in self._pipelines.values():
            if (
                pipeline.is_waiting
                and not pipeline.capacity.free(now)
                and pipeline.capacity.next_at(now) > now
            ):
                rest_s = min(rest_s, pipeline.capacity.next_at(now) - now)
        if self._background.rest_until > now:
            rest_s = min(rest_s, self._background.rest_until - now)
        return max(rest_s, NAP_S)

    def _open_times(self, now: float) -> list[datetime]:
        pipelines = (
            pipeline for pipeline in self._pipelines.values() if pipeline.capacity.free(now)
        )
        return [
            at
            for pipeline in pipelines
            for at in pipeline.open_times(now, self._config.claim_ahead)
        ]

    def next_at(self) -> datetime | None:
        """When something is due next, as of the last survey; for those who own the time."""
        times = [
            self._due_at(pipeline) for pipeline in self._pipelines.values() if pipeline.is_waiting
        ]
        if self._survey and self._survey.timer_at:
            times.append(self._survey.timer_at)
        return min(times, default=None)

    def _due_at(self, pipeline: StagePipeline) -> datetime:
        """When its next row is ready and it has room."""
        now = self._clock.monotonic()
        room_in_s = pipeline.capacity.next_at(now) - now
        rounded = timedelta(seconds=room_in_s, microseconds=1 if room_in_s else 0)
        ready_at = self.time.now() if pipeline.has_claims else min(pipeline.next_at.values())
        return max(self.time.now() + rounded, ready_at)

    # -- looking ----------------------------------------------------------------------------------

    async def _look(self, holdings: Sequence[HeldShard]) -> bool:
        """Learn what there is to do; True if some of it is due."""
        self.claims.is_stale = False
        if self._clock.monotonic() >= self._behind_until:
            self._behind_until = self._clock.monotonic() + self._config.poll.total_seconds()
            for pipeline in self._pipelines.values():
                pipeline.behind.clear()  # there may be what nobody told of
            self.claims.let_go_of_old()
        self._survey_at = self._clock.monotonic() + self._config.poll.total_seconds()
        for pipeline in self._pipelines.values():
            pipeline.next_at.clear()  # before looking: what comes meanwhile may be newer
        survey = self._survey = await self._surveyed(holdings)
        self.time.observe(survey.now)
        self._has_changes = self._has_changes or survey.has_changes
        for ready in survey.ready:
            if ready.stage in self._pipelines:
                self._pipelines[ready.stage].note(ready.lane, ready.at)
        now = self._clock.monotonic()
        is_due = any(at <= survey.now for at in self._open_times(now))
        is_fired = survey.timer_at is not None and survey.timer_at <= survey.now
        is_backfilling = not self._is_held and bool(survey.backfills)
        return is_due or survey.has_changes or is_fired or is_backfilling

    async def _surveyed(self, holdings: Sequence[HeldShard]) -> NextWork:
        """What there is in the shards held here; and, of the stages that are guests, elsewhere."""
        here = await self._queues.next_work(holdings)
        ours = [(stage, shard) for stage, shard in here.backfills if stage in self._pipelines]
        survey = replace(here, backfills=ours)
        guests = self.shards.guests()
        shards = {shard: held for at in guests.values() for shard, held in at.items()}
        if not shards:
            return survey
        there = await self._queues.next_work(list(shards.values()))
        return replace(
            survey,
            ready=[*survey.ready, *(lane for lane in there.ready if lane.stage in guests)],
            backfills=[*survey.backfills, *(
                (stage, shard) for stage, shard in there.backfills
                if shard in guests.get(stage, ()) and self.attendance.may_backfill(stage)
            )],
        )  # fmt: skip

    # -- timers and changes -----------------------------------------------------------------------

    async def _fire(self, holdings: Sequence[HeldShard]) -> bool:
        if not self._is_timer_due or self._clock.monotonic() < self._fire_again_at:
            return False
        fired = await self._queues.fire_timers(holdings, limit=FIRE_BATCH)
        self.claims.is_stale = True
        if fired:
            self._observer.count("stage_timers", fired)
            return True
        await self._look(holdings)
        if self._is_timer_due:
            self._fire_again_at = self._clock.monotonic() + FIRE_AGAIN_S
        return False

    @property
    def _is_timer_due(self) -> bool:
        timer_at = self._survey.timer_at if self._survey else None
        return timer_at is not None and timer_at <= self.time.now()

    async def _ask(self, holdings: Sequence[HeldShard]) -> bool:
        """Ask the stages about what others changed."""
        if self._held_changes.end(self._clock.monotonic()):
            self._has_changes = True
        if not self._has_changes:
            return False
        if self.claims.is_behind and self._clock.monotonic() < self._ask_by:
            return False
        self._has_changes = (
            False  # before looking: a hint that comes meanwhile is about something else
        )
        try:
            changed = await self._queues.changed_entities(
                holdings, limit=FEED_BATCH, skip=self._held_changes.waiting
            )
        except Unavailable:
            self._has_changes = True
            raise
        size = sum(size_of(change.entity, change.states) for change in changed)
        is_full = len(changed) >= FEED_BATCH or size >= BATCH_BYTES_MAX
        self._has_changes = self._has_changes or is_full
        # As long as saves wait for the store, more of many changes would only go through the queue.
        self._ask_by = self._clock.monotonic() + ASK_WITHIN_S if is_full else -math.inf
        if not changed:
            return False
        held = [(change, self.shards.holding(change.entity.shard)) for change in changed]
        now = self.time.now()
        ours = [(change, holding) for change, holding in held if holding]
        answers = [self.router.route(change, holding, now) for change, holding in ours]
        stored = await self._queues.route(answers)
        for answer, made in zip(answers, stored, strict=True):
            if made is None:  # somebody holds it, or the shard is another's by now
                self._put_off(answer)
        self.claims.asked([change for change, _ in ours], answers, stored)
        return True

    def _put_off(self, held: Routing) -> None:
        is_new = self._held_changes.put_off(held.entity_key, self._clock.monotonic())
        if is_new and self.shards.holding(held.shard) is not None:
            self._observer.event("entity_held", entity=held.entity_key)

    def _start_backfills(self) -> None:
        """Let backfills go on beside all this: what is fresh does not wait for them."""
        if (
            self._survey is None
            or not self._survey.backfills
            or self._is_backfilling
            or self._is_held
        ):
            return
        self._is_backfilling = True
        self.claims.begin(self._run_backfills(self._survey.backfills), "stage-backfill")

    async def _run_backfills(self, backfills: Sequence[tuple[str, int]]) -> None:
        """Advance these (stage, shard) by a page each, beside the other work."""
        try:
            if await self._backfiller.advance(backfills, self.time.now()):
                self.claims.is_stale = True
                self.claims.woken.set()
        except Unavailable as exc:
            self._observer.count("store_errors", operation="backfill")
            self._observer.event("backfill_failed", error=str(exc))
        finally:
            self._is_backfilling = False
