"""Actions in SQLite: create, change, remove, show."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from gnomon.contracts.clock import Clock
from gnomon.contracts.store import LOCAL, ActionDraft, ActionPage, ChangeResult, Selection
from gnomon.model.action import Action, Attempt, State
from gnomon.model.codec import read_attempt
from gnomon.model.errors import Conflict, FailedPrecondition, NotFound
from gnomon.model.transition import expiry_of
from gnomon.stores.sqlite.connection import Runner
from gnomon.stores.sqlite.list_query import list_page
from gnomon.stores.sqlite.queries import SQL
from gnomon.stores.sqlite.rows import (
    FinishedRow,
    LiveRow,
    bulk_row,
    draft_row,
    drafted_action,
    micros,
    micros_or_none,
    moment,
    moment_or_none,
)

Connection = sqlite3.Connection
Decide = Callable[[Action, datetime], tuple[datetime, datetime, datetime | None]]

DELETED = "deleted"
REPLACED = "replaced"


class SqliteActions:
    """The `ActionStore` of this engine. One writer at a time: a read in a write is a lock."""

    def __init__(self, runner: Runner, clock: Clock) -> None:
        self._runner = runner
        self._clock = clock

    # -- create -----------------------------------------------------------------------------------

    async def create(
        self, drafts: Sequence[ActionDraft], *, actor: str = LOCAL, verb: str = "create"
    ) -> Sequence[ChangeResult | None]:
        def create(connection: Connection) -> list[ChangeResult | None]:
            now = self._clock.now()
            found = self._create(connection, drafts, now, _creator_of(actor))
            stored = [item.action for item in found if item is not None and not item.repeated]
            if stored:
                _audit(connection, verb, stored[0], actor, micros(now), count=len(stored))
            return found

        return await self._runner.write(create)

    def _create(
        self,
        connection: Connection,
        drafts: Sequence[ActionDraft],
        now: datetime,
        creator: str | None,
    ) -> list[ChangeResult | None]:
        rows = [draft_row(draft, micros(now)) for draft in drafts]
        if len(rows) > 1 and self._create_bulk(connection, rows, creator):
            return [ChangeResult(action=drafted_action(draft, now)) for draft in drafts]
        return [
            self._create_one(connection, draft, row | {"creator": creator}, now)
            for draft, row in zip(drafts, rows, strict=True)
        ]

    def _create_bulk(
        self, connection: Connection, rows: Sequence[dict[str, Any]], creator: str | None
    ) -> bool:
        """Store them all; or, if one exists already, none and say so."""
        bulk = bulk_row(rows) | {"creator": creator}
        connection.execute("SAVEPOINT bulk")
        is_stored = connection.execute(SQL["create_bulk"], bulk).rowcount == len(rows)
        if is_stored:
            connection.execute(SQL["append_incoming_bulk"], bulk)
        else:
            connection.execute("ROLLBACK TO bulk")
        connection.execute("RELEASE bulk")
        return is_stored

    def _create_one(
        self, connection: Connection, draft: ActionDraft, row: dict[str, Any], now: datetime
    ) -> ChangeResult | None:
        if connection.execute(SQL["create"], row).rowcount:
            connection.execute(SQL["append_incoming"], row)
            return ChangeResult(action=drafted_action(draft, now))
        return self._repeated(connection, draft, _live(connection, draft.id))

    def _repeated(
        self, connection: Connection, draft: ActionDraft, live: LiveRow | None
    ) -> ChangeResult | None:
        """What to answer if this very generation was stored before, else None."""
        generation = {"id": draft.id, "guid": draft.guid.bytes}
        if live is not None and live.guid == draft.guid.bytes:
            connection.execute(SQL["repeat_live"], generation)
            return ChangeResult(action=live.action(), repeated=True)
        finished = connection.execute(SQL["repeat_generation"], generation).fetchone()
        if finished is None:
            return None
        connection.execute(SQL["repeat_finished"], generation)
        shown = FinishedRow(*finished) if live is None else live
        return ChangeResult(action=shown.action(), repeated=True)

    # -- change -----------------------------------------------------------------------------------

    async def replace(
        self, draft: ActionDraft, *, if_match: UUID | None, actor: str = LOCAL
    ) -> ChangeResult:
        return await self._runner.write(
            lambda connection: self._replace(connection, draft, if_match, actor)
        )

    def _replace(
        self, connection: Connection, draft: ActionDraft, if_match: UUID | None, actor: str
    ) -> ChangeResult:
        live = _live(connection, draft.id)
        repeated = self._repeated(connection, draft, live)
        if repeated is not None:
            return repeated
        now = self._clock.now()
        row = draft_row(draft, micros(now))
        if live is None:
            if if_match is not None:
                raise NotFound("action", draft.id)
            row["creator"] = _creator_of(actor)
            created = self._create_one(connection, draft, row, now)
            assert created is not None
            _audit(connection, "replace", created.action, actor, row["now"])
            return created
        _check_match(live, if_match)
        _supersede(connection, live, row["now"])
        connection.execute(SQL["replace"], row)
        connection.execute(SQL["append_incoming"], row)
        return _changed(connection, "replace", live, actor, row["now"])

    async def delete(self, id: str, *, if_match: UUID | None, actor: str = LOCAL) -> ChangeResult:
        return await self._runner.write(
            lambda connection: self._delete(connection, id, if_match, actor)
        )

    def _delete(
        self, connection: Connection, name: str, if_match: UUID | None, actor: str
    ) -> ChangeResult:
        live = _found(connection, name, if_match)
        now = self._clock.now()
        _end_generation(connection, live)
        ended: dict[str, Any] = {"id": name, "now": micros(now), "reason": DELETED}
        connection.execute(SQL["change_archive"], ended)
        connection.execute(SQL["delete"], {"id": name})
        action = _cancelled(live, now)
        _audit(connection, "delete", action, actor, ended["now"])
        return ChangeResult(action=action, in_flight=live.attempt())

    async def pause(
        self, id: str, guid: UUID, *, if_match: UUID | None, actor: str = LOCAL
    ) -> ChangeResult:
        return await self._runner.write(
            lambda connection: self._pause(connection, id, guid, if_match, actor)
        )

    def _pause(
        self, connection: Connection, name: str, guid: UUID, if_match: UUID | None, actor: str
    ) -> ChangeResult:
        live = _found(connection, name, if_match, repeated_as=guid)
        if live.state == State.PAUSED:
            return ChangeResult(action=live.action())
        change: dict[str, Any] = {"id": name, "guid": guid.bytes, "now": micros(self._clock.now())}
        _supersede(connection, live, change["now"])
        connection.execute(SQL["pause"], change)
        return _changed(connection, "pause", live, actor, change["now"])

    async def resume(
        self,
        id: str,
        guid: UUID,
        *,
        decide: Decide,
        if_match: UUID | None,
        actor: str = LOCAL,
    ) -> ChangeResult:
        return await self._runner.write(
            lambda connection: self._resume(connection, id, guid, decide, if_match, actor=actor)
        )

    def _resume(
        self,
        connection: Connection,
        name: str,
        guid: UUID,
        decide: Decide,
        if_match: UUID | None,
        *,
        actor: str,
    ) -> ChangeResult:
        live = _found(connection, name, if_match, repeated_as=guid)
        if live.state == State.ACTIVE:
            return ChangeResult(action=live.action())
        now = self._clock.now()
        scheduled_at, occurrence_at, expires_at = decide(live.action(), now)
        change: dict[str, Any] = {
            "id": name,
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

    async def run_now(
        self, id: str, guid: UUID, *, if_match: UUID | None, actor: str = LOCAL
    ) -> ChangeResult:
        return await self._runner.write(
            lambda connection: self._run_now(connection, id, guid, if_match, actor)
        )

    def _run_now(
        self, connection: Connection, name: str, guid: UUID, if_match: UUID | None, actor: str
    ) -> ChangeResult:
        live = _found(connection, name, if_match, repeated_as=guid)
        if live.guid == guid.bytes:
            return ChangeResult(action=live.action(), repeated=True)
        if live.state == State.PAUSED:
            raise FailedPrecondition(name, state="paused", wanted="active")
        if live.running:
            raise FailedPrecondition(name, state="being attempted", wanted="idle")
        now = self._clock.now()
        change: dict[str, Any] = {
            "id": name,
            "guid": guid.bytes,
            "now": micros(now),
            "expires_at": micros_or_none(expiry_of(live.action().spec, now, now)),
        }
        _supersede(connection, live, change["now"])
        connection.execute(SQL["run_now"], change)
        connection.execute(SQL["append_incoming_of_action"], change)
        return _changed(connection, "run_now", live, actor, change["now"])

    # -- show -------------------------------------------------------------------------------------

    async def get(self, id: str) -> Action | None:
        found = await self.get_many([id])
        return found[0]

    async def get_many(self, ids: Sequence[str]) -> Sequence[Action | None]:
        return await self._runner.read(
            lambda connection: [self._get(connection, name) for name in ids]
        )

    def _get(self, connection: Connection, name: str) -> Action | None:
        live = _live(connection, name)
        if live is not None:
            return live.action()
        wanted = {"id": name, "now": micros(self._clock.now())}
        finished = connection.execute(SQL["get_finished"], wanted).fetchone()
        return None if finished is None else FinishedRow(*finished).action()

    async def list(self, selection: Selection, *, after: str | None, limit: int) -> ActionPage:
        now_us = micros(self._clock.now())
        return await self._runner.browse(
            lambda connection: list_page(
                connection, selection, after=after, limit=limit, now_us=now_us
            )
        )

    async def list_attempts(self, id: str, *, limit: int) -> Sequence[Attempt]:
        wanted = {"id": id, "limit": limit, "now": micros(self._clock.now())}
        rows = await self._runner.read(
            lambda connection: connection.execute(SQL["list_attempts"], wanted).fetchall()
        )
        return [_logged_attempt(row) for row in rows]

    async def count(self) -> Mapping[State, int]:
        wanted = {"now": micros(self._clock.now())}
        rows = await self._runner.browse(
            lambda connection: connection.execute(SQL["count"], wanted).fetchall()
        )
        return dict.fromkeys(State, 0) | {State(state): count for state, count in rows}


# -- steps of the verbs ---------------------------------------------------------------------------


def _live(connection: Connection, name: str) -> LiveRow | None:
    row = connection.execute(SQL["get_live"], {"id": name}).fetchone()
    return None if row is None else LiveRow(*row)


def _found(
    connection: Connection,
    name: str,
    if_match: UUID | None,
    *,
    repeated_as: UUID | None = None,
) -> LiveRow:
    """The live action, as the caller expects it; his own change, if it was made, is no conflict."""
    live = _live(connection, name)
    if live is None:
        raise NotFound("action", name)
    if repeated_as is None or live.guid != repeated_as.bytes:
        _check_match(live, if_match)
    return live


def _check_match(live: LiveRow, if_match: UUID | None) -> None:
    if if_match is not None and live.guid != if_match.bytes:
        raise Conflict(live.id, expected=str(if_match), found=str(UUID(bytes=live.guid)))


def _supersede(connection: Connection, live: LiveRow, now_us: int) -> None:
    """Close what the old generation leaves behind: its row, its attempt in flight, its key."""
    _end_generation(connection, live)
    if live.keyed:
        ended = {"id": live.id, "now": now_us, "reason": REPLACED}
        connection.execute(SQL["change_archive"], ended)


def _end_generation(connection: Connection, live: LiveRow) -> None:
    connection.execute(SQL["change_log_attempt"], {"id": live.id})
    connection.execute(SQL["change_drop_row"], {"guid": live.guid})


def _changed(
    connection: Connection, verb: str, before: LiveRow, actor: str, now_us: int
) -> ChangeResult:
    """The answer to a change that was made, which the audit is told."""
    after = _live(connection, before.id)
    assert after is not None
    action = after.action()
    _audit(connection, verb, action, actor, now_us)
    return ChangeResult(action=action, in_flight=before.attempt())


def _audit(
    connection: Connection, verb: str, action: Action, actor: str, now_us: int, *, count: int = 1
) -> None:
    entry = {
        "at": now_us,
        "guid": action.meta.guid.bytes,
        "count": count,
        "verb": verb,
        "actor": actor,
        "id": action.meta.id,
    }
    connection.execute(SQL["write_audit_entry"], entry)


def _creator_of(actor: str) -> str | None:
    """Whom new actions count against; those without a token count against nobody."""
    return None if actor == LOCAL else actor


def _cancelled(live: LiveRow, now: datetime) -> Action:
    action = live.action()
    flight = int(live.attempt() is not None)  # it was made, though its end is not known
    status = msgspec.structs.replace(
        action.status,
        state=State.CANCELLED,
        scheduled_at=None,
        expires_at=None,
        attempts=live.succeeded + live.failed + live.interrupted + flight,
        interrupted=live.interrupted + flight,
        current_attempt=None,
        reason=DELETED,
        finished_at=now,
    )
    return msgspec.structs.replace(
        action, meta=msgspec.structs.replace(action.meta, updated_at=now), status=status
    )


def _logged_attempt(row: tuple[Any, ...]) -> Attempt:
    (
        attempt_id,
        number,
        occurrence_no,
        began_at,
        ended_at,
        outcome,
        error,
        answer,
        owner,
        written,
    ) = row
    found = read_attempt(written)
    if found is not None:
        return found
    return Attempt(
        attempt_id=UUID(bytes=attempt_id),
        attempt_no=number,
        occurrence_no=occurrence_no,
        began_at=moment(began_at),
        ended_at=moment_or_none(ended_at),
        outcome=outcome,
        error=error,
        answer=answer,
        owner=owner,
    )
