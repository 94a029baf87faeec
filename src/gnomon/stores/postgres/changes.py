"""Changes of one action, inside a transaction: replace, delete, pause, resume, run now.

Each locks the action row, then reads it again by a statement of its own: an attempt that began
before the lock was granted is visible then. The old generation's row in the processing queue goes
with it, unless an attempt runs: then it goes when that ends. A row still in the incoming queue
stays: nobody can begin it, and its owner drops it when it is moved, or when its attempt ends.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import msgspec

from gnomon.contracts.store import ActionDraft, ChangeResult, DecideResume
from gnomon.contracts.store.tokens import face_of
from gnomon.model.action import Action, Attempt, State, Status
from gnomon.model.declaration import Revision
from gnomon.model.errors import Conflict, FailedPrecondition, NotFound, StoreUnavailable
from gnomon.model.pause import PauseTerms
from gnomon.model.transition import expiry_of
from gnomon.stores._actions import (
    DELETED,
    REPLACED,
    deleted_action,
    drafted_action,
    paused_status,
    resumed_action,
)
from gnomon.stores._attempts import CANCELLING, SUPERSEDED
from gnomon.stores._declarations import revised_draft
from gnomon.stores.postgres.connection import Session
from gnomon.stores.postgres.creation import create_drafts, draft_columns, find_repeat
from gnomon.stores.postgres.parts import Only
from gnomon.stores.postgres.rows import Decoder

REPLACE_TRIES_MAX = 5  # an id that others create and end all the time: let the caller try again


class ActionAddress(NamedTuple):
    """Where an action lives, and what keeps a statement there."""

    shard: int
    id: str
    shards: Only  # the last argument on Citus


class LiveAction(NamedTuple):
    """A locked action."""

    action: Action
    keyed: bool
    queue: str
    priority: int
    now: datetime

    @property
    def attempt(self) -> Attempt | None:
        return self.action.status.current_attempt


class ActionChanger:
    """Performs changes in a session, on behalf of somebody."""

    def __init__(
        self, session: Session, decoder: Decoder, actor: str, *, joined: bool = False
    ) -> None:
        self._session = session
        self._decoder = decoder
        self._actor = actor
        self._joined = joined  # in a transaction of the caller's, of whatever isolation

    async def replace(
        self, draft: ActionDraft, place: ActionAddress, if_match: UUID | None
    ) -> ChangeResult:
        for _ in range(REPLACE_TRIES_MAX):
            live = await self._lock(place)
            if draft.keyed:
                repeat = await find_repeat(self._session, self._decoder, draft, place.shards)
                if repeat is not None:
                    return repeat
            if live is not None:
                _check_match(live, if_match)
                return await self._replace(draft, place, live)
            if if_match is not None:
                raise NotFound("action", draft.id)
            (created,) = await create_drafts(
                self._session, self._decoder, [draft], place.shards,
                actor=self._actor, verb="replace",
            )  # fmt: skip
            if created is not None:
                return created
        raise StoreUnavailable(f"replace: {draft.id!r} was created by others; safe to repeat")

    async def _replace(
        self, draft: ActionDraft, place: ActionAddress, live: LiveAction
    ) -> ChangeResult:
        await self._supersede(place, live)
        columns = [column[0] for column in draft_columns([draft])]
        rows = await self._session.fetch("replace", *columns, draft.keyed)
        updated_at: datetime = rows[0]["updated_at"]
        spec = draft.spec
        await self._announce(
            place, draft.guid, spec.queue, spec.priority, due=draft.scheduled_at, now=updated_at
        )
        await self._audit("replace", place, draft.guid, updated_at)
        created_at = live.action.meta.created_at
        action = drafted_action(draft, created_at=created_at, updated_at=updated_at)
        return ChangeResult(action=action, in_flight=live.attempt)

    async def delete(
        self,
        place: ActionAddress,
        if_match: UUID | None,
        *,
        running: bool,
        verb: str = "delete",
    ) -> ChangeResult:
        live = await self._expected(place, if_match)
        await self._end_generation(place, live, CANCELLING if running else SUPERSEDED)
        await self._archive(place, live, DELETED)
        await self._session.fetch("delete", place.shard, place.id)
        await self._audit(verb, place, live.action.meta.guid, live.now)
        action, flight = deleted_action(live.action, live.now), live.attempt
        return ChangeResult(action=action, in_flight=flight, asked=running and flight is not None)

    async def pause(
        self,
        place: ActionAddress,
        guid: UUID,
        if_match: UUID | None,
        *,
        terms: PauseTerms,
        verb: str = "pause",
    ) -> ChangeResult:
        live = await self._expected(place, if_match, repeated_as=guid)
        if live.action.meta.guid == guid:
            return ChangeResult(action=live.action)
        status = paused_status(live.action.status, terms, live.now)
        if status is None:
            return ChangeResult(action=live.action)
        return await self._change(verb, place, live, guid, _idle(status))

    async def resume(
        self, place: ActionAddress, guid: UUID, decide: DecideResume, if_match: UUID | None
    ) -> ChangeResult:
        live = await self._expected(place, if_match, repeated_as=guid)
        if live.action.status.state is State.ACTIVE:
            return ChangeResult(action=live.action)
        times = decide(live.action, live.now)
        status = resumed_action(live.action, guid, times, live.now).status
        return await self._change("resume", place, live, guid, status)

    async def run_now(
        self, place: ActionAddress, guid: UUID, if_match: UUID | None
    ) -> ChangeResult:
        live = await self._expected(place, if_match, repeated_as=guid)
        before = live.action.status
        if live.action.meta.guid == guid:
            return ChangeResult(action=live.action, repeated=True)
        if before.state is State.PAUSED:
            raise FailedPrecondition(place.id, state="paused", wanted="active")
        if live.attempt is not None:
            raise FailedPrecondition(place.id, state="being attempted", wanted="idle")
        status = msgspec.structs.replace(
            before,
            scheduled_at=live.now,
            occurrence_no=before.occurrence_no + (before.attempts > 0),
            occurrence_at=live.now,
            expires_at=expiry_of(live.action.spec, live.now, live.now),
            occurrence_failures=0,
        )
        return await self._change("run_now", place, live, guid, status)

    async def locked(self, place: ActionAddress) -> LiveAction | None:
        """The active or paused action, locked."""
        return await self._lock(place)

    async def revise(
        self, place: ActionAddress, live: LiveAction, draft: ActionDraft, revision: Revision
    ) -> None:
        """A new generation with another spec, whose counters go on."""
        await self._supersede(place, live)
        columns = [column[0] for column in draft_columns([revised_draft(draft, revision)])]
        due = revision.scheduled_at
        rows = await self._session.fetch(
            "declare_action_revise", *columns[:8], due, *columns[9:], str(revision.state),
            revision.occurrence_no, revision.occurrence_failures,
        )  # fmt: skip
        updated_at: datetime = rows[0]["updated_at"]
        if due is not None:
            spec = revision.spec
            await self._announce(
                place, draft.guid, spec.queue, spec.priority, due=due, now=updated_at
            )
        await self._audit("declare", place, draft.guid, updated_at)

    # -- steps ------------------------------------------------------------------------------------

    async def _lock(self, place: ActionAddress) -> LiveAction | None:
        if not await self._session.fetch("change_lock", place.shard, place.id):
            return None
        rows = await self._session.fetch("get_live", [place.shard], [place.id], *place.shards)
        row = rows[0]
        action = self._decoder.action_of(row)
        return LiveAction(action, row["keyed"], row["queue"], row["priority"], row["now"])

    async def _expected(
        self, place: ActionAddress, if_match: UUID | None, *, repeated_as: UUID | None = None
    ) -> LiveAction:
        """The locked action as the caller expects it; his own change, once made, is no conflict."""
        live = await self._lock(place)
        if live is None:
            raise NotFound("action", place.id)
        if live.action.meta.guid != repeated_as:
            _check_match(live, if_match)
        return live

    async def _change(
        self, verb: str, place: ActionAddress, live: LiveAction, guid: UUID, status: Status
    ) -> ChangeResult:
        """Write a new generation that keeps spec and counters."""
        due = status.scheduled_at
        await self._supersede(place, live)
        rows = await self._session.fetch(
            "change", place.shard, place.id, guid, str(status.state), due,
            status.occurrence_at, status.expires_at, status.occurrence_no,
            status.occurrence_failures, status.reason, status.paused_until,
        )  # fmt: skip
        updated_at: datetime = rows[0]["updated_at"]
        if due is not None:
            await self._announce(place, guid, live.queue, live.priority, due=due, now=updated_at)
        await self._audit(verb, place, guid, updated_at)
        meta = msgspec.structs.replace(live.action.meta, guid=guid, updated_at=updated_at)
        action = Action(meta=meta, spec=live.action.spec, status=status)
        return ChangeResult(action=action, in_flight=live.attempt)

    async def _announce(
        self,
        place: ActionAddress,
        guid: UUID,
        queue: str,
        priority: int,
        *,
        due: datetime,
        now: datetime,
    ) -> None:
        await self._session.fetch(
            "append_incoming", [place.shard], [guid], [queue], [priority], [due], now, *place.shards
        )

    async def _audit(self, verb: str, place: ActionAddress, guid: UUID, at: datetime) -> None:
        await self._session.fetch(
            "write_audit_entry", at, guid, place.shard, 1, verb, str(self._actor), place.id,
            face_of(self._actor),
        )  # fmt: skip

    async def _supersede(self, place: ActionAddress, live: LiveAction) -> None:
        """Close what the old generation leaves behind: its row, its attempt in flight, its key."""
        await self._end_generation(place, live)
        if live.keyed:
            await self._archive(place, live, REPLACED)

    async def _archive(self, place: ActionAddress, live: LiveAction, reason: str) -> None:
        flight = int(live.attempt is not None)
        await self._session.fetch("change_archive", place.shard, place.id, reason, live.now, flight)

    async def _end_generation(
        self, place: ActionAddress, live: LiveAction, outcome: str = SUPERSEDED
    ) -> None:
        """`outcome`: what the log says of its attempt in flight, until that tells how it ended."""
        attempt = live.attempt
        if attempt is None:
            guid = live.action.meta.guid
            if self._joined:
                await self._session.fetch("change_check_snapshot", place.shard, guid)
            await self._session.fetch("change_drop_row", guid, *place.shards)
            return
        await self._session.fetch(
            "log_attempt", [place.shard], [place.id], [live.action.meta.guid],
            [attempt.attempt_id], [attempt.attempt_no], [attempt.occurrence_no],
            [attempt.began_at], [outcome], [None], [None], [attempt.owner], None,
            *place.shards,
        )  # fmt: skip


def _check_match(live: LiveAction, if_match: UUID | None) -> None:
    meta = live.action.meta
    if if_match is not None and meta.guid != if_match:
        raise Conflict(meta.id, expected=str(if_match), found=str(meta.guid))


def _idle(status: Status) -> Status:
    """Without what only a queue row tells: the attempt in flight is not counted, it has no end."""
    return msgspec.structs.replace(
        status,
        scheduled_at=None,
        attempts=status.succeeded + status.failed + status.interrupted,
        current_attempt=None,
    )


def renewed(action: Action, updated_at: datetime) -> Action:
    """The action with the time at which it was really written."""
    meta = msgspec.structs.replace(action.meta, updated_at=updated_at)
    return Action(meta=meta, spec=action.spec, status=action.status)
