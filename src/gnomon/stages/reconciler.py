"""The owner's loop over entities: fire timers, ask about changes, claim, walk, then rest.

Nothing here is needed for safety: the store's fences answer for whatever it does too early, too
late or twice. For one entity only one stage works at a time, because this loop, in the process
that holds the entity's shard, does not claim it again meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from gnomon.clock import DatabaseClock
from gnomon.contracts.companion import Ownership
from gnomon.contracts.env import Env
from gnomon.contracts.store import Holding
from gnomon.contracts.store.entities import (
    Claim,
    EntityStore,
    Offer,
    StageLane,
    Survey,
)
from gnomon.model.errors import Unavailable
from gnomon.stages.asking import Asker
from gnomon.stages.config import StagesConfig
from gnomon.stages.line import Line
from gnomon.stages.running import Runs
from gnomon.stages.served import OutageError, Served
from gnomon.stages.walking import Walker

FEED_BATCH = 500
FIRE_BATCH = 1_000
NAP_S = 0.001
PATIENCE = timedelta(seconds=30)  # so long a stage waits for those that can wake it
DECLARE_EVERY_S = 30.0


class Reconciler:
    """Brings entities to the stages served here, in the shards this process holds."""

    def __init__(
        self,
        store: EntityStore,
        stages: Sequence[Served],
        *,
        ownership: Ownership,
        shard_count: int,
        env: Env,
        config: StagesConfig | None = None,
        publishes: bool = False,
        saved: Callable[[], None] = lambda: None,  # told after each save
    ) -> None:
        self._store = store
        self._ownership = ownership
        self._shard_count = shard_count
        self._config = config or StagesConfig()
        self._clock = env.clock
        self._entropy = env.entropy
        self._observer = env.observer
        self.time = DatabaseClock(env.clock)
        by_name = {served.info.name: served for served in stages}
        self.asker = Asker(
            by_name, env=env, depth_max=self._config.depth_max, grain=self._config.grain
        )
        self._runs = Runs(
            store,
            self.asker,
            config=self._config,
            env=env,
            publishes=publishes,
            saved=self._saved,
        )
        self._tell_saved = saved
        self.tell_starved: Callable[[], None] = lambda: None  # when a stage may not do what it has
        ranked = sorted(stages, key=lambda served: self.asker.graph.rank[served.info.name])
        self._lines: Mapping[str, Line] = {each.info.name: Line(each) for each in ranked}
        self._walker = Walker(store, self.asker, self._lines, env=env, offered=self._offered)
        self._busy: set[str] = set()  # entities that a stage works on, or is about to
        self._unblocked = 0  # how often: what was looked for before the last time may be there now
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._survey: Survey | None = None
        self._survey_at = 0.0
        self._is_stale = True  # something happened since the last survey
        self._declare_at = 0.0
        self._description = 0  # counts how often a stage has described itself anew
        self._announced = -1  # the description that the register and the log know
        self._fed = False
        self._is_walking = False
        self._held: frozenset[int] = frozenset()

    # -- what others tell it ----------------------------------------------------------------------

    def hint(self, shards: Collection[int]) -> None:
        """Something may have changed in these shards."""
        if not shards or not self._held.isdisjoint(shards):
            self._unblock()
            self._is_stale = self._fed = True
            self._wake.set()

    def wake(self) -> None:
        """Look again."""
        self._unblock()
        self._is_stale = True
        self._wake.set()

    def redescribed(self, name: str) -> None:
        """A stage elsewhere is another one now, or there again: order and declaration follow."""
        self.asker.relearn()
        rank = self.asker.graph.rank
        self._lines = dict(sorted(self._lines.items(), key=lambda each: rank[each[0]]))
        self._lines[name].capacity.came_back(self._lines[name].served.info)
        self._description += 1
        self.wake()

    @property
    def lines(self) -> Mapping[str, Line]:
        """The stages' work in this process."""
        return self._lines

    @property
    def in_hand(self) -> int:
        """Calls on their way."""
        return len(self._tasks)

    # -- the loop ---------------------------------------------------------------------------------

    async def declare(self) -> None:
        """Tell the register which stages are served here; warn of what looks wrong with them."""
        description = self._description  # another one may come meanwhile
        every = [line.served.info for line in self._lines.values()]
        infos = [info for info in every if info.revision]
        known = await self._store.declare(
            {info.name: info.revision for info in infos},
            formerly={info.name: info.formerly for info in infos if info.formerly},
            backfill=[info.name for info in infos if info.backfill],
        )
        for info in infos:
            before = known.get(info.name)
            is_news = self._announced != description
            if is_news and before is not None and before > info.revision:
                self._observer.event(
                    "stage_outdated", stage=info.name, revision=info.revision, known=before
                )
        if self._announced == description:
            return
        self._announced = description
        for circle in self.asker.graph.circles:
            self._observer.event("stages_may_loop", stages=", ".join(circle))
        for one, other in self.asker.graph.shared:
            self._observer.event("stages_share_fields", stages=f"{one}, {other}")

    async def keep_reconciling(self) -> None:
        """Work until cancelled; an unavailable store is waited for."""
        while True:
            try:
                await self._declare_in_time()
                busy = await self.step()
            except Unavailable as exc:
                self._observer.count("store_errors", operation="reconcile")
                self._observer.event("reconcile_failed", error=str(exc))
                await asyncio.sleep(self._config.poll.total_seconds())
                continue
            if busy:
                await asyncio.sleep(0)
            else:
                await self._rest()

    async def _declare_in_time(self) -> None:
        """Again and again, so that the register knows that the stages are served."""
        now = self._clock.monotonic()
        if now < self._declare_at and self._announced == self._description:
            return
        await self.declare()
        self._declare_at = now + DECLARE_EVERY_S
        for line in self._lines.values():
            info = line.served.info
            if info.sweep_every is not None and info.revision:
                await self._store.begin_sweep(
                    info.name, reason="sweep in turn", unless_within=info.sweep_every
                )

    async def idle(self) -> None:
        """Wait until no call is on its way; those that follow from it included."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def drain(self, within: timedelta) -> None:
        """Let calls end; those that do not are dropped: their rows are still in the queue."""
        for line in self._lines.values():
            self._let_go(line)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=within.total_seconds())
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def step(self) -> bool:
        """One round; True if there may be more to do at once."""
        self._wake.clear()
        holdings = self._ownership.trusted()
        self._note_holdings(holdings)
        if not holdings:
            self._survey_at = self._clock.monotonic() + self._config.poll.total_seconds()
            return False
        did = await self._fire(holdings)
        # Side by side, for most of the time is spent waiting for the store.
        asked = asyncio.create_task(self._ask(holdings), name="stage-asks")
        try:
            did = await self._claim_all(holdings) or did
        finally:
            did = await asked or did
        self._walk(holdings)
        is_late = self._clock.monotonic() >= self._survey_at  # also when there is always something
        if is_late or (not did and self._is_stale):
            did = await self._look(holdings) or did
        return did

    def _note_holdings(self, holdings: Sequence[Holding]) -> None:
        held = frozenset(each.shard for each in holdings)
        if held != self._held:
            self._held = held
            self._is_stale = self._fed = True
        for line in self._lines.values():
            line.capacity.share = len(held) / self._shard_count

    async def _rest(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._rest_s()):
                await self._wake.wait()

    def _rest_s(self) -> float:
        now, time = self._clock.monotonic(), self.time.now()
        rest_s = self._survey_at - now
        timer_at = self._survey.timer_at if self._survey else None
        for at in (timer_at, *self._open_times(now)):
            if at is not None:
                rest_s = min(rest_s, (at - time).total_seconds())
        for line in self._lines.values():
            if line.next_at and not line.capacity.free(now) and line.capacity.next_at(now) > now:
                rest_s = min(rest_s, line.capacity.next_at(now) - now)
        return max(rest_s, NAP_S)

    def _open_times(self, now: float) -> list[datetime]:
        lines = (line for line in self._lines.values() if line.capacity.free(now))
        return [at for line in lines for at in line.open_times()]

    def next_at(self) -> datetime | None:
        """When something is due next, as of the last survey; for those who own the time."""
        times = [self._due_at(line) for line in self._lines.values() if line.next_at]
        if self._survey and self._survey.timer_at:
            times.append(self._survey.timer_at)
        if self._survey and self._survey.outgoing_at:
            times.append(self._survey.outgoing_at)
        return min(times, default=None)

    def _due_at(self, line: Line) -> datetime:
        """When its next row is ready and it has room."""
        now = self._clock.monotonic()
        room_in_s = line.capacity.next_at(now) - now
        rounded = timedelta(seconds=room_in_s, microseconds=1 if room_in_s else 0)
        return max(self.time.now() + rounded, min(line.next_at.values()))

    # -- looking ----------------------------------------------------------------------------------

    async def _look(self, holdings: Sequence[Holding]) -> bool:
        """Learn what there is to do; True if some of it is due."""
        self._is_stale = False
        if self._clock.monotonic() >= self._survey_at:
            self._unblock()  # there may be what nobody told of
        self._survey_at = self._clock.monotonic() + self._config.poll.total_seconds()
        survey = self._survey = await self._store.survey(holdings)
        self.time.observe(survey.now)
        self._fed = self._fed or survey.fed
        for line in self._lines.values():
            line.next_at.clear()
        for each in survey.ready:
            if each.stage in self._lines:
                self._lines[each.stage].next_at[each.lane] = each.at
        now = self._clock.monotonic()
        is_due = any(at <= survey.now for at in self._open_times(now))
        is_fired = survey.timer_at is not None and survey.timer_at <= survey.now
        is_walking = any(stage in self._lines for stage, _ in survey.sweeps)
        return is_due or survey.fed or is_fired or is_walking

    def _saved(self, offers: Sequence[Offer]) -> None:
        """A commit of ours was saved, with these offers."""
        self._offered(offers)
        self._tell_saved()

    def _offered(self, offers: Sequence[Offer]) -> None:
        """Rows were put into queues by a commit of ours."""
        now = self.time.now()
        for offer in offers:
            line = self._lines.get(offer.stage)
            if offer.ready and offer.looping is None and line is not None:
                line.note(offer.lane, now + offer.delay)
            if offer.wake is not None:
                self._is_stale = True
        self._wake.set()

    # -- timers and changes -----------------------------------------------------------------------

    async def _fire(self, holdings: Sequence[Holding]) -> bool:
        timer_at = self._survey.timer_at if self._survey else None
        if timer_at is None or timer_at > self.time.now():
            return False
        fired = await self._store.fire(holdings, limit=FIRE_BATCH)
        self._unblock()
        self._is_stale = True
        if not fired:
            await self._look(holdings)
        else:
            self._observer.count("stage_timers", fired)
        return fired > 0

    async def _ask(self, holdings: Sequence[Holding]) -> bool:
        """Ask the stages about what others changed."""
        if not self._fed:
            return False
        self._fed = False  # before looking: a hint that comes meanwhile is about something else
        try:
            fed = await self._store.feed(holdings, limit=FEED_BATCH, skip=())
        except Unavailable:
            self._fed = True
            raise
        self._fed = self._fed or len(fed) >= FEED_BATCH
        if not fed:
            return False
        held = [(each, self._ownership.holding(each.entity.shard)) for each in fed]
        now = self.time.now()
        answers = [self.asker.answer(each, holding, now) for each, holding in held if holding]
        for answer, stored in zip(answers, await self._store.asked(answers), strict=True):
            if stored:
                self._offered(answer.offers)
        self._is_stale = True
        return True

    def _walk(self, holdings: Sequence[Holding]) -> None:
        """Let walks go on beside all this: what is fresh does not wait for them."""
        if self._survey is None or not self._survey.sweeps or self._is_walking:
            return
        self._is_walking = True
        task = asyncio.create_task(self._walk_on(self._survey.sweeps, holdings), name="stage-walk")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _walk_on(self, walks: Sequence[tuple[str, int]], holdings: Sequence[Holding]) -> None:
        try:
            if await self._walker.walk(walks, holdings, self.time.now()):
                self._is_stale = True
                self._wake.set()
        except Unavailable as exc:
            self._observer.count("store_errors", operation="walk")
            self._observer.event("walk_failed", error=str(exc))
        finally:
            self._is_walking = False

    # -- claiming ---------------------------------------------------------------------------------

    async def _claim_all(self, holdings: Sequence[Holding]) -> bool:
        now = self._clock.monotonic()
        claims = []
        for line in self._lines.values():
            if line.capacity.free(now):
                self._start(line)  # of what was claimed while there was no room
                claims.append(self._claim(line, holdings))
            elif line.is_waiting and not line.capacity.granted:
                self.tell_starved()
        found = await asyncio.gather(*claims, return_exceptions=True)
        for each in found:
            if isinstance(each, BaseException):
                raise each
        return any(found)

    async def _claim(self, line: Line, holdings: Sequence[Holding]) -> bool:
        """Load entities for a stage, of both lanes."""
        did = False
        for lane in StageLane:
            room = line.room(lane, self._config.claim_ahead)
            if room:
                did = await self._peek(line, lane, room, holdings) or did
        self._start(line)
        return did

    async def _peek(
        self, line: Line, lane: StageLane, limit: int, holdings: Sequence[Holding]
    ) -> bool:
        at = line.next_at.get(lane)
        if at is None or at > self.time.now() or lane in line.blocked:
            return False
        del line.next_at[lane]
        skip = () if line.served.info.alongside else tuple(self._busy)
        unblocked = self._unblocked
        claims = await self._store.peek(
            holdings, line.served.info.name, lane, limit=limit, skip=skip
        )
        if len(claims) >= limit:
            line.note(lane, at)
        taken = [claim for claim in claims if self._is_free(line, claim)]
        line.take_in(lane, taken, self._clock.monotonic())
        if not line.served.info.alongside:
            self._busy.update(claim.entity.id for claim in taken)
        self._is_stale = True
        if not taken and unblocked == self._unblocked:
            line.blocked.add(lane)
        return bool(taken)

    def _is_free(self, line: Line, claim: Claim) -> bool:
        """Nobody else has claimed it meanwhile, and stages that can wake this one come first: if
        they can work, and not for long, or a slow one would hold up the others."""
        if line.served.info.alongside:
            return True
        if claim.entity.id in self._busy:
            return False
        ready_at = claim.row.ready_at
        if ready_at is None or claim.now - ready_at > PATIENCE:
            return True
        now = self._clock.monotonic()
        first = claim.waiting & self.asker.graph.before[line.served.info.name]
        return not any(
            self._lines[name].capacity.is_open(now) and not self._lines[name].served.info.alongside
            for name in first
        )

    def _start(self, line: Line) -> None:
        name = f"stage-{line.served.info.name}"
        while line.may_begin(self._clock.monotonic()):
            batch = line.next_batch(self.time.now())
            line.capacity.began(len(batch))
            task = asyncio.create_task(self._perform(line, batch), name=name)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _perform(self, line: Line, claims: list[Claim]) -> None:
        held = [(claim, self._ownership.holding(claim.entity.shard)) for claim in claims]
        ours = [(claim, holding) for claim, holding in held if holding is not None]
        try:
            if ours:
                await self._runs.perform(
                    line.served, [claim for claim, _ in ours], [holding for _, holding in ours]
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
            self._observer.count("stage_bugs", stage=line.served.info.name)
            self._observer.event(
                "stage_bug", stage=line.served.info.name, error=f"{type(exc).__name__}: {exc}"
            )
        finally:
            line.capacity.ended()
            if not line.served.info.alongside:
                self._busy.difference_update(claim.entity.id for claim in claims)
            self._unblock()
            self._is_stale = True
            self._wake.set()
            self._start(line)

    def _unblock(self) -> None:
        self._unblocked += 1
        for line in self._lines.values():
            line.blocked.clear()

    def _let_go(self, line: Line) -> None:
        """Forget what was claimed ahead: other stages need not wait for this one."""
        gone = line.let_go()
        if not line.served.info.alongside:
            self._busy.difference_update(claim.entity.id for claim in gone)
