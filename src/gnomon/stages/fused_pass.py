"""Passes: stages that follow one another in memory, and are saved together.

A stage that is marked `fuse` and wants a new document at once gets it then and there, from the call
that made it. Its save has a version, a note and outbox rows of its own, as always; what is spared
is its row in the queue, and a transaction. Whatever is in the way (it has no room, it has a row
already, another stage comes first, it fails) ends the pass before it, and it finds the entity in
its queue.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from gnomon.contracts.clock import Clock
from gnomon.contracts.store import HeldShard
from gnomon.contracts.store.queues import (
    ClaimedEntity,
    Commit,
    Enqueue,
    QueueRow,
    RowStatus,
    StageLane,
)
from gnomon.model.stage.chain import Chains, Steps
from gnomon.stages.bound_stage import Answer, BoundStage, OutageError, StageResult
from gnomon.stages.change_router import ChangeRouter
from gnomon.stages.follow_up import entity_after, states_after
from gnomon.stages.pipeline import StagePipeline

NO_ROW = 0  # the `seq` of a row that was never made


class PendingCommit(NamedTuple):
    """A commit, and what is noted in memory when it is saved."""

    commit: Commit
    digest: bytes | None  # of entity and states after it, if others are asked about it
    enqueues: tuple[Enqueue, ...] = ()
    steps: Steps | None = None  # with a pass: of its chain, as they were before it


Call = Callable[[BoundStage, Sequence[ClaimedEntity]], Awaitable[Sequence[Answer]]]
Build = Callable[[BoundStage, ClaimedEntity, HeldShard, StageResult], PendingCommit | None]


class _Pass:
    """One entity on its way through stages that follow one another, and what they made of it."""

    __slots__ = ("claim", "enqueues", "held", "noted", "parts", "steps", "tried", "waiting")

    def __init__(
        self, claim: ClaimedEntity, held: HeldShard, pending: PendingCommit, steps: Steps
    ) -> None:
        self.claim = claim  # as it was before the last part
        self.held = held
        self.waiting = (
            claim.waiting
        )  # stages that have a row; a stage that follows here has none yet
        self.parts = [pending]
        self.enqueues: list[Enqueue] = list(pending.enqueues)
        self.steps = steps
        self.noted = 0  # so many parts the chain knows of
        self.tried = {claim.row.stage}

    def claim_for(self, name: str) -> ClaimedEntity:
        """The claim of a stage that follows, as if it had a row in its queue."""
        claim, last = self.claim, self.parts[-1].commit
        enqueues = [enqueue for enqueue in self.enqueues if enqueue.stage == name]
        others = {
            enqueue.stage
            for enqueue in self.enqueues
            if enqueue.stage != name and enqueue.is_at_once
        }
        row = QueueRow(
            entity_key=claim.entity.key,
            stage=name,
            lane=StageLane.MAIN,
            status=RowStatus.READY,
            ready_at=claim.now,
            timer_at=None,
            first_at=claim.now,
            seq=NO_ROW,
            attempts=0,
            reasons=tuple(enqueue.reason for enqueue in enqueues),
            root=enqueues[-1].root,
            depth=enqueues[-1].depth,
        )
        return ClaimedEntity(
            entity=entity_after(claim.entity, last, claim.now),
            row=row,
            states=states_after(claim.states, last),
            waiting=self.waiting | others,
            held_back=claim.held_back,
            now=claim.now,
        )

    def add(self, claim: ClaimedEntity, pending: PendingCommit) -> None:
        """Take in what one more stage made of the entity."""
        self.claim = claim
        self.enqueues = [enqueue for enqueue in self.enqueues if enqueue.stage != claim.row.stage]
        self.enqueues += pending.enqueues
        self.parts.append(pending)

    def pending(self) -> PendingCommit:
        """What all the stages made of it, as one commit."""
        head, *others = self.parts
        if not self.noted:
            return head
        then = tuple(part.commit for part in others)
        commit = replace(head.commit, enqueues=tuple(self.enqueues), then=then)
        return PendingCommit(commit, None, steps=self.steps)


class FusedPasses:
    """Lets stages follow one another before anything is saved."""

    def __init__(
        self,
        router: ChangeRouter,
        chains: Chains,
        pipelines: Mapping[str, StagePipeline],
        *,
        clock: Clock,
    ) -> None:
        self._router = router
        self._chains = chains
        self._pipelines = pipelines
        self._clock = clock

    @property
    def has_any(self) -> bool:
        """Whether any stage may follow so."""
        return any(pipeline.stage.info.fuse for pipeline in self._pipelines.values())

    async def go_on(
        self,
        begun: Iterable[tuple[ClaimedEntity, HeldShard, PendingCommit]],
        call: Call,
        build: Build,
    ) -> list[PendingCommit]:
        """Carry on what stages made of entities; one commit for each."""
        passes = [_Pass(*start, self._steps_of(start[0])) for start in begun]
        while groups := self._next(passes):
            for name, chosen in groups.items():
                pipeline = self._pipelines[name]
                for some in _batches(chosen, pipeline.stage.info.batch):
                    await self._step(pipeline, some, call, build)
        for fused in passes:
            if fused.noted:
                self._note(fused)
        return [fused.pending() for fused in passes]

    def _steps_of(self, claim: ClaimedEntity) -> Steps:
        return self._chains.steps(claim.entity.key, claim.row.root)

    def take_back(self, pending: PendingCommit) -> None:
        """It was not saved after all: its steps are none."""
        if pending.steps is not None:
            commit = pending.commit
            self._chains.put_back(commit.entity_key, commit.root, pending.steps)

    def _next(self, passes: Iterable[_Pass]) -> dict[str, list[_Pass]]:
        """Which stages may follow now, and in which passes."""
        groups: dict[str, list[_Pass]] = {}
        for fused in passes:
            name = self._follower(fused) if fused.enqueues else None
            if name is not None:
                groups.setdefault(name, []).append(fused)
        return groups

    def _follower(self, fused: _Pass) -> str | None:
        """The first stage that may run next in this pass: no stage that can still wake it waits."""
        enqueues = fused.enqueues
        waiting = fused.waiting.union([enqueue.stage for enqueue in enqueues if enqueue.ready])
        for enqueue in enqueues:
            name = enqueue.stage
            if (
                name not in fused.tried
                and name not in fused.waiting
                and name not in fused.claim.held_back
                and all(other.is_at_once for other in enqueues if other.stage == name)
                and self._may_follow(name)
                and waiting.isdisjoint(self._router.graph.before[name])
            ):
                return name
        return None

    def _may_follow(self, name: str) -> bool:
        pipeline = self._pipelines.get(name)
        if pipeline is None:
            return False
        info = pipeline.stage.info
        return info.fuse and not info.alongside and pipeline.stage.asks_here

    async def _step(
        self, pipeline: StagePipeline, chosen: Sequence[_Pass], call: Call, build: Build
    ) -> None:
        """One call of a stage; without room for it these passes go on without the stage."""
        stage = pipeline.stage
        name = stage.info.name
        for fused in chosen:
            fused.tried.add(name)
        now = self._clock.monotonic()
        chosen = chosen[: pipeline.capacity.ahead(now, len(chosen))]
        if not chosen or not pipeline.capacity.free(now):
            return
        claims = [fused.claim_for(name) for fused in chosen]
        pipeline.capacity.began(len(claims), now)
        try:
            answers = await call(stage, claims)
        except OutageError:  # it is away: its rows wait for it, not what was made before it
            pipeline.capacity.was_away(self._clock.monotonic())
            return
        finally:
            pipeline.capacity.ended()
        pipeline.capacity.went_well()
        for fused, claim, answer in zip(chosen, claims, answers, strict=True):
            if isinstance(answer, Exception):
                continue  # it fails again in its own name, and then that counts
            self._note(fused)
            pending = build(stage, claim, fused.held, answer)
            if pending is not None:
                fused.add(claim, pending)

    def _note(self, fused: _Pass) -> None:
        """Tell the chains what the parts of a pass made so far: the next one may close a loop with
        them."""
        for part in fused.parts[fused.noted :]:
            if part.digest is not None:
                commit = part.commit
                self._chains.note(commit.entity_key, commit.root, part.digest, commit.stage)
        fused.noted = len(fused.parts)


def _batches(passes: Sequence[_Pass], size: int) -> Iterable[Sequence[_Pass]]:
    """So many at a time as a stage takes."""
    return (passes[start : start + size] for start in range(0, len(passes), size))
