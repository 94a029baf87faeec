"""What becomes of claims: commits, and what is given back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from gnomon.contracts.store.entities import ChangeNote
from gnomon.contracts.store.queues import (
    Commit,
    CommitKind,
    CommitResult,
    Enqueue,
    ReturnedClaim,
    ReturnedKind,
    RowStatus,
    Unchanged,
)
from gnomon.model.ids import author_of, save_key
from gnomon.model.stage.queue_merge import READY, SLEEPING, earlier
from gnomon.stores.sqlite.entities.enqueues import asleep, load_row, replace_row
from gnomon.stores.sqlite.entities.outbox import OutboxSave
from gnomon.stores.sqlite.entities.rows import Connection, GoodLeases, StoredRow, note_of
from gnomon.stores.sqlite.entities.snapshot import CommitSnapshot
from gnomon.stores.sqlite.entities.verbs import EntityVerbs, load_entity
from gnomon.stores.sqlite.queries import SQL
from gnomon.stores.sqlite.rows import duration_us, micros_or_none
from gnomon.stores.sqlite.verbs import write


class SqliteCommits(EntityVerbs):
    """The part of the `QueueStore` that writes what became of claims."""

    @write
    def commit(self, connection: Connection, commits: Sequence[Commit]) -> Sequence[CommitResult]:
        leases = GoodLeases(connection)
        keys = [(part.entity_key, part.stage) for commit in commits for part in commit.parts]
        snapshot = CommitSnapshot(connection, keys, now_us=self._now_us(), seq=self._new_seq())
        answers = [
            _commit(connection, snapshot, commit)
            if leases.holds(commit.shard, commit.lease_guid)
            else CommitResult(kind=CommitKind.LOST)
            for commit in commits
        ]
        snapshot.write_back()
        return answers

    @write
    def give_back(
        self, connection: Connection, claims: Sequence[ReturnedClaim]
    ) -> Sequence[ReturnedKind]:
        leases = GoodLeases(connection)
        now_us = self._now_us()
        return [
            ReturnedKind.WRITTEN
            if leases.holds(row.shard, row.lease_guid) and _give_back(connection, row, now_us)
            else ReturnedKind.STALE
            for row in claims
        ]


# -- commit ---------------------------------------------------------------------------------------


def _commit(connection: Connection, snapshot: CommitSnapshot, commit: Commit) -> CommitResult:
    entity = snapshot.entities.get(commit.entity_key)
    if entity is None or entity.epoch != commit.epoch:
        return CommitResult(kind=CommitKind.GONE)
    if entity.version != commit.version:
        snapshot.write_back()  # it may have been moved by this very batch
        return _moved(connection, commit)
    parts = commit.parts
    if not all(_has_state(snapshot, part) for part in parts):
        return CommitResult(kind=CommitKind.STATE_MOVED)
    for part in parts:
        _save(connection, snapshot, part)
    made = snapshot.enqueue_all(commit.enqueues, shard=commit.shard, entity_key=commit.entity_key)
    return CommitResult(kind=CommitKind.SAVED, made=made)


def _has_state(snapshot: CommitSnapshot, commit: Commit) -> bool:
    """Whether the stage's state is still the one that was loaded."""
    state = snapshot.states.get((commit.entity_key, commit.stage))
    return commit.state_version == (0 if state is None else state.version)


def _moved(connection: Connection, commit: Commit) -> CommitResult:
    wanted = {"entity_key": commit.entity_key, "epoch": commit.epoch, "since": commit.version}
    since: tuple[ChangeNote, ...] = tuple(
        note_of(row) for row in connection.execute(SQL["changes_since"], wanted)
    )
    entity = load_entity(connection, commit.entity_key)
    return CommitResult(kind=CommitKind.MOVED, entity=entity, since=since)


