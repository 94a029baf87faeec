"""Programs and what they declare, in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

import msgspec

from gnomon.contracts.store import LOCAL, ActionDeclaration, DecideRevision
from gnomon.contracts.store.programs import SETS_MAX
from gnomon.model.declaration import (
    DeclarationSet,
    DeclaredAction,
    DeclareResult,
    Removal,
    decide_declare,
    decide_removal,
    is_paused_by_removal,
    next_set,
    removal_reason,
)
from gnomon.model.function import FunctionSet, read_functions
from gnomon.model.ids import shard_of
from gnomon.model.pause import PauseTerms
from gnomon.stores._declarations import (
    NOTHING_SEEN,
    WRITTEN,
    known_of,
    known_text,
    note_of,
)
from gnomon.stores.postgres.changes import ActionAddress, ActionChanger
from gnomon.stores.postgres.connection import Database, Row, Session, insisting, read_now
from gnomon.stores.postgres.creation import create_drafts
from gnomon.stores.postgres.parts import Only
from gnomon.stores.postgres.rows import Decoder


class PostgresPrograms:
    """The `ProgramStore` of this engine. A note is locked before the action that it is about."""

    def __init__(self, database: Database, decoder: Decoder) -> None:
        self._database = database
        self._decoder = decoder

    @insisting
    async def declare_set(
        self, program: str, fingerprint: str, *, alive_for: timedelta
    ) -> DeclarationSet | None:
        async with self._database.transaction("declare_set") as session:
            known = await session.fetch("declare_set_known", program)
            if not fingerprint and not known:
                return None
            (row,) = await session.fetch("declare_set", program)
            before = _set_of(row) if row["set_no"] else None
            after = next_set(before, fingerprint, now=await read_now(session), alive_for=alive_for)
            if after is not None and after is not before:
                await session.fetch(
                    "declare_set_put",
                    program,
                    after.set_no,
                    after.fingerprint,
                    known_text(after),
                    after.seen_at,
                )
        return after

    async def list_declared(self, program: str) -> Sequence[DeclaredAction]:
        notes: list[DeclaredAction] = []
        for only in await self._parts():
            notes += map(_note, await self._database.fetch("list_declared", program, *only))
        return sorted(notes, key=lambda note: note.id)

    @insisting
    async def serve_functions(
        self, program: str, fingerprint: str, functions: str, *, kept_for: timedelta
    ) -> None:
        async with self._database.transaction("serve_functions") as session:
            await session.fetch("serve_functions", program, fingerprint, functions)
            await session.fetch("serve_functions_forget", kept_for)

    async def list_functions(self, *, alive_for: timedelta) -> Sequence[FunctionSet]:
        return [
            FunctionSet(row["program"], read_functions(row["functions"]), row["began_at"])
            for row in await self._database.fetch("list_functions", alive_for, SETS_MAX)
        ]

    @insisting
    async def declare_action(
        self, declaration: ActionDeclaration, *, decide: DecideRevision, alive_for: timedelta
    ) -> DeclareResult:
        draft = declaration.draft
        place = ActionAddress(draft.shard, draft.id, self._database.only(draft.shard))
        async with self._database.transaction("declare_action") as session:
            changer = ActionChanger(session, self._decoder, LOCAL)
            note = await _locked_note(session, place, declaration.program)
            live = await changer.locked(place)
            result = decide_declare(
                declaration.program,
                declaration.set_no,
                declaration.fingerprint,
                note=note,
                live=None if live is None else live.action,
                others_alive=await _is_alive(session, note, alive_for),
            )
            match result:
                case DeclareResult.CREATED:
                    (made,) = await create_drafts(
                        session, self._decoder, [draft], place.shards, actor=LOCAL, verb="declare"
                    )
                    if made is None:  # somebody was quicker, with another action of this id
                        result = DeclareResult.TAKEN
                case DeclareResult.CHANGED:
                    assert live is not None
                    assert note is not None
                    resumes = is_paused_by_removal(note, live.action)
                    revision = decide(live.action, live.now, resumes)
                    await changer.revise(place, live, draft, revision)
            if result in WRITTEN:
                await _put_note(session, place, note_of(declaration))
            elif note is None:
                await session.fetch("note_drop", place.shard, place.id)
        return result

    @insisting
    async def remove_declared(
        self, id: str, guid: UUID, *, program: str, set_no: int, removal: Removal
    ) -> DeclareResult:
        shard = shard_of(id, await self._database.shard_count())
        place = ActionAddress(shard, id, self._database.only(shard))
        async with self._database.transaction("remove_declared") as session:
            changer = ActionChanger(session, self._decoder, LOCAL)
            note = await _locked_note(session, place, program)
            live = await changer.locked(place)
            shown = None if live is None else live.action
            result = decide_removal(program, set_no, removal, note=note, live=shown)
            if note is None:
                await session.fetch("note_drop", place.shard, place.id)
            if note is None or result in (DeclareResult.LATE, DeclareResult.RUNNING):
                return result
            paused_as = note.paused_as
            if result is DeclareResult.CHANGED and removal == "pause":
                terms = PauseTerms(reason=removal_reason(program))
                await changer.pause(place, guid, None, terms=terms, verb="remove_declared")
                paused_as = guid
            elif result is DeclareResult.CHANGED:
                await changer.delete(place, None, running=False, verb="remove_declared")
            if removal == "delete":
                await session.fetch("note_drop", place.shard, place.id)
            else:
                noted = msgspec.structs.replace(
                    note, set_no=set_no, is_removed=True, paused_as=paused_as
                )
                await _put_note(session, place, noted)
        return result

    async def _parts(self) -> Sequence[Only]:
        """The last arguments of what has to be sent: once for all shards, or once for each part."""
        count = 1 if self._database.many_shards else await self._database.shard_count()
        return [group.shards for group in self._database.groups(range(count))]


async def _locked_note(
    session: Session, place: ActionAddress, program: str
) -> DeclaredAction | None:
    """What is known of an action; nobody else can change it until the end."""
    (row,) = await session.fetch("note_lock", place.shard, place.id, program)
    return None if row["fingerprint"] == NOTHING_SEEN else _note(row)


async def _put_note(session: Session, place: ActionAddress, note: DeclaredAction) -> None:
    await session.fetch(
        "note_put",
        place.shard,
        place.id,
        note.program,
        note.set_no,
        note.fingerprint,
        note.is_removed,
        note.paused_as,
    )


async def _is_alive(session: Session, note: DeclaredAction | None, alive_for: timedelta) -> bool:
    """Whether the program that a note names has living workers."""
    if note is None:
        return False
    rows = await session.fetch("declare_set_known", note.program)
    return bool(rows) and _set_of(rows[0]).is_alive(await read_now(session), alive_for)


def _note(row: Row) -> DeclaredAction:
    return DeclaredAction(
        id=row["id"],
        program=row["program"],
        set_no=row["set_no"],
        fingerprint=row["fingerprint"],
        is_removed=row["is_removed"],
        paused_as=row["paused_as"],
    )


def _set_of(row: Row) -> DeclarationSet:
    return DeclarationSet(
        set_no=row["set_no"],
        fingerprint=row["fingerprint"],
        seen_at=row["seen_at"],
        known=known_of(row["known"]),
    )
