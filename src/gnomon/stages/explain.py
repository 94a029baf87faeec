"""Why an entity is where it is, in words."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from gnomon.contracts.store.entities import ChangeNote, Entity
from gnomon.contracts.store.queues import QueueRow, RowStatus, StageLane
from gnomon.contracts.store.register import StageRecord
from gnomon.model.ids import EntityKey

ORPHAN_AFTER = timedelta(minutes=2)  # so long after its last sign a stage counts as not served


class StageExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """An entity in one stage's queue, or its saves that the stage's `after_save` did not take."""

    stage: str
    status: str  # sleeping, ready, quarantined, looping, undelivered, orphan
    since: datetime
    lane: str
    attempts: int
    next_try_at: datetime | None
    timer_at: datetime | None
    reasons: tuple[str, ...]
    chain: tuple[str, ...]  # who changed what led here: user → predict-price → rank
    depth: int
    root: UUID  # of that chain; what the stage makes of it has the same
    waits_for: str
    last_error: str | None = None
    last_note: str | None = None


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """An entity in all queues, and its last changes."""

    kind: str
    id: str
    epoch: int
    version: int
    changed_at: datetime
    stages: tuple[StageExplanation, ...]
    changes: tuple[ChangeNote, ...]

    def __str__(self) -> str:
        key, at = EntityKey(self.kind, self.id), f"{self.changed_at:%Y-%m-%d %H:%M:%S}"
        lines = [f"{key} v{self.version}, changed {at}"]
        lines += [_line(stage) for stage in self.stages] or ["  in no queue, no timers"]
        for note in self.changes[:10]:
            shown = ", ".join(path or "everything" for path in note.paths[:5])
            who = note.author.removeprefix("stage:")
            at = f"{note.at:%Y-%m-%d %H:%M:%S}"
            lines.append(f"  v{note.version} {at} by {who}: {shown} (root {note.root})")
        return "\n".join(lines)


class ParkedRow(msgspec.Struct, frozen=True, kw_only=True):
    """An entity that a stage gave up, or saves of it that the stage's `after_save` did not take."""

    kind: str
    entity_id: str
    stage: str
    status: RowStatus  # quarantined, looping, undelivered
    since: datetime
    attempts: int
    reasons: tuple[str, ...]
    depth: int
    error: str | None  # the last failure, or the proof of the loop


def parked_row(row: QueueRow) -> ParkedRow:
    """A row of the store as callers see it."""
    kind, entity_id = EntityKey.parse(row.entity_key)
    return ParkedRow(
        kind=kind,
        entity_id=entity_id,
        stage=row.stage,
        status=row.status,
        since=row.first_at,
        attempts=row.attempts,
        reasons=_readable(row.reasons),
        depth=row.depth,
        error=row.error,
    )


def _readable(reasons: Sequence[str | None]) -> tuple[str, ...]:
    """A hand may have left a NULL among them."""
    return tuple(filter(None, reasons))


def explained(
    entity: Entity,
    rows: Sequence[QueueRow],
    changes: Sequence[ChangeNote],
    register: Sequence[StageRecord],
    *,
    now: datetime,
) -> Explanation:
    """Put together what the store knows."""
    served = {stage.name: stage for stage in register if now - stage.last_seen_at < ORPHAN_AFTER}
    return Explanation(
        kind=entity.kind,
        id=entity.id,
        epoch=entity.epoch,
        version=entity.version,
        changed_at=entity.changed_at,
        stages=tuple(
            _explained(row, changes, stage=served.get(row.stage), now=now)
            for row in sorted(rows, key=lambda row: row.stage)
        ),
        changes=tuple(changes),
    )


def _explained(
    row: QueueRow, changes: Sequence[ChangeNote], *, stage: StageRecord | None, now: datetime
) -> StageExplanation:
    status = "orphan" if stage is None else row.status.value
    return StageExplanation(
        stage=row.stage,
        status=status,
        since=row.first_at,
        lane=StageLane(row.lane).name.lower(),
        attempts=row.attempts,
        next_try_at=row.ready_at if row.status is RowStatus.READY else None,
        timer_at=row.timer_at,
        reasons=_readable(row.reasons),
        chain=_chain(row, changes),
        depth=row.depth,
        root=row.root,
        waits_for=_waits_for(row, stage, now),
        last_error=row.error,
        last_note=row.note,
    )


def _chain(row: QueueRow, changes: Sequence[ChangeNote]) -> tuple[str, ...]:
    steps = sorted((n for n in changes if n.root == row.root), key=lambda note: note.version)
    chain = tuple(note.author.removeprefix("stage:") for note in steps)
    if row.status is RowStatus.UNDELIVERED:
        return chain  # it ends with the save
    return (*chain, row.stage) if steps else ()


def _waits_for(row: QueueRow, stage: StageRecord | None, now: datetime) -> str:
    if stage is None:
        return "no process serves this stage"
    if row.status is RowStatus.QUARANTINED:
        return "a change of what it watches, a new revision, or `gnomon entity release`"
    if row.status is RowStatus.LOOPING:
        return "a change from outside, a new revision, or `gnomon entity release`"
    if row.status is RowStatus.UNDELIVERED:
        return "a new revision, or `gnomon entity release`"
    if row.status is RowStatus.SLEEPING:
        return f"its timer in {_span(row.timer_at, now)}"
    if row.ready_at is not None and row.ready_at > now:
        if _is_debouncing(row.ready_at, row, stage, now):
            return f"debouncing until {row.ready_at:%Y-%m-%d %H:%M:%S}"
        what = "its next try" if row.attempts else "its time"
        return f"{what} in {_span(row.ready_at, now)}"
    return "its turn"


def _is_debouncing(ready_at: datetime, row: QueueRow, stage: StageRecord, now: datetime) -> bool:
    """Whether it waits for no other reason: no failure, and no delay that is longer."""
    return not row.attempts and row.error is None and ready_at - now <= stage.debounce


def _span(at: datetime | None, now: datetime) -> str:
    if at is None or at <= now:
        return "a moment"
    left = at - now
    if left >= timedelta(days=2):
        return f"{left.days} days"
    return str(timedelta(seconds=int(left.total_seconds())))


def _line(row: StageExplanation) -> str:
    why = "; ".join(row.reasons) or "no reason noted"
    chain = f" [{' → '.join(row.chain)}, depth {row.depth}]" if row.chain else ""
    error = f"; last error: {row.last_error}" if row.last_error else ""
    tries = f", {row.attempts} failures" if row.attempts else ""
    return f"  {row.stage}: {row.status}, waits for {row.waits_for}{tries}: {why}{chain}{error}"
