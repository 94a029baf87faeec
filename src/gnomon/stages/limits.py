"""The limits of stages in a process: what the store is told about each stage's calls.

A stage says how parallel and how fast it may be; that is written down as a limit of kind `stage`
when a process begins to serve it, and may be changed while it works. The `limiter` asks how much of
the parallelism is for this process; the rate is split by the shards that each process holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from uuid import UUID

from gnomon.contracts.env import Env
from gnomon.contracts.store import LimitRequest, LimitStore, LimitTable
from gnomon.limiter import AskPace, Limiter
from gnomon.model.errors import Unavailable
from gnomon.model.ids import author_of
from gnomon.model.limits import Limit, LimitKey, LimitKind
from gnomon.stages.pipeline import StagePipeline

PACE = AskPace(read_every_s=2.0, denied_s=0.1, pause_min_s=0.0)
ALIVE_FOR = timedelta(seconds=10)
TRUST_FOR = timedelta(seconds=7)
LINGER_S = 2.0  # so long after its last call a stage keeps its part


class StageLimits:
    """The stages of a process, as the limiter sees them."""

    def __init__(
        self,
        store: LimitStore,
        pipelines: Mapping[str, StagePipeline],
        *,
        worker: UUID,
        env: Env,
        changed: Callable[[], None],
    ) -> None:
        self._store = store
        self._pipelines = pipelines
        self._clock = env.clock
        self._entropy = env.entropy
        self._observer = env.observer
        self._changed = changed
        self._is_changed = False  # the last answer was another one
        self._is_refused = False  # the last answer was less than a stage needs
        self.limiter = Limiter(
            store,
            self,
            worker=worker,
            alive_for=ALIVE_FOR,
            trust_for=TRUST_FOR,
            env=env,
            pace=PACE,
        )

    def wake(self) -> None:
        """A stage has something to do and may not. If the store has just refused it, it is asked
        again in a moment anyway."""
        if not self._is_refused:
            self.limiter.wake()

    async def keep_asking(self) -> None:
        """Ask until cancelled. Nothing begins before the store has said how much may."""
        for pipeline in self._pipelines.values():
            pipeline.capacity.granted = 0
            pipeline.capacity.used_at = self._clock.monotonic()  # there may be a lot to do
        await self._write()
        self.limiter.wake()
        await self.limiter.keep_asking()

    async def _write(self) -> None:
        """The stage's own word counts when a process begins to serve it."""
        for name, pipeline in self._pipelines.items():
            info = pipeline.stage.info
            limit = Limit(kind=LimitKind.STAGE, name=name, parallel=info.parallel, rate=info.rate)
            is_set = await self._store_limit(limit)
            while not is_set:
                await asyncio.sleep(PACE.denied_s)
                is_set = await self._store_limit(limit)

    async def _store_limit(self, limit: Limit) -> bool:
        """Store the limit that a stage declares; whether the store took it."""
        try:
            guid = self._entropy.guid()
            await self._store.set(limit, guid=guid, actor=author_of(limit.name))
        except Unavailable as exc:
            self._observer.count("store_errors", operation="set_limit")
            self._observer.event("share_failed", error=str(exc))
            return False
        return True

    # -- what the limiter asks --------------------------------------------------------------------

    @property
    def is_denied(self) -> bool:
        return any(
            pipeline.is_waiting and pipeline.capacity.is_short
            for pipeline in self._pipelines.values()
        )

    def limit_keys(self) -> Collection[LimitKey]:
        return [_key(name) for name in self._pipelines]

    def set_limits(self, table: LimitTable) -> None:
        limits = {use.limit.key: use.limit for use in table.uses}
        for name, pipeline in self._pipelines.items():
            limit = limits.get(_key(name))
            pipeline.capacity.limit = None if limit is None else limit.parallel
            pipeline.capacity.rate_limit = None if limit is None else limit.rate

    def requests(self) -> dict[LimitKey, LimitRequest]:
        now = self._clock.monotonic()
        return {
            _key(name): _request_of(pipeline, now) for name, pipeline in self._pipelines.items()
        }

    def grant(self, answer: Mapping[LimitKey, int], trusted_until: float) -> None:
        for name, pipeline in self._pipelines.items():
            allowed = answer.get(_key(name))  # None leaves the stage its own word
            self._is_changed = self._is_changed or pipeline.capacity.granted != allowed
            pipeline.capacity.granted = allowed
            pipeline.capacity.granted_until = trusted_until

    def end_round(self) -> None:
        self._is_refused = self.is_denied
        if self._is_changed:
            self._is_changed = False
            self._changed()


def _request_of(pipeline: StagePipeline, now: float) -> LimitRequest:
    capacity = pipeline.capacity
    # One call stays with an idle stage, if there is one for each: what is fresh need not ask. All
    # of its part, if it was not idle a moment ago: in a chain each has something now and then, and
    # what finds no room goes through the queue.
    was_used = now - capacity.used_at < LINGER_S
    wanted = capacity.fair_part if was_used else min(1, capacity.fair_part)
    if pipeline.is_waiting or capacity.running:
        wanted = capacity.parallel_all
    if capacity.granted is not None:  # what is not needed is not used from here on
        capacity.granted = max(capacity.running, min(capacity.granted, wanted))
    held = capacity.running if capacity.granted is None else capacity.granted
    return LimitRequest(held=max(held, capacity.running), wanted=max(wanted, capacity.running))


def _key(stage: str) -> LimitKey:
    return LimitKey(LimitKind.STAGE, stage)
