"""One claim, from the call of the stage to the commit: conflicts, failures, loops.

A conflict is no failure. If what changed meanwhile touches neither what the stage watches nor what
it wrote, its patch is applied on top; otherwise the stage runs again on the new document.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from gnomon.contracts.env import Env
from gnomon.contracts.store import HeldShard
from gnomon.contracts.store.entities import StateWrite
from gnomon.contracts.store.queues import (
    ClaimedEntity,
    Commit,
    CommitKind,
    CommitResult,
    Enqueue,
    QueueStore,
    ReturnedClaim,
    ReturnedKind,
    RowStatus,
)
from gnomon.model.attempt_boundary import AttemptBoundary
from gnomon.model.errors import InvalidRequest
from gnomon.model.ids import author_of
from gnomon.model.outcome import cut
from gnomon.model.stage.chain import UNSEEN, Chains, digest_of
from gnomon.stages.answers import WrongAnswerError, stray
from gnomon.stages.bound_stage import Answer, BoundStage, OutageError, StageInput, StageResult
from gnomon.stages.change_router import (
    ChangeRouter,
    EntityChange,
    reason_of,
)
from gnomon.stages.codec import UndecodableError
from gnomon.stages.committer import Batcher, bytes_of_commit
from gnomon.stages.config import StagesConfig
from gnomon.stages.documents import LoadedDocuments
from gnomon.stages.fused_pass import FusedPasses, PendingCommit
from gnomon.stages.held import KeptAnswers
from gnomon.stages.pipeline import StagePipeline
from gnomon.stages.stage import Keep, Quarantine, RetryLater, Wake
from gnomon.stages.stage_run import (
    RERUNS_MAX,
    SavedRun,
    StageRun,
    is_doubtful,
    is_mergeable,
    new_state,
    patched,
    until_quiet,
)

MERGES_MAX = 10
ERROR_CHARS_MAX = 2_000
NOTE_CHARS_MAX = 500
RETRY_AFTER_MAX = timedelta(days=30)
CONFLICT_MIN_S = 1.0
CONFLICT_SPREAD_S = 4.0
UNCHANGED = "unchanged"
CONFLICTS = (CommitKind.MOVED, CommitKind.STATE_MOVED)


class StageRunner:
    """Calls the stages of this process about their claims, and saves what they answer."""

    def __init__(
        self,
        store: QueueStore,
        router: ChangeRouter,
        documents: LoadedDocuments,
        *,
        config: StagesConfig,
        env: Env,
        pipelines: Mapping[str, StagePipeline],
    ) -> None:
        self._store = store
        self._router = router
        self._documents = documents
        self._config = config
        self._clock = env.clock
        self._entropy = env.entropy
        self._observer = env.observer
        limit = config.commit_batch
        self._commits = Batcher(store.commit, limit=limit, size_of=bytes_of_commit)
        self._returns = Batcher(store.give_back, limit=limit)
        self._chains = Chains()
        self._pipelines = pipelines
        self._kept = KeptAnswers()
        self._passes = FusedPasses(router, self._chains, pipelines, clock=env.clock)

    @property
    def is_behind(self) -> bool:
        """Whether a whole batch of saves waits for the store."""
        return self._commits.is_behind

    async def perform(
        self,
        stage: BoundStage,
        claims: Sequence[ClaimedEntity],
        holding: Sequence[HeldShard],
        saved: list[SavedRun],
        answered: Callable[[], None],
    ) -> None:
        """Call the stage for these and see every one through; what was saved is added, and
        `answered` is told when the stage has answered. Errors: OutageError, after all rows were set
        back without blame; Unavailable when the store is away.
        """
        fences = {claim.entity.key: held for claim, held in zip(claims, holding, strict=True)}
        wanted = list(claims)
        try:
            wanted = await self._still_wanted(stage, claims, fences)
            if not wanted:
                return
            answers = await self._answers(stage, wanted)
            answered()
        except OutageError as exc:
            pairs = [(claim, fences[claim.entity.key]) for claim in wanted]
            await self._excuse(stage, pairs, exc)
            raise
        runs = [
            StageRun(claim, fences[claim.entity.key], answer, saved)
            for claim, answer in zip(wanted, answers, strict=True)
        ]
        await self._see_through(stage, runs)

    # -- asking again and calling -----------------------------------------------------------------

    async def _still_wanted(
        self, stage: BoundStage, claims: Sequence[ClaimedEntity], fences: dict[str, HeldShard]
    ) -> list[ClaimedEntity]:
        """Drop what the stage cleanly refuses, of those that nobody has said yes to yet."""
        doubtful = [claim for claim in claims if is_doubtful(claim.row.reasons)]
        if not doubtful:
            return list(claims)
        answers = await stage.ask_many([self._input_of(claim) for claim in doubtful])
        refused = {}
        for claim, answer in zip(doubtful, answers, strict=True):
            if answer is False or isinstance(answer, Wake):
                at = answer.at if isinstance(answer, Wake) else None
                refused[claim.entity.key] = self._refused(claim, fences[claim.entity.key], at)
        await self._give_back(list(refused.values()))
        return [claim for claim in claims if claim.entity.key not in refused]

    def _refused(self, claim: ClaimedEntity, held: HeldShard, at: datetime | None) -> ReturnedClaim:
        wake = None if at is None else self._router.timer(claim.row.stage, claim.entity.key, at)
        return self._set_back(claim, held, None, wake=wake)

    async def _answers(
        self, stage: BoundStage, claims: Sequence[ClaimedEntity]
    ) -> Sequence[Answer]:
        """What the stage makes of them; it is not called again about what it has answered."""
        if not self._kept:
            return await self._call_timed(stage, claims)
        answers = {claim.entity.key: self._kept.take(claim) for claim in claims}
        fresh = [claim for claim in claims if answers[claim.entity.key] is None]
        called = await self._call_timed(stage, fresh) if fresh else ()
        answers.update((one.entity.key, answer) for one, answer in zip(fresh, called, strict=True))
        return [answer for answer in answers.values() if answer is not None]

    async def _call_timed(
        self, stage: BoundStage, claims: Sequence[ClaimedEntity]
    ) -> Sequence[Answer]:
        began = self._clock.monotonic()
        answers = await self._call(stage, [self._input_of(claim) for claim in claims])
        took_s = self._clock.monotonic() - began
        self._observer.observe("stage_call_seconds", took_s, stage=stage.info.name)
        return answers

    def _input_of(self, claim: ClaimedEntity) -> StageInput:
        return StageInput(
            claim.entity,
            self._documents.of(claim.entity),
            claim.states,
            claim.now,
            reasons=frozenset(claim.row.reasons),
            attempt=claim.row.attempts + 1,
        )

    async def _call(self, stage: BoundStage, views: Sequence[StageInput]) -> Sequence[Answer]:
        """Call the stage; a failing batch is halved until the culprit is alone."""
        with AttemptBoundary(Exception, passing=(OutageError,)) as attempt:
            try:
                async with asyncio.timeout(self._config.call_timeout.total_seconds()):
                    return await stage.process(views)
            except asyncio.CancelledError as exc:
                attempt.error = stray(exc)
        if len(views) == 1:
            return [attempt.failure]
        half = len(views) // 2
        return [*await self._call(stage, views[:half]), *await self._call(stage, views[half:])]

    # -- committing -------------------------------------------------------------------------------

    async def _see_through(self, stage: BoundStage, runs: Sequence[StageRun]) -> None:
        """Save them together; those in conflict begin again, each by itself."""
        decisions = [self._decide(stage, run.claim, run.held, run.answer) for run in runs]
        set_backs = [decision for decision in decisions if isinstance(decision, ReturnedClaim)]
        saves = [(run, decision) for run, decision in zip(runs, decisions, strict=True)
                 if isinstance(decision, PendingCommit)]  # fmt: skip
        if set_backs:
            held = await self._give_back(set_backs)
            for run in runs:
                if run.claim.entity.key in held:
                    self._kept.keep(run.claim, run.answer, 0)
        if self._passes.has_any:
            saves = await self._carry_on(saves)
        open_runs = []
        outcomes: Counter[tuple[str, str]] = Counter()
        for (run, pending), committed in zip(saves, await self._commit(saves), strict=True):
            if committed.kind in CONFLICTS:
                open_runs.append((run, committed))
            elif committed.kind is CommitKind.HELD:
                self._put_off(pending.commit)
                self._kept.keep(run.claim, run.answer, bytes_of_commit(pending.commit))
            else:
                outcomes.update(self._ended(run, pending, committed))
        for (name, outcome), count in outcomes.items():
            self._observer.count("stage_runs", count, stage=name, outcome=outcome)
        if open_runs:
            await asyncio.gather(*(self._again(stage, *begun) for begun in open_runs))

    async def _carry_on(
        self, saves: Sequence[tuple[StageRun, PendingCommit]]
    ) -> list[tuple[StageRun, PendingCommit]]:
        """Let other stages have what was made, before it is saved."""
        begun = [(run.claim, run.held, commit) for run, commit in saves]
        pending = await self._passes.go_on(begun, self._call_timed, self._follow)
        return [(run, commit) for (run, _), commit in zip(saves, pending, strict=True)]

    def _follow(
        self, stage: BoundStage, claim: ClaimedEntity, held: HeldShard, result: StageResult
    ) -> PendingCommit | None:
        """A further part of a pass; None if it is not valid."""
        with AttemptBoundary(Exception):  # the stage is called again, and fails in its own name
            return self._commit_of(stage, claim, held, result, is_part=True)
        return None

    async def _commit(
        self, saves: Sequence[tuple[StageRun, PendingCommit]]
    ) -> Sequence[CommitResult]:
        answers: Sequence[CommitResult] = ()
        try:
            answers = await self._commits.put_all([pending.commit for _, pending in saves])
        finally:
            kinds = [answer.kind for answer in answers] or [CommitKind.LOST] * len(saves)
            for (_, pending), kind in zip(saves, kinds, strict=True):
                if kind is not CommitKind.SAVED:
                    self._passes.take_back(pending)
        return answers

    async def _give_back(self, rows: Sequence[ReturnedClaim]) -> frozenset[str]:
        """Write them; the entities that somebody holds, which are put off."""
        told = await self._returns.put_all(rows)
        held = [row for row, kind in zip(rows, told, strict=True) if kind is ReturnedKind.HELD]
        for row in held:
            self._put_off(row)
        return frozenset(row.entity_key for row in held)

    def _put_off(self, held: Commit | ReturnedClaim) -> None:
        """Somebody's transaction holds the entity: its row is claimed again after a pause."""
        pauses = self._pipelines[held.stage].held
        if pauses.put_off(held.entity_key, self._clock.monotonic()):
            self._observer.count("stage_runs", stage=held.stage, outcome=CommitKind.HELD.value)
            self._observer.event("entity_held", entity=held.entity_key, stage=held.stage)

    async def _again(self, stage: BoundStage, run: StageRun, committed: CommitResult) -> None:
        """Somebody else has changed it meanwhile: on top of that, or from the beginning."""
        if run.merges < MERGES_MAX and is_mergeable(stage, run, committed):
            self._observer.count("stage_conflicts", stage=stage.info.name, solved="merged")
            assert committed.entity is not None
            on_top = replace(run.claim, entity=committed.entity)
            await self._see_through(stage, [replace(run, claim=on_top, merges=run.merges + 1)])
            return
        self._observer.count("stage_conflicts", stage=stage.info.name, solved="again")
        if run.reruns >= RERUNS_MAX:
            await self._give_back([self._later(run.claim, run.held)])
            return
        claim = await self._store.claim(run.held, run.claim.entity.key, stage.info.name)
        if claim is None:
            return
        noise = until_quiet(stage.info.debounce, claim)
        if noise > timedelta(0) and committed.kind is CommitKind.MOVED:
            back = self._set_back(claim, run.held, RowStatus.READY, delay=noise)
            await self._give_back([back])
            return
        try:
            [answer] = await self._call(stage, [self._input_of(claim)])
        except OutageError as exc:
            await self._excuse(stage, [(claim, run.held)], exc)
            return
        rerun = replace(run, claim=claim, answer=answer, reruns=run.reruns + 1)
        await self._see_through(stage, [rerun])

    def _decide(
        self, stage: BoundStage, claim: ClaimedEntity, held: HeldShard, answer: Answer
    ) -> PendingCommit | ReturnedClaim:
        if isinstance(answer, Exception):
            return self._failed(stage, claim, held, answer)
        try:
            return self._commit_of(stage, claim, held, answer)
        except InvalidRequest as exc:
            return self._bug(claim, held, str(exc))

    def _commit_of(
        self,
        stage: BoundStage,
        claim: ClaimedEntity,
        held: HeldShard,
        result: StageResult,
        *,
        is_part: bool = False,
    ) -> PendingCommit:
        """Errors: InvalidRequest, a bug of the stage."""
        name, entity, row = stage.info.name, claim.entity, claim.row
        new = None
        if result.patch:
            new = patched(stage.info, self._documents.of(entity).document, result.patch)
        enqueues: tuple[Enqueue, ...] = ()
        digest = None
        if new is not None and self._router.wakes_any(entity.kind, author_of(name), new.paths):
            saved = replace(entity, version=entity.version + 1, doc=new.text)
            loaded = self._documents.keep(saved, new.document)
            view = StageInput(saved, loaded, claim.states, claim.now)
            enqueues, digest = self._consequences(name, claim, result, view, new.paths)
        if not enqueues and not claim.waiting:
            self._documents.forget(entity)
        own = claim.states.get(name)
        commit = Commit(
            shard=held.shard,
            lease_guid=held.lease_guid,
            entity_key=entity.key,
            stage=name,
            seq=row.seq,
            epoch=entity.epoch,
            version=entity.version,
            doc=None if new is None else new.text,
            paths=() if new is None else new.paths,
            state_version=0 if own is None else own.version,
            root=row.root,
            depth=row.depth + 1,
            state=new_state(own, result.state),
            wake=self._timer(name, entity.key, result.wake),
            note=cut(result.note, NOTE_CHARS_MAX),
            enqueues=() if is_part else enqueues,
            after_save=stage.info.wants_saves,
        )
        return PendingCommit(commit, digest, enqueues)

    def _timer(
        self, name: str, entity_key: str, wake: datetime | Keep | None
    ) -> datetime | Keep | None:
        return self._router.timer(name, entity_key, wake) if isinstance(wake, datetime) else wake

    def _consequences(
        self,
        name: str,
        claim: ClaimedEntity,
        result: StageResult,
        view: StageInput,
        paths: tuple[str, ...],
    ) -> tuple[tuple[Enqueue, ...], bytes]:
        """Ask the others about the new document, with the proof of a loop if it closes one."""
        entity, row, author = claim.entity, claim.row, author_of(name)
        digest, circle = UNSEEN, tuple[str, ...]()
        if name in self._router.graph.circling:
            digest = self._digest(name, claim, result, view.loaded.text)
            circle = self._chains.closes(entity.key, row.root, digest, name)
        depth = row.depth + 1
        is_deep = self._router.is_deep(entity.kind, depth)
        change = EntityChange(
            paths=paths,
            author=author,
            reason=reason_of(view.entity.version, author, paths),
            root=row.root,
            depth=depth,
            circle=circle,
            trail=(*self._chains.path(entity.key, row.root), name) if is_deep else (),
        )
        return self._router.enqueues_for(view, change, claim.waiting), digest

    def _digest(self, name: str, claim: ClaimedEntity, result: StageResult, text: str) -> bytes:
        """What it all is after this; and, if nobody has looked at it yet, what it was before."""
        entity, root = claim.entity, claim.row.root
        bodies = {stage: state.body for stage, state in claim.states.items()}
        assert entity.doc is not None
        if not self._chains.knows(entity.key, root):
            self._chains.note(entity.key, root, digest_of(entity.doc, bodies), "")
        if isinstance(result.state, StateWrite):
            bodies[name] = result.state.body
        return digest_of(text, bodies)

    def _ended(
        self, run: StageRun, pending: PendingCommit, committed: CommitResult
    ) -> list[tuple[str, str]]:
        """Draw the consequences of an answer that is no conflict; how to call it, by stage."""
        claim, commit = run.claim, pending.commit
        if committed.kind is not CommitKind.SAVED:
            return [(part.stage, committed.kind.value) for part in commit.parts]
        run.saved.append(SavedRun(claim, commit, committed))
        if commit.doc is not None:
            if not commit.enqueues:
                self._chains.forget(claim.entity.key, claim.row.root)
            elif pending.digest is not None:
                self._chains.note(claim.entity.key, claim.row.root, pending.digest, commit.stage)
        if not commit.then:
            return [(commit.stage, UNCHANGED if commit.doc is None else committed.kind.value)]
        return [
            (part.stage, UNCHANGED if part.doc is None else committed.kind.value)
            for part in commit.parts
        ]

    # -- failing ----------------------------------------------------------------------------------

    def _failed(
        self, stage: BoundStage, claim: ClaimedEntity, held: HeldShard, error: Exception
    ) -> ReturnedClaim:
        name, failures = stage.info.name, claim.row.attempts + 1
        text = cut(f"{type(error).__name__}: {error}", ERROR_CHARS_MAX)
        is_hopeless = isinstance(error, Quarantine | UndecodableError | WrongAnswerError)
        if is_hopeless or failures >= self._config.failures_max:
            self._observer.count("stage_runs", stage=name, outcome="quarantined")
            self._observer.event(
                "stage_quarantined", stage=name, entity=claim.entity.key, error=text
            )
            return self._set_back(claim, held, RowStatus.QUARANTINED, error=text, counts=True)
        self._observer.count("stage_runs", stage=name, outcome="failed")
        wanted = error.after if isinstance(error, RetryLater) else None
        delay = min(wanted, RETRY_AFTER_MAX) if wanted else self._backoff(failures)
        return self._set_back(claim, held, RowStatus.READY, delay=delay, error=text, counts=True)

    async def fail(
        self, stage: BoundStage, pairs: Sequence[tuple[ClaimedEntity, HeldShard]], error: Exception
    ) -> None:
        """Nobody foresaw this error: it counts against every one of these, and they wait."""
        await self._give_back([self._failed(stage, claim, held, error) for claim, held in pairs])

    def _backoff(self, failures: int) -> timedelta:
        doubled = self._config.retry_min * (1 << min(failures - 1, 40))
        return min(self._config.retry_max, doubled) * (0.8 + 0.4 * self._entropy.fraction())

    def _bug(self, claim: ClaimedEntity, held: HeldShard, problem: str) -> ReturnedClaim:
        self._observer.count("stage_runs", stage=claim.row.stage, outcome="quarantined")
        self._observer.event(
            "stage_quarantined", stage=claim.row.stage, entity=claim.entity.key, error=problem
        )
        error = f"a bug of the stage: {problem}"
        return self._set_back(claim, held, RowStatus.QUARANTINED, error=error, counts=True)

    def _later(self, claim: ClaimedEntity, held: HeldShard) -> ReturnedClaim:
        delay = CONFLICT_MIN_S + CONFLICT_SPREAD_S * self._entropy.fraction()
        return self._set_back(claim, held, RowStatus.READY, delay=timedelta(seconds=delay))

    async def _excuse(
        self,
        stage: BoundStage,
        pairs: Sequence[tuple[ClaimedEntity, HeldShard]],
        error: OutageError,
    ) -> None:
        """The stage is away: its rows wait, and nobody's attempts are burned."""
        self._observer.count("stage_runs", len(pairs), stage=stage.info.name, outcome="outage")
        text = cut(f"the stage is away: {error}", ERROR_CHARS_MAX)
        delay = self._config.retry_min
        rows = [
            self._set_back(claim, held, RowStatus.READY, delay=delay, error=text)
            for claim, held in pairs
        ]
        await self._give_back(rows)

    def _set_back(
        self,
        claim: ClaimedEntity,
        held: HeldShard,
        status: RowStatus | None,
        *,
        delay: timedelta = timedelta(0),
        error: str | None = None,
        counts: bool = False,
        wake: datetime | None = None,
    ) -> ReturnedClaim:
        return ReturnedClaim(
            shard=held.shard,
            lease_guid=held.lease_guid,
            entity_key=claim.entity.key,
            stage=claim.row.stage,
            seq=claim.row.seq,
            status=status,
            delay=delay,
            counts=counts,
            error=error,
            wake=wake,
        )
