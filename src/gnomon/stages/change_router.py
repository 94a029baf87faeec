"""After a change: which stages want to look at the entity, and how soon.

Few are asked: not the author, not one that does not watch what changed, not one in whose queue the
entity is already. A stage that fails to answer gets the entity anyway. A circle that is proved, or
a chain that is too deep, is parked with its proof; a stage woken too often is woken later.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from uuid import UUID

import msgspec
from msgspec.structs import replace

from gnomon.contracts.env import Env
from gnomon.contracts.store import HeldShard
from gnomon.contracts.store.queues import ChangedEntity, Enqueue, Routing, StageLane
from gnomon.model.attempt_boundary import AttemptBoundary
from gnomon.model.ids import author_of
from gnomon.model.outcome import cut
from gnomon.model.stage.chain import Buckets
from gnomon.model.stage.graph import build_graph
from gnomon.stages.bound_stage import BoundStage, StageInput
from gnomon.stages.capacity import AskBreaker
from gnomon.stages.documents import LoadedDocuments
from gnomon.stages.stage import Wake
from gnomon.stages.stage_info import StageInfo

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


class ChangeRouter:
    """Decides which stages a changed entity is queued for. It asks the stages whose code is here;
    for all others of the register the entity is queued unasked."""

    def __init__(
        self,
        stages: Mapping[str, BoundStage],
        documents: LoadedDocuments,
        *,
        env: Env,
        depth_max: int,
        grain: timedelta,
    ) -> None:
        self._here = stages
        self._documents = documents
        self._elsewhere: Mapping[str, StageInfo] = {}
        self.relearn()
        self._clock = env.clock
        self._observer = env.observer
        self._depth_max = depth_max
        self._grain_s = grain.total_seconds()
        self._buckets = Buckets(len(stages))
        self._attempt = AttemptBoundary(Exception)  # of one ask at a time
        self._breakers: defaultdict[str, AskBreaker] = defaultdict(AskBreaker)

    def relearn(self) -> None:
        """A stage has described itself anew: the order of all may be another one."""
        infos = {**self._elsewhere, **{name: stage.info for name, stage in self._here.items()}}
        self.graph = build_graph({name: info.reach for name, info in infos.items()})
        ranked = sorted(infos, key=lambda name: self.graph.rank[name])
        self._infos = {name: infos[name] for name in ranked}
        self._straight = Counter(  # stages in no circle, by kind
            info.reach.kind for name, info in infos.items() if name not in self.graph.circling
        )
        self._woken_by: dict[tuple[str, str, tuple[str, ...]], tuple[StageInfo, ...]] = {}

    def know(self, elsewhere: Mapping[str, StageInfo]) -> None:
        """Learn the stages of the register that this process does not serve."""
        self._elsewhere = elsewhere
        self.relearn()

    def _deepest(self, kind: str) -> int:
        """A chain that goes round in no circle is no longer than there are stages of its kind."""
        return self._depth_max + self._straight[kind]

    def is_deep(self, kind: str, depth: int) -> bool:
        """Whether a chain is longer than any should be."""
        return depth >= self._deepest(kind)

    def enqueues_for(
        self, view: StageInput, change: EntityChange, waiting: Collection[str]
    ) -> tuple[Enqueue, ...]:
        """The stages' queues that a changed entity goes to; it is in those of `waiting` already."""
        wanted = (
            self._enqueue(info, view, change, is_waiting=info.name in waiting)
            for info in self._woken(view.entity.kind, change.author, change.paths)
        )
        return tuple(enqueue for enqueue in wanted if enqueue is not None)

    def wakes_any(self, kind: str, author: str, paths: tuple[str, ...]) -> bool:
        """Whether there is anybody to ask about a change of an entity of a kind."""
        return bool(self._woken(kind, author, paths))

    def _woken(self, kind: str, author: str, paths: tuple[str, ...]) -> tuple[StageInfo, ...]:
        """Who watches what changed; the same few changes come again and again."""
        known = self._woken_by.get((kind, author, paths))
        if known is not None:
            return known
        if len(self._woken_by) >= WOKEN_KEPT:
            self._woken_by.clear()
        woken = self._woken_by[kind, author, paths] = tuple(
            info
            for name, info in self._infos.items()
            if info.reach.kind == kind
            and author != author_of(name)
            and info.reach.is_woken_by(paths)
        )
        return woken

    def route(self, changed: ChangedEntity, held: HeldShard, now: datetime) -> Routing:
        """Decide about an entity that was changed from outside."""
        entity = changed.entity
        enqueues: tuple[Enqueue, ...] = ()
        if entity.doc is not None and changed.changes:
            newest = changed.changes[-1]
            paths = tuple(sorted({path for note in changed.changes for path in note.paths}))
            change = EntityChange(
                paths=paths,
                author=newest.author if len(changed.changes) == 1 else "",
                reason=reason_of(newest.version, newest.author, paths),
                root=newest.root,
                depth=0,
            )
            waiting = {name for name, row in changed.waiting.items() if row.status == "ready"}
            view = StageInput(entity, self._documents.of(entity), changed.states, now)
            enqueues = self.enqueues_for(view, change, waiting)
        return routing_of(changed, held, enqueues)

    def backfill_enqueue(
        self, name: str, view: StageInput, *, reason: str, root: UUID
    ) -> Enqueue | None:
        """Whether one stage wants an entity that its backfill came to."""
        info = self._infos[name]
        change = EntityChange(paths=(), author="", reason=reason, root=root, depth=0)
        if not self._is_asked_here(name):
            return self._ready(info, change, f"{UNASKED}: {reason}", lane=StageLane.BACKGROUND)
        return self._ask(info, view, change, lane=StageLane.BACKGROUND)

    def _is_asked_here(self, name: str) -> bool:
        """Whether asking it is a function call; if not, it is asked when its turn comes."""
        return name in self._here and self._here[name].asks_here

    def timer(self, name: str, entity_key: str, at: datetime) -> datetime:
        """A moment as it is stored: spread by the stage's wish, rounded up to the grain."""
        spread = self._infos[name].spread
        if spread:
            at += spread * _fraction(f"{name}\x00{entity_key}")
        if not self._grain_s:
            return at
        late_s = math.ceil(at.timestamp() / self._grain_s) * self._grain_s - at.timestamp()
        return at + timedelta(seconds=late_s) if late_s > 0 else at

    def _enqueue(
        self, info: StageInfo, view: StageInput, change: EntityChange, *, is_waiting: bool
    ) -> Enqueue | None:
        if not self._is_asked_here(info.name):
            enqueue: Enqueue | None = self._ready(info, change, f"{UNASKED}: {change.reason}")
        elif is_waiting:
            enqueue = self._ready(info, change, change.reason)
        else:
            enqueue = self._ask(info, view, change)
        if enqueue is None or not enqueue.ready or change.depth == 0:
            return enqueue
        return self._check_for_loop(enqueue, view, change)

    def _ask(
        self,
        info: StageInfo,
        view: StageInput,
        change: EntityChange,
        lane: StageLane = StageLane.MAIN,
    ) -> Enqueue | None:
        name = info.name
        breaker, began = self._breakers[name], self._clock.monotonic()
        answer: bool | Wake = False
        attempt = self._attempt
        with attempt:
            answer = self._here[name].ask(view)
        if attempt.error is not None:  # queued anyway
            breaker.count(began, failed=True)
            self._observer.count("stage_asks", stage=name, answer="failed")
            error = attempt.release()
            said = f"{type(error).__name__}: {error}"
            reason = cut(f"{ASK_FAILED}: {said}", REASON_CHARS_MAX)
            delay = timedelta(seconds=breaker.pause_s(began))
            return self._ready(info, change, reason, lane=lane, delay=delay)
        breaker.count(began, failed=False)
        took_s = self._clock.monotonic() - began
        if took_s > SLOW_ASK_S:
            self._observer.event("slow_ask", stage=name, took_s=took_s, entity=view.entity.key)
        shown = "later" if isinstance(answer, Wake) else "yes" if answer else "no"
        self._observer.count("stage_asks", stage=name, answer=shown)
        if isinstance(answer, Wake):
            return self._timer_only(info, view, change, answer.at)
        return self._ready(info, change, change.reason, lane=lane) if answer else None

    def _timer_only(
        self, info: StageInfo, view: StageInput, change: EntityChange, at: datetime | None
    ) -> Enqueue | None:
        if at is None:
            return None
        wake = self.timer(info.name, view.entity.key, at)
        return Enqueue(
            stage=info.name, reason=change.reason, root=change.root, ready=False, wake=wake
        )

    def _ready(
        self,
        info: StageInfo,
        change: EntityChange,
        reason: str,
        lane: StageLane = StageLane.MAIN,
        delay: timedelta = timedelta(0),
    ) -> Enqueue:
        return Enqueue(
            stage=info.name,
            reason=cut(reason, REASON_CHARS_MAX),
            root=change.root,
            depth=change.depth,
            lane=lane,
            delay=delay,
            # A backfill changes nothing: it need not wait for quiet, and frees no parked row.
            debounce=timedelta(0) if lane is StageLane.BACKGROUND else info.debounce,
            frees=lane == StageLane.MAIN,
        )

    def _check_for_loop(self, enqueue: Enqueue, view: StageInput, change: EntityChange) -> Enqueue:
        """A wake-up by another stage: park it if it is a loop, delay it if there are too many."""
        proof, kind = None, view.entity.kind
        if enqueue.stage in change.circle:
            proof = f"loop: {' → '.join((*change.circle, change.circle[0]))}"
        elif enqueue.stage in self.graph.circling and self.is_deep(kind, change.depth):
            trail = " → ".join((*change.trail, enqueue.stage))
            proof = f"depth limit {self._deepest(kind)}: {trail}"
        if proof is not None:
            self._observer.count("stage_loops", stage=enqueue.stage)
            self._observer.event(
                "stage_loop", stage=enqueue.stage, entity=view.entity.key, proof=proof
            )
        delay = timedelta(0)
        if enqueue.stage in self.graph.circling:  # others are woken by each of those before them
            now = self._clock.monotonic()
            delay = self._buckets.take(view.entity.key, enqueue.stage, change.root, now)
        if proof is None and delay <= enqueue.delay:
            return enqueue
        return replace(enqueue, delay=max(delay, enqueue.delay), looping=proof)


def routing_of(changed: ChangedEntity, held: HeldShard, enqueues: tuple[Enqueue, ...]) -> Routing:
    """An answer about an entity, with its fences."""
    return Routing(
        entity_key=changed.entity.key,
        shard=held.shard,
        lease_guid=held.lease_guid,
        seq=changed.seq,
        epoch=changed.entity.epoch,
        version=changed.entity.version,
        enqueues=enqueues,
    )


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