def _save(connection: Connection, snapshot: CommitSnapshot, commit: Commit) -> None:
    if commit.doc is not None:
        snapshot.change(commit, commit.doc)
    if not isinstance(commit.state, Unchanged):
        key = (commit.entity_key, commit.stage)
        snapshot.put_state(commit.state, key, shard=commit.shard)
    _finish_row(snapshot, commit)
    if not (snapshot.has_relay or commit.after_save):
        return
    sinks = [""] * snapshot.has_relay + [commit.stage] * commit.after_save
    if commit.doc is not None or not isinstance(commit.state, Unchanged):
        snapshot.publish(_save_of(connection, snapshot, commit), sinks)


def _finish_row(snapshot: CommitSnapshot, commit: Commit) -> None:
    """The claimed row goes, or sleeps if a timer is left; but not if something came meanwhile. What
    sleeps anyway is as good as claimed."""
    key = (commit.entity_key, commit.stage)
    row = snapshot.rows.get(key)
    timer_at = _timer(commit.wake, None if row is None else row.timer_at)
    note = commit.note or None
    if row is None:
        snapshot.enqueue(_timer_alone(commit), shard=commit.shard, entity_key=commit.entity_key)
    elif row.seq != commit.seq and row.status != SLEEPING:
        snapshot.put_row(row._replace(timer_at=timer_at, attempts=0, error=None, note=note))
    elif timer_at is None:
        del snapshot.rows[key]
    else:
        snapshot.put_row(asleep(row)._replace(timer_at=timer_at, note=note))


def _timer_alone(commit: Commit) -> Enqueue:
    """For a row that is gone, though its stage wants to be woken."""
    wake = commit.wake if isinstance(commit.wake, datetime) else None
    return Enqueue(
        stage=commit.stage, reason="", root=commit.root, depth=commit.depth, ready=False, wake=wake
    )


def _timer(wake: datetime | Unchanged | None, before: int | None) -> int | None:
    return before if isinstance(wake, Unchanged) else micros_or_none(wake)


def _save_of(connection: Connection, snapshot: CommitSnapshot, commit: Commit) -> OutboxSave:
    """What goes out: document and state as they are now."""
    version = snapshot.entities[commit.entity_key].version
    state = snapshot.states.get((commit.entity_key, commit.stage))
    is_new = state is not None and not isinstance(commit.state, Unchanged)
    return OutboxSave(
        shard=commit.shard,
        entity_key=commit.entity_key,
        n=0,
        epoch=commit.epoch,
        version=version,
        author=author_of(commit.stage),
        root=commit.root,
        paths=commit.paths,
        doc=_document(connection, snapshot, commit) if commit.doc is None else commit.doc,
        state=state,
        key=save_key(
            commit.entity_key,
            commit.epoch,
            version,
            state=(commit.stage, state.version) if state is not None and is_new else None,
        ),
        now_us=snapshot.now_us,
    )


def _document(connection: Connection, snapshot: CommitSnapshot, commit: Commit) -> str | None:
    """The document that a commit left as it was."""
    snapshot.write_back()  # it may have been saved by this very batch
    entity = load_entity(connection, commit.entity_key)
    return None if entity is None else entity.doc


# -- give back ------------------------------------------------------------------------------------


def _give_back(connection: Connection, back: ReturnedClaim, now_us: int) -> bool:
    row = load_row(connection, back.shard, back.entity_key, back.stage)
    if row is None:
        return False
    counted = row._replace(
        attempts=row.attempts + back.counts,
        error=row.error if back.error is None else back.error,
    )
    if row.seq != back.seq:
        replace_row(connection, row, counted)
        return False
    timer_at = earlier(row.timer_at, micros_or_none(back.wake))
    replace_row(connection, row, _put_back(counted._replace(timer_at=timer_at), back, now_us))
    return True


def _put_back(row: StoredRow, back: ReturnedClaim, now_us: int) -> StoredRow | None:
    match back.status:
        case RowStatus.READY:
            return row._replace(status=READY, ready_at=now_us + duration_us(back.delay))
        case None | RowStatus.SLEEPING:
            return None if row.timer_at is None else asleep(row)
        case parked:
            return row._replace(status=str(parked), ready_at=None)
