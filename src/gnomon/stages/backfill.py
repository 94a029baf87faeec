"""Walks over the whole base, in the background lane: a new stage, a raised revision, by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from gnomon.contracts.env import Env
from gnomon.contracts.store import HeldShard
from gnomon.contracts.store.queues import ChangedEntity, Enqueue, QueueStore, Routing
from gnomon.stages.attendance import StageShards
from gnomon.stages.change_router import ChangeRouter, asked_of, view_of_fed
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
        asker: ChangeRouter,
        lines: Mapping[str, StagePipeline],
        background: BackgroundShare,
        *,
        places: StageShards,
        env: Env,
        offered: Callable[[Sequence[Enqueue]], None],
    ) -> None:
        self._store = store
        self._asker = asker
        self._lines = lines
        self._background = background
        self._places = places
        self._clock = env.clock
        self._entropy = env.entropy
        self._offered = offered
        self._turn = 0

    async def advance(self, backfills: Sequence[tuple[str, int]], now: datetime) -> bool:
        """Go on with some of the walks by a page, in turn; True if any went on."""
        ours = [(self._lines[stage], held) for stage, shard in backfills
                if stage in self._lines and (held := self._places.at(stage, shard))]  # fmt: skip
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
            line, held = ours[self._turn % len(ours)]
            self._turn += 1
            pages += await self._page(line, held, now)
            if pages >= PAGES_AT_ONCE or (pages and not self._is_quiet):
                break
        return pages > 0

    @property
    def _is_quiet(self) -> bool:
        return self._background.is_quiet(self._clock.monotonic())

    async def _page(self, line: StagePipeline, held: HeldShard, now: datetime) -> bool:
        info = line.served.info
        shards = max(1, len(self._places.of(info.name)))
        # The queue can never overflow: the walk stops while the stage has enough to do.
        backlog_max = max(BACKLOG_MIN, 2 * info.batch * info.parallel // shards)
        size = PAGE if self._is_quiet else PAGE_BESIDE
        page = await self._store.backfill_page(held, info.name, limit=size, backlog_max=backlog_max)
        if page is None:
            return False
        answers = [self._asked(line, held, fed, page.reason, now) for fed in page.entities]
        wanted = [answer for answer in answers if answer.enqueues]
        moved_on = await self._store.advance_backfill(
            held, info.name, started_at=page.started_at, cursor=page.cursor, routings=wanted
        )
        if moved_on:
            for answer in wanted:
                self._offered(answer.enqueues)
        return True

    def _asked(
        self, line: StagePipeline, held: HeldShard, fed: ChangedEntity, reason: str, now: datetime
    ) -> Routing:
        offer = self._asker.backfill_enqueue(
            line.served.info.name,
            view_of_fed(fed, now),
            reason=reason,
            root=self._entropy.token(),
        )
        return asked_of(fed, held, () if offer is None else (offer,))
