"""Storing drafts: the rows of new actions, and what to answer to repeats."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from gnomon.contracts.store import ActionDraft, ChangeResult
from gnomon.contracts.store.tokens import face_of
from gnomon.model.action import Action
from gnomon.model.codec import encode_spec
from gnomon.stores._actions import creator_of, drafted_action
from gnomon.stores.postgres.connection import Row, Session
from gnomon.stores.postgres.parts import Only
from gnomon.stores.postgres.rows import Decoder

MICROSECOND = timedelta(microseconds=1)


def in_key_order(drafts: Sequence[ActionDraft]) -> list[ActionDraft]:
    """In the order of the primary key: kinder to its index, and two callers who store the same ids
    wait for each other instead of meeting in a deadlock. Of equals the first stays first."""
    return sorted(drafts, key=lambda draft: (draft.shard, draft.id))


def draft_columns(drafts: Sequence[ActionDraft]) -> tuple[list[object], ...]:
    """The arrays of `create_rows`. Drafts in bulk often share one spec."""
    texts: dict[int, str] = {}
    for draft in drafts:
        if id(draft.spec) not in texts:
            texts[id(draft.spec)] = encode_spec(draft.spec)
    specs = [draft.spec for draft in drafts]
    return (
        [draft.shard for draft in drafts],
        [draft.id for draft in drafts],
        [draft.guid for draft in drafts],
        [texts[id(spec)] for spec in specs],
        [spec.queue for spec in specs],
        [spec.priority for spec in specs],
        [spec.timeout // MICROSECOND for spec in specs],
        [draft.retention // MICROSECOND for draft in drafts],
        [draft.scheduled_at for draft in drafts],
        [draft.occurrence_at for draft in drafts],
        [draft.expires_at for draft in drafts],
    )


def spare_columns(drafts: Sequence[ActionDraft]) -> tuple[list[object], ...]:
    """The arrays of `create`: the same, but each place of an array is dear to send, a time most of
    all. So what is the same for all drafts is told once, the time of an occurrence only where
    it is not the due time, and what nobody has not at all."""
    shards, ids, guids, *shared, due, occurrences, expiries = draft_columns(drafts)
    others = [None if at == due_at else at for at, due_at in zip(occurrences, due, strict=True)]
    return (
        *(shards, ids, guids),
        *(_told_once(column) for column in (*shared, due)),
        *(_unless_nothing(column) for column in (others, expiries)),
    )


def _told_once(column: list[object]) -> list[object]:
    return column[:1] if column.count(column[0]) == len(column) else column


def _unless_nothing(column: list[object]) -> list[object]:
    return column if column.count(None) < len(column) else []


def answers(
    drafts: Sequence[ActionDraft], stored: dict[UUID, datetime]
) -> list[ChangeResult | None]:
    """One answer per draft; each stored row answers once, to the first who asked for it."""
    left = dict(stored)
    created = [left.pop(draft.guid, None) for draft in drafts]
    return [
        None if at is None else ChangeResult(action=drafted_action(draft, created_at=at))
        for draft, at in zip(drafts, created, strict=True)
    ]


def created_by_guid(rows: Sequence[Row]) -> dict[UUID, datetime]:
    return {row["guid"]: row["created_at"] for row in rows}


async def create_drafts(
    session: Session,
    decoder: Decoder,
    drafts: Sequence[ActionDraft],
    shards: Only,
    *,
    actor: str,
    verb: str,
) -> list[ChangeResult | None]:
    """Store drafts with or without keys, inside a transaction.

    Whether a keyed guid is finished is asked after the insert: a finish that the insert had to wait
    for is visible only then, and would otherwise be executed a second time.
    """
    keyed = [draft.keyed for draft in drafts]
    stored = created_by_guid(await _store_rows(session, drafts, creator_of(actor), shards))
    repeats: dict[UUID, Action] = {}
    if any(keyed):
        asked = [draft for draft in drafts if draft.keyed]
        repeats = await _finished_repeats(session, decoder, asked, shards)
        withdrawn = [draft for draft in asked if draft.guid in stored and draft.guid in repeats]
        if withdrawn:
            await session.fetch("create_withdraw", _guids(withdrawn), *shards)
        for draft in withdrawn:
            del stored[draft.guid]
    kept = [draft for draft in drafts if draft.guid in stored]
    await _announce(session, kept, stored, shards)
    if kept:
        first = kept[0]
        await session.fetch(
            "write_audit_entry",
            stored[first.guid],
            first.guid,
            first.shard,
            len(stored),
            verb,
            str(actor),
            first.id,
            face_of(actor),
        )
    created = answers(drafts, stored)
    missed = [
        draft
        for draft, answer in zip(drafts, created, strict=True)
        if answer is None and draft.keyed
    ]
    repeats |= await live_repeats(session, decoder, missed, shards, repeats)
    ended = [draft for draft in missed if draft.guid not in repeats]
    if ended:  # alive when their end was asked for, ended when their life was; never the other way
        repeats |= await _finished_repeats(session, decoder, ended, shards)
    return [
        ChangeResult(action=repeats[draft.guid], repeated=True)
        if answer is None and draft.keyed and draft.guid in repeats
        else answer
        for draft, answer in zip(drafts, created, strict=True)
    ]


async def _store_rows(
    session: Session, drafts: Sequence[ActionDraft], creator: str | None, shards: Only
) -> Sequence[Row]:
    """The action rows of those that were not there."""
    ordered = in_key_order(drafts)
    keyed: list[object] = [draft.keyed for draft in ordered]
    columns = [*draft_columns(ordered), keyed]
    if shards and len(drafts) == 1:
        return await session.fetch("create_row", *(column[0] for column in columns), creator)
    return await session.fetch("create_rows", *columns, creator, *shards)


async def find_repeat(
    session: Session, decoder: Decoder, draft: ActionDraft, shards: Only
) -> ChangeResult | None:
    """The answer to a keyed change that was made before, else None."""
    repeats = await _finished_repeats(session, decoder, [draft], shards)
    repeats |= await live_repeats(session, decoder, [draft], shards, repeats)
    action = repeats.get(draft.guid)
    return None if action is None else ChangeResult(action=action, repeated=True)


async def _finished_repeats(
    session: Session, decoder: Decoder, drafts: Sequence[ActionDraft], shards: Only
) -> dict[UUID, Action]:
    touched = await session.fetch("repeat_finished", _guids(drafts), *shards)
    if not touched:
        return {}
    rows = await session.fetch("repeat_generations", _guids(drafts), *shards)
    return {row["guid"]: decoder.action_of(row) for row in rows}


async def live_repeats(
    session: Session,
    decoder: Decoder,
    drafts: Sequence[ActionDraft],
    shards: Only,
    finished: dict[UUID, Action],
) -> dict[UUID, Action]:
    """Repeats whose id is alive: shown as it is now, even if a later change replaced the guid."""
    if not drafts:
        return {}
    touched = await session.fetch("repeat_live", _guids(drafts), *shards)
    known = {row["guid"] for row in touched} | finished.keys()
    asked = [draft for draft in drafts if draft.guid in known]
    if not asked:
        return {}
    names = ([draft.shard for draft in asked], [draft.id for draft in asked])
    rows = await session.fetch("get_live", *names, *shards)
    live = {row["id"]: decoder.action_of(row) for row in rows}
    return {draft.guid: live[draft.id] for draft in asked if draft.id in live}


async def _announce(
    session: Session,
    drafts: Sequence[ActionDraft],
    stored: dict[UUID, datetime],
    shards: Only,
) -> None:
    unique = {draft.guid: draft for draft in reversed(drafts)}
    if not unique:
        return
    columns: tuple[list[object], ...] = (
        [draft.shard for draft in unique.values()],
        list(unique),
        [draft.spec.queue for draft in unique.values()],
        [draft.spec.priority for draft in unique.values()],
        [draft.scheduled_at for draft in unique.values()],
    )
    created_at = stored[next(iter(unique))]
    if shards and len(unique) == 1:
        row = (column[0] for column in columns)
        await session.fetch("append_incoming_row", *row, created_at)
    else:
        await session.fetch("append_incoming", *columns, created_at, *shards)


def _guids(drafts: Sequence[ActionDraft]) -> list[UUID]:
    return [draft.guid for draft in drafts]
