"""Programs and what they declare, in SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from gnomon.contracts.store import LOCAL, ActionDeclaration, ActionDraft, DecideRevision
from gnomon.contracts.store.programs import SETS_MAX
from gnomon.model.declaration import (
    DeclarationSet,
    DeclaredAction,
    DeclareResult,
    Removal,
    Revision,
    decide_declare,
    decide_removal,
    is_paused_by_removal,
    next_set,
    removal_reason,
)
from gnomon.model.function import FunctionSet, read_functions
from gnomon.stores._actions import DELETED, deleted_action
from gnomon.stores._declarations import WRITTEN, known_of, known_text, note_of, revised_draft
from gnomon.stores.sqlite.actions import (
    _audit,
    _changed,
    _create_one,
    _end_generation,
    _live,
    _supersede,
)
from gnomon.stores.sqlite.queries import SQL, fetch, fetch_one
from gnomon.stores.sqlite.rows import (
    Row,
    draft_row,
    guid_or_none,
    live_action,
    micros,
    moment,
)
from gnomon.stores.sqlite.verbs import Connection, SqliteVerbs, read, write


class SqlitePrograms(SqliteVerbs):
    """The `ProgramStore` of this engine."""

    @write
    def declare_set(
        self, connection: Connection, program: str, fingerprint: str, *, alive_for: timedelta
    ) -> DeclarationSet | None:
        row = fetch_one(connection, "declare_set", {"program": program})
        before = None if row is None else _set_of(row)
        after = next_set(before, fingerprint, now=self._clock.now(), alive_for=alive_for)
        if after is not None and after is not before:
            put = {
                "program": program,
                "set_no": after.set_no,
                "fingerprint": after.fingerprint,
                "known": known_text(after),
                "seen_at": micros(after.seen_at),
            }
            connection.execute(SQL["declare_set_put"], put)
        return after

    @read
    def list_declared(self, connection: Connection, program: str) -> Sequence[DeclaredAction]:
        return [_note(row) for row in fetch(connection, "list_declared", {"program": program})]

    @write
    def serve_functions(
        self,
        connection: Connection,
        program: str,
        fingerprint: str,
        functions: str,
        *,
        kept_for: timedelta,
    ) -> None:
        said = {"program": program, "fingerprint": fingerprint, "functions": functions}
        now = self._clock.now()
        connection.execute(SQL["serve_functions"], said | {"now": micros(now)})
        connection.execute(SQL["serve_functions_forget"], {"silent_since": micros(now - kept_for)})

    @read
    def list_functions(
        self, connection: Connection, *, alive_for: timedelta
    ) -> Sequence[FunctionSet]:
        wanted = {"silent_since": micros(self._clock.now() - alive_for), "limit": SETS_MAX}
        return [
            FunctionSet(row["program"], read_functions(row["functions"]), moment(row["began_at"]))
            for row in fetch(connection, "list_functions", wanted)
        ]

    @write
    def declare_action(
        self,
        connection: Connection,
        declaration: ActionDeclaration,
        *,
        decide: DecideRevision,
        alive_for: timedelta,
    ) -> DeclareResult:
        draft, now = declaration.draft, self._clock.now()
        known = fetch_one(connection, "note_get", {"id": draft.id})
        note = None if known is None else _note(known)
        live = _live(connection, draft.id)
        result = decide_declare(
            declaration.program,
            declaration.set_no,
            declaration.fingerprint,
            note=note,
            live=None if live is None else live_action(live),
            others_alive=known is not None and _is_alive(known, now, alive_for),
        )
        match result:
            case DeclareResult.CREATED:
                _create(connection, declaration, now)
            case DeclareResult.CHANGED:
                assert live is not None
                assert note is not None
                action = live_action(live)
                revision = decide(action, now, is_paused_by_removal(note, action))
                _revise(connection, draft, live, revision, now)
        if result in WRITTEN:
            _put_note(connection, note_of(declaration))
        return result

    @write
    def remove_declared(
        self,
        connection: Connection,
        id: str,
        guid: UUID,
        *,
        program: str,
        set_no: int,
        removal: Removal,
    ) -> DeclareResult:
        known = fetch_one(connection, "note_get", {"id": id})
        note = None if known is None else _note(known)
        live = _live(connection, id)
        shown = None if live is None else live_action(live)
        result = decide_removal(program, set_no, removal, note=note, live=shown)
        if result in (DeclareResult.LATE, DeclareResult.RUNNING):
            return result
        assert note is not None
        paused_as = note.paused_as
        if result is DeclareResult.CHANGED and removal == "pause":
            assert live is not None
            self._pause(connection, live, guid, program)
            paused_as = guid
        elif result is DeclareResult.CHANGED:
            assert live is not None
            self._delete(connection, live)
        if removal == "delete":
            connection.execute(SQL["note_drop"], {"id": id})
        else:
            noted = msgspec.structs.replace(
                note, set_no=set_no, is_removed=True, paused_as=paused_as
            )
            _put_note(connection, noted)
        return result

    def _pause(self, connection: Connection, live: Row, guid: UUID, program: str) -> None:
        change: dict[str, Any] = {
            "id": live["id"],
            "guid": guid.bytes,
            "now": self._now_us(),
            "reason": removal_reason(program),
            "paused_until": None,
        }
        _supersede(connection, live, change["now"])
        connection.execute(SQL["pause"], change)
        _changed(connection, "remove_declared", live, LOCAL, change["now"])

    def _delete(self, connection: Connection, live: Row) -> None:
        now = self._clock.now()
        _end_generation(connection, live)
        ended: dict[str, Any] = {"id": live["id"], "now": micros(now), "reason": DELETED}
        connection.execute(SQL["change_archive"], ended)
        connection.execute(SQL["delete"], {"id": live["id"]})
        action = deleted_action(live_action(live), now)
        _audit(connection, "remove_declared", action, LOCAL, ended["now"])


def _create(connection: Connection, declaration: ActionDeclaration, now: datetime) -> None:
    draft = declaration.draft
    row = draft_row(draft, micros(now)) | {"creator": None}
    created = _create_one(connection, draft, row, now)
    assert created is not None
    _audit(connection, "declare", created.action, LOCAL, micros(now))


def _revise(
    connection: Connection, draft: ActionDraft, live: Row, revision: Revision, now: datetime
) -> None:
    row = draft_row(revised_draft(draft, revision), micros(now))
    row |= {
        "state": str(revision.state),
        "occurrence_no": revision.occurrence_no,
        "occurrence_failures": revision.occurrence_failures,
    }
    is_due = revision.scheduled_at is not None
    _supersede(connection, live, row["now"])
    connection.execute(
        SQL["declare_action_revise"], row if is_due else row | {"scheduled_at": None}
    )
    if is_due:
        connection.execute(SQL["append_incoming"], row)
    _changed(connection, "declare", live, LOCAL, row["now"])


def _put_note(connection: Connection, note: DeclaredAction) -> None:
    row = {
        "id": note.id,
        "program": note.program,
        "set_no": note.set_no,
        "fingerprint": note.fingerprint,
        "is_removed": int(note.is_removed),
        "paused_as": None if note.paused_as is None else note.paused_as.bytes,
    }
    connection.execute(SQL["note_put"], row)


def _note(row: Row) -> DeclaredAction:
    return DeclaredAction(
        id=row["id"],
        program=row["program"],
        set_no=row["set_no"],
        fingerprint=row["fingerprint"],
        is_removed=bool(row["is_removed"]),
        paused_as=guid_or_none(row["paused_as"]),
    )


def _set_of(row: Row) -> DeclarationSet:
    return DeclarationSet(
        set_no=row["set_no"],
        fingerprint=row["fingerprint"],
        seen_at=moment(row["seen_at"]),
        known=known_of(row["known"]),
    )


def _is_alive(row: Row, now: datetime, alive_for: timedelta) -> bool:
    """Whether the program that a note names has living workers."""
    if row["seen_at"] is None:
        return False
    seen = DeclarationSet(
        set_no=0, fingerprint=row["set_fingerprint"], seen_at=moment(row["seen_at"])
    )
    return seen.is_alive(now, alive_for)
