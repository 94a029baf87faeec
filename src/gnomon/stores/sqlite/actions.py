"""Actions in SQLite: create, change, remove, show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from gnomon.contracts.store import (
    LOCAL,
    ActionDraft,
    ActionPage,
    ChangeResult,
    DecideResume,
    SelectedCount,
    Selection,
)
from gnomon.model.action import Action, Attempt, State
from gnomon.model.codec import read_attempt
from gnomon.model.errors import Conflict, FailedPrecondition, NotFound
from gnomon.model.pause import NO_TERMS, PauseTerms
from gnomon.model.transition import expiry_of
from gnomon.stores._actions import (
    DELETED,
    REPLACED,
    creator_of,
    deleted_action,
    drafted_action,
    paused_status,
    with_progress,
)
from gnomon.stores._attempts import CANCELLING, SUPERSEDED
from gnomon.stores.sqlite.list_query import count_selected, list_page
from gnomon.stores.sqlite.queries import SQL, fetch, fetch_one
from gnomon.stores.sqlite.rows import (
    Row,
    bulk_row,
    draft_row,
    finished_action,
    live_action,
    micros,
    micros_or_none,
    moment,
    moment_or_none,
    running_attempt,
)
from gnomon.stores.sqlite.verbs import Connection, SqliteVerbs, browse, read, write, write_entry

GUID_BYTES = 16


class SqliteActions(SqliteVerbs):
    """The `ActionStore` of this engine. One writer at a time: a read in a write is a lock."""

    # -- create -----------------------------------------------------------------------------------

    @write
    def create(
        self,
        connection: Connection,
        drafts: Sequence[ActionDraft],
        *,
        actor: str = LOCAL,
        verb: str = "create",
    ) -> Sequence[ChangeResult | None]:
        now = self._clock.now()
        answers = _create(connection, drafts, now, creator_of(actor))
        stored = [item.action for item in answers if item is not None and not item.repeated]
        if stored:
            _audit(connection, verb, stored[0], actor, micros(now), count=len(stored))
        return answers

    # -- change -----------------------------------------------------------------------------------

    @write
    def replace(
        self,
        connection: Connection,
        draft: ActionDraft,
        *,
        if_match: UUID | None,
        actor: str = LOCAL,
    ) -> ChangeResult:
        live = _live(connection, draft.id)
        repeated = _repeated(connection, draft, live)
        if repeated is not None:
            return repeated
        now = self._clock.now()
        row = draft_row(draft, micros(now))
        if live is None:
            if if_match is not None:
                raise NotFound("action", draft.id)
            created = _create_one(connection, draft, row | {"creator": creator_of(actor)}, now)
            assert created is not None
            _audit(connection, "replace", created.action, actor, row["now"])
            return created
        _check_match(live, if_match)
        _supersede(connection, live, row["now"])
        connection.execute(SQL["replace"], row)
        connection.execute(SQL["append_incoming"], row)
        return _changed(connection, "replace", live, actor, row["now"])

    @write
    def delete(
        self,
        connection: Connection,
        id: str,
        *,
        if_match: UUID | None,
        running: bool = False,
        actor: str = LOCAL,
    ) -> ChangeResult:
        live = _expected(connection, id, if_match)
        now = self._clock.now()
        _end_generation(connection, live, CANCELLING if running else SUPERSEDED)
        ended: dict[str, Any] = {"id": id, "now": micros(now), "reason": DELETED}
        connection.execute(SQL["change_archive"], ended)
        connection.execute(SQL["delete"], {"id": id})
        action = deleted_action(live_action(live), now)
        _audit(connection, "delete", action, actor, ended["now"])
        flight = running_attempt(live)
        return ChangeResult(action=action, in_flight=flight, asked=running and flight is not None)

    @write
    def pause(
        self,
        connection: Connection,
        id: str,
        guid: UUID,
        *,
        if_match: UUID | None,
        terms: PauseTerms = NO_TERMS,
        actor: str = LOCAL,
    ) -> ChangeResult:
        live = _expected(connection, id, if_match, repeated_as=guid)
        before, now = live_action(live), self._clock.now()
        is_repeated = before.meta.guid == guid
        status = None if is_repeated else paused_status(before.status, terms, now)
        if status is None:
            return ChangeResult(action=before)
        change: dict[str, Any] = {
            "id": id,
            "guid": guid.bytes,
            "now": micros(now),
            "reason": status.reason,
            "paused_until": micros_or_none(status.paused_until),
        }
        _supersede(connection, live, change["now"])
        connection.execute(SQL["pause"], change)
        return _changed(connection, "pause", live, actor, change["now"])

    @write
    def resume(
        self,
        connection: Connection,
        id: str,
        guid: UUID,
        *,
        decide: DecideResume,
        if_match: UUID | None,
        actor: str = LOCAL,
    ) -> ChangeResult:
        live = _expected(connection, id, if_match, repeated_as=guid)
        if live["state"] == State.ACTIVE:
            return ChangeResult(action=live_action(live))
        now = self._clock.now()
        scheduled_at, occurrence_at, expires_at = decide(live_action(live), now)
        change: dict[str, Any] = {
            "id": id,
            "guid": guid.bytes,
            "now": micros(now),
            "scheduled_at": micros(scheduled_at),
            "occurrence_at": micros(occurrence_at),
            "expires_at": micros_or_none(expires_at),
        }
        _supersede(connection, live, change["now"])
        connection.execute(SQL["resume"], change)
        connection.execute(SQL["append_incoming_of_action"], change)
        return _changed(connection, "resume", live, actor, change["now"])

    @write
    def run_now(
        self,
        connection: Connection,
        id: str,
        guid: UUID,
        *,
        if_match: UUID | None,
        actor: str = LOCAL,
    ) -> ChangeResult:
        live = _expected(connection, id, if_match, repeated_as=guid)
        if live["guid"] == guid.bytes:
            return ChangeResult(action=live_action(live), repeated=True)
        if live["state"] == State.PAUSED:
            raise FailedPrecondition(id, state="paused", wanted="active")
        if live["running"]:
            raise FailedPrecondition(id, state="being attempted", wanted="idle")
        now = self._clock.now()
        change: dict[str, Any] = {
            "id": id,
            "guid": guid.bytes,
            "now": micros(now),
            "expires_at": micros_or_none(expiry_of(live_action(live).spec, now, now)),
        }
        _supersede(connection, live, change["now"])
        connection.execute(SQL["run_now"], change)
        connection.execute(SQL["append_incoming_of_action"], change)
        return _changed(connection, "run_now", live, actor, change["now"])

    # -- show -------------------------------------------------------------------------------------

    @read
    def get(self, connection: Connection, id: str) -> Action | None:
        return find_action(connection, id, self._now_us())

    @read
    def get_many(self, connection: Connection, ids: Sequence[str]) -> Sequence[Action | None]:
        now_us = self._now_us()
        return [find_action(connection, id, now_us) for id in ids]

    @browse
    def list(
        self, connection: Connection, selection: Selection, *, after: str | None, limit: int
    ) -> ActionPage:
        return list_page(connection, selection, after=after, limit=limit, now_us=self._now_us())

    @browse
    def count_selected(
        self, connection: Connection, selection: Selection, *, after: str | None = None, limit: int
    ) -> SelectedCount:
        now_us = self._now_us()
        return count_selected(connection, selection, after=after, limit=limit, now_us=now_us)

    @read
    def list_attempts(self, connection: Connection, id: str, *, limit: int) -> Sequence[Attempt]:
        wanted = {"id": id, "limit": limit, "now": self._now_us()}
        return [_logged_attempt(row) for row in fetch(connection, "list_attempts", wanted)]

    @browse
    def count(self, connection: Connection) -> Mapping[State, int]:
        counts = dict.fromkeys(State, 0)
        for row in fetch(connection, "count", {"now": self._now_us()}):
            counts[State(row["state"])] = row["count"]
        return counts


# -- steps of the verbs ---------------------------------------------------------------------------


def _create(
    connection: Connection, drafts: Sequence[ActionDraft], now: datetime, creator: str | None
) -> list[ChangeResult | None]:
    now_us = micros(now)
    if len(drafts) > 1 and _create_bulk(connection, bulk_row(drafts, now_us, creator)):
        return [ChangeResult(action=drafted_action(draft, created_at=now)) for draft in drafts]
    return [
        _create_one(connection, draft, draft_row(draft, now_us) | {"creator": creator}, now)
        for draft in drafts
    ]


def _create_bulk(connection: Connection, bulk: dict[str, Any]) -> bool:
    """Store them all; or, if one exists already, none and say so."""
    wanted = len(bulk["packed"]) // GUID_BYTES
    (before,) = connection.execute(SQL["create_after"]).fetchone()
    connection.execute("SAVEPOINT bulk")
    is_stored = connection.execute(SQL["create_bulk"], bulk).rowcount == wanted
    if is_stored:
        connection.execute(SQL["append_incoming_bulk"], {"before": before})
    else:
        connection.execute("ROLLBACK TO bulk")
    connection.execute("RELEASE bulk")
    return is_stored


def _create_one(
    connection: Connection, draft: ActionDraft, row: dict[str, Any], now: datetime
) -> ChangeResult | None:
    if connection.execute(SQL["create"], row).rowcount:
        connection.execute(SQL["append_incoming"], row)
        return ChangeResult(action=drafted_action(draft, created_at=now))
    return _repeated(connection, draft, _live(connection, draft.id))


def _repeated(connection: Connection, draft: ActionDraft, live: Row | None) -> ChangeResult | None:
    """What to answer if this very generation was stored before, else None."""
    generation = {"id": draft.id, "guid": draft.guid.bytes}
    if live is not None and live["guid"] == draft.guid.bytes:
        connection.execute(SQL["repeat_live"], generation)
        return ChangeResult(action=live_action(live), repeated=True)
    finished = fetch_one(connection, "repeat_generation", generation)
    if finished is None:
        return None
    connection.execute(SQL["repeat_finished"], generation)
    action = finished_action(finished) if live is None else live_action(live)
    return ChangeResult(action=action, repeated=True)


def find_action(connection: Connection, id: str, now_us: int) -> Action | None:
    live = _live(connection, id)
    if live is not None:
        action = live_action(live)
        if live["running"]:
            of = {"id": id, "attempt_id": live["attempt_id"]}
            told = fetch_one(connection, "get_progress", of)
            if told is not None:
                return with_progress(action, moment(told["at"]), told["fraction"], told["said"])
        return action
    finished = fetch_one(connection, "get_finished", {"id": id, "now": now_us})
    return None if finished is None else finished_action(finished)


def _live(connection: Connection, id: str) -> Row | None:
    return fetch_one(connection, "get_live", {"id": id})


def _expected(
    connection: Connection, id: str, if_match: UUID | None, *, repeated_as: UUID | None = None
) -> Row:
    """The live action, as the caller expects it; his own change, if it was made, is no conflict."""
    live = _live(connection, id)
    if live is None:
        raise NotFound("action", id)
    if repeated_as is None or live["guid"] != repeated_as.bytes:
        _check_match(live, if_match)
    return live


def _check_match(live: Row, if_match: UUID | None) -> None:
    if if_match is not None and live["guid"] != if_match.bytes:
        raise Conflict(live["id"], expected=str(if_match), found=str(UUID(bytes=live["guid"])))


def _supersede(connection: Connection, live: Row, now_us: int) -> None:
    """Close what the old generation leaves behind: its row, its attempt in flight, its key."""
    _end_generation(connection, live)
    if live["keyed"]:
        ended = {"id": live["id"], "now": now_us, "reason": REPLACED}
        connection.execute(SQL["change_archive"], ended)


def _end_generation(connection: Connection, live: Row, outcome: str = SUPERSEDED) -> None:
    """`outcome`: what the log says of its attempt in flight, until that tells how it ended."""
    connection.execute(SQL["change_log_attempt"], {"id": live["id"], "outcome": outcome})
    connection.execute(SQL["change_drop_row"], {"guid": live["guid"]})


def _changed(
    connection: Connection, verb: str, before: Row, actor: str, now_us: int
) -> ChangeResult:
    """The answer to a change that was made, which the audit is told."""
    after = _live(connection, before["id"])
    assert after is not None
    action = live_action(after)
    _audit(connection, verb, action, actor, now_us)
    return ChangeResult(action=action, in_flight=running_attempt(before))


def _audit(
    connection: Connection, verb: str, action: Action, actor: str, now_us: int, *, count: int = 1
) -> None:
    meta = action.meta
    write_entry(connection, verb, actor, meta.id, at=now_us, guid=meta.guid, count=count)


def _logged_attempt(row: Row) -> Attempt:
    """As it was written whole, or out of the columns of the log."""
    return read_attempt(row["written"]) or Attempt(
        attempt_id=UUID(bytes=row["attempt_id"]),
        attempt_no=row["attempt_no"],
        occurrence_no=row["occurrence_no"],
        began_at=moment(row["began_at"]),
        ended_at=moment_or_none(row["ended_at"]),
        outcome=row["outcome"],
        error=row["error"],
        answer=row["answer"],
        owner=row["owner"],
    )
