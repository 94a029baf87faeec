"""What became of one claim: the call's answer, the commit, and what both mean."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

import msgspec

from gnomon.contracts.store import HeldShard
from gnomon.contracts.store.entities import StageState, StateWrite
from gnomon.contracts.store.queues import ClaimedEntity, Commit, CommitKind, CommitResult
from gnomon.model.errors import InvalidRequest
from gnomon.model.stage.patch import Patch, apply_patch, touched_paths
from gnomon.model.stage.paths import WHOLE, changed_paths, meet, outside
from gnomon.model.stage.queue_merge import DEBOUNCES_MAX
from gnomon.stages.bound_stage import Answer, BoundStage
from gnomon.stages.change_router import ASK_FAILED, UNASKED
from gnomon.stages.codec import Document, encode_document
from gnomon.stages.stage import KEEP, Keep
from gnomon.stages.stage_info import StageInfo

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


class PatchedDocument(NamedTuple):
    """What a patch made of a document."""

    text: str
    document: Document
    paths: tuple[str, ...]  # what changed


def patched(stage: StageInfo, before: Document, patch: Patch) -> PatchedDocument | None:
    """The new document; None if it is the same. Errors: InvalidRequest."""
    try:
        after = apply_patch(before, patch)
        paths = changed_paths(before, after, patch)
        if not paths:
            return None
        text = encode_document(after)
    except InvalidRequest as exc:
        raise InvalidRequest(f"the patch is not valid: {exc}") from exc
    foreign = outside(paths, stage.reach.writes)
    if foreign:
        raise InvalidRequest(f"wrote outside its `writes`: {', '.join(foreign[:5])}")
    return PatchedDocument(text, after, paths)


def new_state(own: StageState | None, wanted: StateWrite | Keep) -> StateWrite | Keep:
    """What to store; a state that is as it was is no change."""
    if isinstance(wanted, Keep) or own is None:
        return wanted
    before = (own.body, own.revision, own.type)
    return KEEP if before == (wanted.body, wanted.revision, wanted.type) else wanted


def until_quiet(debounce: timedelta, claim: ClaimedEntity) -> timedelta:
    """How long a stage that settles waits yet after a change that came in its way."""
    quiet_at = min(
        claim.entity.changed_at + debounce, claim.row.first_at + DEBOUNCES_MAX * debounce
    )
    return quiet_at - claim.now


def is_doubtful(reasons: Sequence[str]) -> bool:
    """Whether nobody has said yes: every reason came without an answer of the stage."""
    return all(reason.startswith(DOUBTFUL) for reason in reasons)


def is_mergeable(stage: BoundStage, run: StageRun, committed: CommitResult) -> bool:
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
    mine, watch = touched_paths(run.answer.patch), stage.info.reach.watch
    if run.reruns < RERUNS_MAX:
        mine = (*mine, *(watch or (WHOLE,)))
    return not any(meet(mine, note.paths) for note in committed.since)
