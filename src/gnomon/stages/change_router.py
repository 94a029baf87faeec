"""After a change: which stages want to look at the entity, and how soon.

Few are asked: not the author, not one that does not watch what changed, not one in whose queue the
entity is already. A stage that fails to answer gets the entity anyway. A circle that is proved, or
a chain that is too deep, is parked with its proof; a stage woken too often is woken later.
"""

from __future__ import annotations

import math
import zlib
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Protocol
from uuid import UUID

import msgspec

from gnomon.contracts.env import Env
from gnomon.contracts.store import HeldShard
from gnomon.contracts.store.queues import ChangedEntity, Enqueue, Routing, StageLane
from gnomon.model.outcome import cut
from gnomon.model.stage.chain import Buckets
from gnomon.model.stage.graph import Graph, build_graph
from gnomon.stages.bound_stage import StageInfo, StageInput
from gnomon.stages.capacity import AskBreaker
from gnomon.stages.stage import Wake

REASON_CHARS_MAX = 200
SLOW_ASK_S = 0.005
WOKEN_KEPT = 10_000
ASK_FAILED = "ask failed"
UNASKED = "unasked"


class EntityChange(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A change that stages are asked about."""

    paths: tuple[str, ...]
    author: str  # `user`, a caller's name, or `stage:<name>`
    reason: str
    root: UUID
    depth: int
    circle: tuple[str, ...] = ()  # the stages of a proved loop that this change closes
    trail: tuple[str, ...] = ()  # who made the changes before it in its chain


class KnownStage(Protocol):
    """A stage, as far as it matters here."""

    @property
    def info(self) -> StageInfo: ...

    @property
    def asks_here(self) -> bool:
        """Whether `ask` is a function call; if not, it is asked when its turn comes."""
        ...

    def ask(self, view: StageInput) -> bool | Wake:
        """`should_process`. May raise anything."""
        ...


class ChangeRouter:
    """Asks the stages that are served here, and speaks for all others of the register."""

    def __init__(
        self, stages: Mapping[str, KnownStage], *, env: Env, depth_max: int, grain: timedelta
    ) -> None:
        self._here = stages
        self._elsewhere: Mapping[str, KnownStage] = {}
        self.graph, self._stages = _in_order(stages)
        self._clock = env.clock
        self._observer = env.observer
        self._depth_max = depth_max
        self._grain_s = grain.total_seconds()
        self._buckets = Buckets(len(stages))
        self._woken_by: dict[tuple[str, tuple[str, ...]], tuple[KnownStage, ...]] = {}
        self._breakers: defaultdict[str, AskBreaker] = defaultdict(AskBreaker)

    def relearn(self) -> None:
        """A stage has described itself anew: the order of all may be another one."""
        self.graph, self._stages = _in_order({**self._elsewhere, **self._here})
        self._woken_by.clear()

    def know(self, elsewhere: Mapping[str, KnownStage]) -> None:
        """These are the stages of the register that are not served here."""
        self._elsewhere = elsewhere
        self.relearn()

    @property
    def _deepest(self) -> int:
        """A chain that goes round in no circle is no longer than there are stages."""
        return self._depth_max + len(self._stages) - len(self.graph.circling)

    def is_deep(self, depth: int) -> bool:
        """Whether a chain is longer than any should be."""
        return depth >= self._deepest

    def offers(
        self, view: StageInput, change: EntityChange, waiting: Collection[str]
    ) -> tuple[Enqueue, ...]:
        """What the stages want of a changed entity."""
        found = []
        for stage in self._woken(change.author, change.paths):
            offer = self._offer(stage, view, change, is_waiting=stage.info.name in waiting)
            if offer is not None:
                found.append(offer)
        return tuple(found)

    def wakes_any(self, author: str, paths: tuple[str, ...]) -> bool:
        """Whether there is anybody to ask about a change."""
        return bool(self._woken(author, paths))

    def _woken(self, author: str, paths: tuple[str, ...]) -> tuple[KnownStage, ...]:
        """Who watches what changed; the same few changes come again and again."""
        known = self._woken_by.get((author, paths))
        if known is not None:
            return known
        if len(self._woken_by) >= WOKEN_KEPT:
            self._woken_by.clear()
        found = tuple(
            stage
            for name, stage in self._stages.items()
            if author != author_of(name) and stage.info.reach.is_woken_by(paths)
        )
        self._woken_by[author, paths] = found
        return found

    def answer(self, fed: ChangedEntity, held: HeldShard, now: datetime) -> Routing:
        """What the stages want of an entity that was changed from outside."""
        entity = fed.entity
        offers: tuple[Enqueue, ...] = ()
        if entity.doc is not None and fed.changes:
            newest = fed.changes[-1]
            paths = tuple(sorted({path for note in fed.changes for path in note.paths}))
            change = EntityChange(
                paths=paths,
                author=newest.author if len(fed.changes) == 1 else "",
                reason=reason_of(newest.version, newest.author, paths),
                root=newest.root,
                depth=0,
            )
            waiting = {name for name, row in fed.waiting.items() if row.status == "ready"}
            offers = self.offers(view_of_fed(fed, now), change, waiting)
        return asked_of(fed, held, offers)

    def backfill_enqueue(
        self, name: str, view: StageInput, *, reason: str, root: UUID
    ) -> Enqueue | None:
        """What one stage wants of an entity that a walk came by."""
        stage = self._stages[name]
        change = EntityChange(paths=(), author="", reason=reason, root=root, depth=0)
        if not stage.asks_here:
            return self._ready(stage, change, f"{UNASKED}: {reason}", lane=StageLane.BACKGROUND)
        return self._asked(stage, view, change, lane=StageLane.BACKGROUND)

    def timer(self, name: str, entity_id: str, at: datetime) -> datetime:
        """A moment as it is stored: spread by the stage's wish, rounded up to the grain."""
        spread = self._stages[name].info.spread
        if spread:
            at += spread * _fraction(f"{name}\x00{entity_id}")
        if not self._grain_s:
            return at
        late_s = math.ceil(at.timestamp() / self._grain_s) * self._grain_s - at.timestamp()
        return at + timedelta(seconds=late_s) if late_s > 0 else at

    def _offer(
        self, stage: KnownStage, view: StageInput, change: EntityChange, *, is_waiting: bool
    ) -> Enqueue | None:
        if not stage.asks_here:
            offer: Enqueue | None = self._ready(stage, change, f"{UNASKED}: {change.reason}")
        elif is_waiting:
            offer = self._ready(stage, change, change.reason)
        else:
            offer = self._asked(stage, view, change)
        if offer is None or not offer.ready or change.depth == 0:
            return offer
        return self._held_in_check(offer, view, change)

    def _asked(
        self,
        stage: KnownStage,
        view: StageInput,
        change: EntityChange,
        lane: StageLane = StageLane.MAIN,
    ) -> Enqueue | None:
        name = stage.info.name
        breaker, began = self._breakers[name], self._clock.monotonic()
        try:
            answer = stage.ask(view)
        except Exception as exc:  # noqa: BLE001 - the attempt boundary: queued anyway
            breaker.count(began, failed=True)
            self._observer.count("stage_asks", stage=name, answer="failed")
            reason = cut(f"{ASK_FAILED}: {type(exc).__name__}: {exc}", REASON_CHARS_MAX)
            delay = timedelta(seconds=breaker.pause_s(began))
            return self._ready(stage, change, reason, lane=lane, delay=delay)
        breaker.count(began, failed=False)
        took_s = self._clock.monotonic() - began
        if took_s > SLOW_ASK_S:
            self._observer.event("slow_ask", stage=name, took_s=took_s, entity=view.entity_id)
        shown = "later" if isinstance(answer, Wake) else "yes" if answer else "no"
        self._observer.count("stage_asks", stage=name, answer=shown)
        if isinstance(answer, Wake):
            return self._armed(stage, view, change, answer.at)
        return self._ready(stage, change, change.reason, lane=lane) if answer else None

    def _armed(
        self, stage: KnownStage, view: StageInput, change: EntityChange, at: datetime | None
    ) -> Enqueue | None:
        if at is None:
            return None
        wake = self.timer(stage.info.name, view.entity_id, at)
        return Enqueue(
            stage=stage.info.name, reason=change.reason, root=change.root, ready=False, wake=wake
        )

    def _ready(
        self,
        stage: KnownStage,
        change: EntityChange,
        reason: str,
        lane: StageLane = StageLane.MAIN,
        delay: timedelta = timedelta(0),
    ) -> Enqueue:
        return Enqueue(
            stage=stage.info.name,
            reason=cut(reason, REASON_CHARS_MAX),
            root=change.root,
            depth=change.depth,
            lane=lane,
            delay=delay,
            # A backfill changes nothing: it need not wait for quiet, and frees no parked row.
            debounce=timedelta(0) if lane is StageLane.BACKGROUND else stage.info.debounce,
            frees=lane == StageLane.MAIN,
        )

    def _held_in_check(self, offer: Enqueue, view: StageInput, change: EntityChange) -> Enqueue:
        """A wake-up by another stage: park it if it is a loop, delay it if there are too many."""
        proof = None
        if offer.stage in change.circle:
            proof = f"loop: {' → '.join((*change.circle, change.circle[0]))}"
        elif offer.stage in self.graph.circling and self.is_deep(change.depth):
            trail = " → ".join((*change.trail, offer.stage))
            proof = f"depth limit {self._deepest}: {trail}"
        if proof is not None:
            self._observer.count("stage_loops", stage=offer.stage)
            self._observer.event(
                "stage_loop", stage=offer.stage, entity=view.entity_id, proof=proof
            )
        delay = timedelta(0)
        if offer.stage in self.graph.circling:  # others are woken by each of those before them
            now = self._clock.monotonic()
            delay = self._buckets.take(view.entity_id, offer.stage, change.root, now)
        if proof is None and delay <= offer.delay:
            return offer
        return Enqueue(
            stage=offer.stage,
            reason=offer.reason,
            root=offer.root,
            depth=offer.depth,
            lane=offer.lane,
            delay=max(delay, offer.delay),
            debounce=offer.debounce,
            frees=offer.frees,
            looping=proof,
        )


def _in_order(stages: Mapping[str, KnownStage]) -> tuple[Graph, dict[str, KnownStage]]:
    graph = build_graph({name: each.info.reach for name, each in stages.items()})
    return graph, dict(sorted(stages.items(), key=lambda each: graph.rank[each[0]]))


def asked_of(fed: ChangedEntity, held: HeldShard, offers: tuple[Enqueue, ...]) -> Routing:
    """An answer about an entity, with its fences."""
    return Routing(
        entity_id=fed.entity.id,
        shard=held.shard,
        lease_guid=held.lease_guid,
        seq=fed.seq,
        epoch=fed.entity.epoch,
        version=fed.entity.version,
        enqueues=offers,
    )


def view_of_fed(fed: ChangedEntity, now: datetime) -> StageInput:
    """An entity as stages are asked about it."""
    assert fed.entity.doc is not None
    return StageInput(
        entity_id=fed.entity.id,
        epoch=fed.entity.epoch,
        version=fed.entity.version,
        text=fed.entity.doc,
        states=fed.states,
        now=now,
        reasons=frozenset(),
    )


def author_of(stage: str) -> str:
    """How a stage signs its changes."""
    return f"stage:{stage}"


def reason_of(version: int, author: str, paths: Sequence[str]) -> str:
    """`change v12 by user: price`."""
    return f"change v{version} by {_by(author, tuple(paths))}"


@lru_cache(WOKEN_KEPT)  # the same few come again and again
def _by(author: str, paths: tuple[str, ...]) -> str:
    shown = ", ".join(path or "everything" for path in paths[:5])
    more = f" and {len(paths) - 5} more" if len(paths) > 5 else ""
    return f"{author.removeprefix('stage:')}: {shown}{more}"


def _fraction(text: str) -> float:
    return zlib.crc32(text.encode()) / 2**32
