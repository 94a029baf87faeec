"""Passes: stages that follow one another in memory, and are saved together.

A stage that is marked `fuse` and wants a new document at once gets it then and there, from the call
that made it. Its save has a version, a note and outbox rows of its own, as always; what is spared
is its row in the queue, and a transaction. Whatever is in the way (it has no room, it has a row
already, another stage comes first, it fails) ends the pass before it, and it finds the entity in
its queue.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

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
from gnomon.stages.bound_stage import Answer, BoundStage, OutageError, StageInput, StageResult
from gnomon.stages.change_router import ChangeRouter
from gnomon.stages.follow_up import entity_after, states_after
from gnomon.stages.pipeline import StagePipeline

NO_ROW = 0  # the `seq` of a row that was never made


class PendingCommit(NamedTuple):
    """A commit, and what is noted in memory when it is saved."""

    commit: Commit
    digest: bytes | None  # of entity and states after it, if others are asked about it
    offers: tuple[Enqueue, ...] = ()
    view: StageInput | None = None  # what they were shown
    steps: Steps | None = None  # with a pass: of its chain, as they were before it


Call = Callable[[BoundStage, Sequence[StageInput]], Awaitable[Sequence[Answer]]]
Build = Callable[[BoundStage, ClaimedEntity, HeldShard, StageResult], PendingCommit | None]


class _Pass:
    """What stages make of one entity, one after the other."""

    __slots__ = ("claim", "held", "noted", "offers", "parts", "steps", "tried", "view", "waiting")

    def __init__(
        self, claim: ClaimedEntity, held: HeldShard, built: PendingCommit, steps: Steps
    ) -> None:
        self.claim = claim  # as it was before the last part
        self.held = held
        self.waiting = claim.waiting  # stages that have a row; what is offered here has none yet
        self.parts = [built]
        self.offers: list[Enqueue] = list(built.offers)
        self.view = built.view  # for one stage only: what it is shown, it may do with as it likes
        self.steps = steps
        self.noted = 0  # so many parts the chain knows of
        self.tried = {claim.row.stage}

    def claim_for(self, name: str) -> ClaimedEntity:
        """What a stage would be shown of it, had it a row."""
        claim, last = self.claim, self.parts[-1].commit
        offers = [offer for offer in self.offers if offer.stage == name]
        others = {offer.stage for offer in self.offers if offer.stage != name and offer.is_at_once}
        row = QueueRow(
            entity_id=claim.entity.id,
            stage=name,
            lane=StageLane.MAIN,
            status=RowStatus.READY,
            ready_at=claim.now,
            timer_at=None,
            first_at=claim.now,
            seq=NO_ROW,
            attempts=0,
            reasons=tuple(offer.reason for offer in offers),
            root=offers[-1].root,
            depth=offers[-1].depth,
        )
        return ClaimedEntity(
            entity=entity_after(claim.entity, last, claim.now),
            row=row,
            states=states_after(claim.states, last),
            waiting=self.waiting | others,
            held_back=claim.held_back,
            now=claim.now,
        )

    def view_for(self, claim: ClaimedEntity) -> StageInput:
        """The same as it is shown."""
        shown, self.view = self.view, None
        return view_of(claim, {} if shown is None else shown.decoded)

    def add(self, claim: ClaimedEntity, built: PendingCommit) -> None:
        """One more stage has had it."""
        self.claim = claim
        self.offers = [offer for offer in self.offers if offer.stage != claim.row.stage]
        self.offers += built.offers
        self.view = built.view
        self.parts.append(built)

    def built(self) -> PendingCommit:
        """All of it, as one commit."""
        head, *others = self.parts
        if not self.noted:
            return head
        then = tuple(part.commit for part in others)
        commit = replace(head.commit, enqueues=tuple(self.offers), then=then)
        return PendingCommit(commit, None, steps=self.steps)


class FusedPasses:
    """Lets stages follow one another before anything is saved."""

    def __init__(
        self,
        asker: ChangeRouter,
        chains: Chains,
        lines: Mapping[str, StagePipeline],
        *,
        clock: Clock,
    ) -> None:
        self._asker = asker
        self._chains = chains
        self._lines = lines
        self._clock = clock

    @property
    def has_any(self) -> bool:
        """Whether any stage may follow so."""
        return any(line.served.info.fuse for line in self._lines.values())

    async def go_on(
        self,
        begun: Iterable[tuple[ClaimedEntity, HeldShard, PendingCommit]],
        call: Call,
        build: Build,
    ) -> list[PendingCommit]:
        """Carry on what stages made of entities; one commit for each."""
        passes = [_Pass(*each, self._steps_of(each[0])) for each in begun]
        while groups := self._next(passes):
            for name, chosen in groups.items():
                line = self._lines[name]
                for some in _batches(chosen, line.served.info.batch):
                    await self._step(line, some, call, build)
        for each in passes:
            if each.noted:
                self._note(each)
        return [each.built() for each in passes]

    def _steps_of(self, claim: ClaimedEntity) -> Steps:
        return self._chains.steps(claim.entity.id, claim.row.root)

    def take_back(self, built: PendingCommit) -> None:
        """It was not saved after all: its steps are none."""
        if built.steps is not None:
            commit = built.commit
            self._chains.put_back(commit.entity_id, commit.root, built.steps)

    def _next(self, passes: Iterable[_Pass]) -> dict[str, list[_Pass]]:
        """Which stages may follow now, and in which passes."""
        groups: dict[str, list[_Pass]] = {}
        for each in passes:
            name = self._follower(each) if each.offers else None
            if name is not None:
                groups.setdefault(name, []).append(each)
        return groups

    def _follower(self, each: _Pass) -> str | None:
        """The first that may follow: none that can wake it is to come yet."""
        offers = each.offers
        waiting = each.waiting.union([offer.stage for offer in offers if offer.ready])
        for offer in offers:
            name = offer.stage
            if (
                name not in each.tried
                and name not in each.waiting
                and name not in each.claim.held_back
                and all(other.is_at_once for other in offers if other.stage == name)
                and self._may_follow(name)
                and waiting.isdisjoint(self._asker.graph.before[name])
            ):
                return name
        return None

    def _may_follow(self, name: str) -> bool:
        line = self._lines.get(name)
        if line is None:
            return False
        info = line.served.info
        return info.fuse and not info.alongside and line.served.asks_here

    async def _step(
        self, line: StagePipeline, chosen: Sequence[_Pass], call: Call, build: Build
    ) -> None:
        """One call of a stage; without room for it these passes go on without the stage."""
        served = line.served
        name = served.info.name
        for each in chosen:
            each.tried.add(name)
        now = self._clock.monotonic()
        chosen = chosen[: line.capacity.ahead(now, len(chosen))]
        if not chosen or not line.capacity.free(now):
            return
        claims = [each.claim_for(name) for each in chosen]
        line.capacity.began(len(claims))
        try:
            views = [each.view_for(claim) for each, claim in zip(chosen, claims, strict=True)]
            answers = await call(served, views)
        except OutageError:  # it is away: its rows wait for it, not what was made before it
            line.capacity.was_away(self._clock.monotonic())
            return
        finally:
            line.capacity.ended()
        line.capacity.went_well()
        for each, claim, answer in zip(chosen, claims, answers, strict=True):
            if isinstance(answer, Exception):
                continue  # it fails again in its own name, and then that counts
            self._note(each)
            built = build(served, claim, each.held, answer)
            if built is not None:
                each.add(claim, built)

    def _note(self, each: _Pass) -> None:
        """The next part may close a circle with those before it."""
        for part in each.parts[each.noted :]:
            if part.digest is not None:
                commit = part.commit
                self._chains.note(commit.entity_id, commit.root, part.digest, commit.stage)
        each.noted = len(each.parts)


def _batches(passes: Sequence[_Pass], size: int) -> Iterable[Sequence[_Pass]]:
    """So many at a time as a stage takes."""
    return (passes[start : start + size] for start in range(0, len(passes), size))


def view_of(claim: ClaimedEntity, decoded: dict[int, Any] | None = None) -> StageInput:
    """A claim as a stage is shown it; its document may be decoded already."""
    assert claim.entity.doc is not None
    return StageInput(
        entity_id=claim.entity.id,
        epoch=claim.entity.epoch,
        version=claim.entity.version,
        text=claim.entity.doc,
        states=claim.states,
        now=claim.now,
        reasons=frozenset(claim.row.reasons),
        attempt=claim.row.attempts + 1,
        decoded={} if decoded is None else decoded,
    )
