"""What became of one claim: the call's answer, the commit, and what both mean."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

import msgspec

from gnomon.contracts.store import HeldShard
from gnomon.contracts.store.entities import StageState, StateWrite
from gnomon.contracts.store.queues import ClaimedEntity, Commit, CommitKind, CommitResult
from gnomon.contracts.store.queues import Unchanged as KeepStored
from gnomon.model.errors import InvalidRequest
from gnomon.model.stage.patch import apply_patch, touched_paths
from gnomon.model.stage.paths import WHOLE, changed_paths, meet, outside
from gnomon.model.stage.queue_merge import DEBOUNCES_MAX
from gnomon.stages.bound_stage import Answer, BoundStage, StageInput, StageResult
from gnomon.stages.change_router import ASK_FAILED, UNASKED
from gnomon.stages.codec import decode_document, encode_document

RERUNS_MAX = 3
STATE_CAS = "state-cas"
DOUBTFUL = (ASK_FAILED, UNASKED, STATE_CAS)  # nobody has said yes to these


class SavedRun(NamedTuple):
    """A claim that came to a save."""

    claim: ClaimedEntity
    commit: Commit
    answer: CommitResult


class StageRun(msgspec.Struct, frozen=True):
    """A claim and what its stage made of it."""

    claim: ClaimedEntity
    held: HeldShard
    answer: Answer
    saved: list[SavedRun]  # where to tell of it
    merges: int = 0  # onto changes of others, so far
    reruns: int = 0


def patched(
    served: BoundStage, claim: ClaimedEntity, ran: StageResult
) -> tuple[str | None, tuple[str, ...]]:
    """The new document, if it is another one, and what changed. Errors: InvalidRequest."""
    assert claim.entity.doc is not None
    before = decode_document(claim.entity.doc)
    try:
        after = apply_patch(before, ran.patch)
        paths = changed_paths(before, after)
        text = encode_document(after) if paths else None
    except InvalidRequest as exc:
        raise InvalidRequest(f"the patch is not valid: {exc}") from exc
    foreign = outside(paths, served.info.reach.writes)
    if foreign:
        raise InvalidRequest(f"wrote outside its `writes`: {', '.join(foreign[:5])}")
    return text, paths


def view_after(claim: ClaimedEntity, text: str) -> StageInput:
    """What others are shown when they are asked about a change."""
    return StageInput(
        entity_id=claim.entity.id,
        epoch=claim.entity.epoch,
        version=claim.entity.version + 1,
        text=text,
        states=claim.states,
        now=claim.now,
        reasons=frozenset(),
    )


def new_state(own: StageState | None, wanted: StateWrite | None) -> StateWrite | KeepStored:
    """What to store; a state that is as it was is no change."""
    if wanted is None:
        return KeepStored.KEEP
    if own is None or (own.body, own.revision, own.type) != (
        wanted.body, wanted.revision, wanted.type,
    ):  # fmt: skip
        return wanted
    return KeepStored.KEEP


def until_quiet(debounce: timedelta, claim: ClaimedEntity) -> timedelta:
    """How long a stage that settles waits yet after a change that came in its way."""
    quiet_at = min(
        claim.entity.changed_at + debounce, claim.row.first_at + DEBOUNCES_MAX * debounce
    )
    return quiet_at - claim.now


def is_doubtful(reasons: Sequence[str]) -> bool:
    """Whether nobody has said yes: every reason came without an answer of the stage."""
    return all(reason.startswith(DOUBTFUL) for reason in reasons)


def is_mergeable(served: BoundStage, run: StageRun, committed: CommitResult) -> bool:
    """Whether the patch may go on top of what changed meanwhile: that is none of the stage's
    business. Or it was called so often that it would never come to an end: then it is enough that
    nobody else wrote the same fields, for it will be asked about the change all the same."""
    if (
        isinstance(run.answer, Exception)
        or committed.kind is not CommitKind.MOVED
        or committed.entity is None
        or not committed.since
    ):
        return False
    mine, watch = touched_paths(run.answer.patch), served.info.reach.watch
    if run.reruns < RERUNS_MAX:
        mine = (*mine, *(watch or (WHOLE,)))
    return not any(meet(mine, note.paths) for note in committed.since)
