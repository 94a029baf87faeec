"""Walks over the whole base, in the background lane: a new stage, a raised revision, by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from gnomon.contracts.env import Env
from gnomon.contracts.store import HeldShard
from gnomon.contracts.store.queues import ChangedEntity, Enqueue, QueueStore, Routing
from gnomon.stages.attendance import StageShards
from gnomon.stages.bound_stage import StageInput
from gnomon.stages.change_router import ChangeRouter, routing_of
from gnomon.stages.documents import LoadedDocument
from gnomon.stages.held import HeldPauses
from gnomon.stages.pipeline import BackgroundShare, StagePipeline

PAGE = 100
PAGE_BESIDE = 16  # while there is something fresh
PAGES_AT_ONCE = 4  # then what is fresh has its turn
LOOKS_AT_ONCE = 16  # where a stage has enough to do there is no page
BACKLOG_MIN = 16


class Backfiller:
    """Shows the entities of the held shards to a stage, page by page."""

    def __init__(
        self,
        store: QueueStore,
        router: ChangeRouter,
        pipelines: Mapping[str, StagePipeline],
        background: BackgroundShare,
        *,
        shards: StageShards,
        env: Env,
        tell_enqueued: Callable[[Sequence[Enqueue]], None],
    ) -> None:
        self._store = store
        self._router = router
        self._pipelines = pipelines
        self._background = background
        self._shards = shards
        self._clock = env.clock
        self._entropy = env.entropy
        self._tell_enqueued = tell_enqueued
        self._turn = 0
        self._held: HeldPauses[tuple[str, int]] = HeldPauses()  # (stage, shard)

    async def advance(self, backfills: Sequence[tuple[str, int]], now: datetime) -> bool:
        """Advance some of the backfills by a page, in turn; True if any went on."""
        self._held.end(self._clock.monotonic())
        ours = [
            (self._pipelines[stage], held)
            for stage, shard in backfills
            if stage in self._pipelines
            and (stage, shard) not in self._held
            and (held := self._shards.at(stage, shard))
        ]
        if not ours or not self._background.may_begin(self._clock.monotonic()):
            return False
        self._background.began(self._clock.monotonic())
        try:
            return await self._advance(ours, now)
        finally:
            self._background.ended(self._clock.monotonic())

    async def _advance(
        self, ours: Sequence[tuple[StagePipeline, HeldShard]], now: datetime
    ) -> bool:
        pages = 0
        for _ in range(min(LOOKS_AT_ONCE, len(ours))):
            pipeline, held = ours[self._turn % len(ours)]
            self._turn += 1
            pages += await self._page(pipeline, held, now)
            if pages >= PAGES_AT_ONCE or (pages and not self._is_quiet):
                break
        return pages > 0

    @property
    def _is_quiet(self) -> bool:
        return self._background.is_quiet(self._clock.monotonic())

    async def _page(self, pipeline: StagePipeline, held: HeldShard, now: datetime) -> bool:
        info = pipeline.stage.info
        shards = max(1, len(self._shards.of(info.name)))
        # The queue can never overflow: the backfill stops while the stage has enough to do.
        backlog_max = max(BACKLOG_MIN, 2 * info.batch * info.parallel // shards)
        size = PAGE if self._is_quiet else PAGE_BESIDE
        page = await self._store.backfill_page(held, info.name, limit=size, backlog_max=backlog_max)
        if page is None:
            return False
        answers = [
            self._asked(pipeline, held, changed, page.reason, now) for changed in page.entities
        ]
        wanted = [answer for answer in answers if answer.enqueues]
        moved_on = await self._store.advance_backfill(
            held, info.name, started_at=page.started_at, cursor=page.cursor, routings=wanted
        )
        if not moved_on:  # somebody holds one of these, or it is not ours any more
            self._held.put_off((info.name, held.shard), self._clock.monotonic())
            return False
        for answer in wanted:
            self._tell_enqueued(answer.enqueues)
        return True

    def _asked(
        self,
        pipeline: StagePipeline,
        held: HeldShard,
        changed: ChangedEntity,
        reason: str,
        now: datetime,
    ) -> Routing:
        """What a stage wants with an entity that its backfill came to, as a routing."""
        entity = changed.entity
        assert entity.doc is not None
        enqueue = self._router.backfill_enqueue(
            pipeline.stage.info.name,
            StageInput(entity, LoadedDocument(entity.doc), changed.states, now),
            reason=reason,
            root=self._entropy.token(),
        )
        return routing_of(changed, held, () if enqueue is None else (enqueue,))
