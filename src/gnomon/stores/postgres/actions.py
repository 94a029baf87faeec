"""Actions in PostgreSQL: create, change, remove, show."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
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
from gnomon.contracts.store.tokens import face_of
from gnomon.model.action import Action, Attempt, State
from gnomon.model.codec import read_attempt
from gnomon.model.ids import shard_of
from gnomon.model.pause import NO_TERMS, PauseTerms
from gnomon.stores._actions import creator_of, with_progress
from gnomon.stores.postgres.changes import ActionAddress, ActionChanger
from gnomon.stores.postgres.connection import Database, Row, Session, insisting
from gnomon.stores.postgres.create_calls import CreateCaller, CreateCalls
from gnomon.stores.postgres.creation import (
    answers,
    create_drafts,
    draft_columns,
    in_key_order,
    spare_columns,
)
from gnomon.stores.postgres.errors import PartMoved
from gnomon.stores.postgres.list_query import count_selected, list_page
from gnomon.stores.postgres.parts import Only
from gnomon.stores.postgres.rows import Decoder, logged_attempt, plain_success
from gnomon.stores.postgres.several import every

Fetch = Callable[..., Awaitable[Sequence[Row]]]

ESTIMATED_FROM = 100_000  # finished actions are counted one by one up to here


class PostgresActions:
    """The `ActionStore` of this engine."""

    def __init__(self, database: Database, decoder: Decoder) -> None:
        self._database = database
        self._decoder = decoder
        self._at_homes: dict[int, PostgresActions] = {}
        self._calls = CreateCalls(
            patient=partial(self._create_calls, database.fetch),
            hasty=partial(self._create_calls, database.fetch_hasty),
        )

    # -- create and change ------------------------------------------------------------------------

    async def create(
        self, drafts: Sequence[ActionDraft], *, actor: str = LOCAL, verb: str = "create"
    ) -> Sequence[ChangeResult | None]:
        if not drafts:
            return []
        if self._database.many_shards and not any(draft.keyed for draft in drafts):
            caller = CreateCaller(str(actor), verb, face_of(actor))
            if len(drafts) == 1:
                return [await self._calls.create(drafts[0], caller)]
            return await self._create_unkeyed(self._database.fetch, drafts, caller)
        groups = list(self._database.groups(draft.shard for draft in drafts))
        parts = await every(
            groups,
            lambda group: self._create_part(
                [drafts[place] for place in group.places], group.shards, actor, verb
            ),
        )
        results: list[ChangeResult | None] = [None] * len(drafts)
        for group, part in zip(groups, parts, strict=True):
            for place, result in zip(group.places, part, strict=True):
                results[place] = result
        return results

    async def _create_part(
        self, drafts: Sequence[ActionDraft], shards: Only, actor: str, verb: str
    ) -> Sequence[ChangeResult | None]:
        """Where the part lives, if that is reached; if not, or it has moved, through Citus."""
        there = self._at_home(drafts[0].shard)
        if there is not None:
            with suppress(PartMoved):
                return await there.create(drafts, actor=actor, verb=verb)
        if self._database.parts.has_functions and len(drafts) == 1 and not drafts[0].keyed:
            return await self._create_there(drafts[0], actor, verb)
        return await self._create(drafts, shards, actor, verb)

    def _at_home(self, shard: int) -> PostgresActions | None:
        """Those of a shard's part, where it lives."""
        database = self._database.at_home(shard)
        if database is None:
            return None
        part = self._database.parts.of(shard)
        known = self._at_homes.get(part)
        if known is None or known._database is not database:  # noqa: SLF001 - it is one of us
            known = self._at_homes[part] = PostgresActions(database, self._decoder)
        return known

    async def _create_calls(
        self, fetch: Fetch, drafts: Sequence[ActionDraft], caller: CreateCaller
    ) -> list[ChangeResult | None]:
        """Each of a call of its own."""
        return await self._create_unkeyed(fetch, drafts, caller, is_one_call=False)

    async def _create_unkeyed(
        self,
        fetch: Fetch,
        drafts: Sequence[ActionDraft],
        caller: CreateCaller,
        *,
        is_one_call: bool = True,
    ) -> list[ChangeResult | None]:
        columns = spare_columns(in_key_order(drafts))
        (row,) = await fetch(
            "create", *columns, creator_of(caller.actor), caller.actor, caller.verb, is_one_call,
            caller.face,
        )  # fmt: skip
        guids = row["guids"]
        stored = (draft.guid for draft in drafts) if guids is None else guids
        return answers(drafts, dict.fromkeys(stored, row["created_at"]))

    async def _create_there(
        self, draft: ActionDraft, actor: str, verb: str
    ) -> list[ChangeResult | None]:
        """By the node that has the shard, in one call."""
        row = (column[0] for column in draft_columns([draft]))
        by = (creator_of(actor), str(actor), verb, face_of(actor))
        ((created_at,),) = await self._database.fetch("create_one", *row, *by)
        return answers([draft], {} if created_at is None else {draft.guid: created_at})

    @insisting
    async def _create(
        self, drafts: Sequence[ActionDraft], shards: Only, actor: str, verb: str
    ) -> list[ChangeResult | None]:
        async with self._database.transaction("create") as session:
            return await create_drafts(
                session, self._decoder, drafts, shards, actor=actor, verb=verb
            )

    @insisting
    async def replace(
        self, draft: ActionDraft, *, if_match: UUID | None, actor: str = LOCAL
    ) -> ChangeResult:
        place = ActionAddress(draft.shard, draft.id, self._database.only(draft.shard))
        async with self._database.transaction("replace") as session:
            return await self._changer(session, actor).replace(draft, place, if_match)

    @insisting
    async def delete(
        self, id: str, *, if_match: UUID | None, running: bool = False, actor: str = LOCAL
    ) -> ChangeResult:
        place = await self._place(id)
        async with self._database.transaction("delete") as session:
            return await self._changer(session, actor).delete(place, if_match, running=running)

    @insisting
    async def pause(
        self,
        id: str,
        guid: UUID,
        *,
        if_match: UUID | None,
        terms: PauseTerms = NO_TERMS,
        actor: str = LOCAL,
    ) -> ChangeResult:
        place = await self._place(id)
        async with self._database.transaction("pause") as session:
            return await self._changer(session, actor).pause(place, guid, if_match, terms=terms)

    @insisting
    async def resume(
        self,
        id: str,
        guid: UUID,
        *,
        decide: DecideResume,
        if_match: UUID | None,
        actor: str = LOCAL,
    ) -> ChangeResult:
        place = await self._place(id)
        async with self._database.transaction("resume") as session:
            return await self._changer(session, actor).resume(place, guid, decide, if_match)

    @insisting
    async def run_now(
        self, id: str, guid: UUID, *, if_match: UUID | None, actor: str = LOCAL
    ) -> ChangeResult:
        place = await self._place(id)
        async with self._database.transaction("run_now") as session:
            return await self._changer(session, actor).run_now(place, guid, if_match)

    def _changer(self, session: Session, actor: str) -> ActionChanger:
        return ActionChanger(session, self._decoder, actor)

    async def _place(self, name: str) -> ActionAddress:
        shard = shard_of(name, await self._database.shard_count())
        return ActionAddress(shard, name, self._database.only(shard))

    # -- show -------------------------------------------------------------------------------------

    async def get(self, id: str) -> Action | None:
        actions = await self.get_many([id])
        return actions[0]

    async def get_many(self, ids: Sequence[str]) -> Sequence[Action | None]:
        """Live ones first: what ends in between is then among the finished ones."""
        names = list(dict.fromkeys(ids))
        actions = await self._get("get_live", names)
        running = [
            name for name, action in actions.items() if action.status.current_attempt is not None
        ]
        if running:
            actions |= await self._told(running, actions)
        missing = [name for name in names if name not in actions]
        if missing:
            actions |= await self._get("get_finished", missing)
        return [actions.get(name) for name in ids]

    async def _get(self, query: str, names: Sequence[str]) -> dict[str, Action]:
        actions: dict[str, Action] = {}
        for row in await self._rows(query, names):
            if row["id"] not in actions:  # the latest comes first
                actions[row["id"]] = self._decoder.action_of(row)
        return actions

    async def _told(self, names: Sequence[str], actions: Mapping[str, Action]) -> dict[str, Action]:
        """Those whose attempt under way has reported how far it is, with that."""
        told = {}
        for row in await self._rows("get_progress", names):
            action = actions[row["id"]]
            attempt = action.status.current_attempt
            if attempt is not None and attempt.attempt_id == row["attempt_id"]:
                told[row["id"]] = with_progress(action, row["at"], row["fraction"], row["said"])
        return told

    async def _rows(self, query: str, names: Sequence[str]) -> list[Row]:
        count = await self._database.shard_count()
        shards = [shard_of(name, count) for name in names]
        rows: list[Row] = []
        for group in self._database.groups(shards):
            rows += await self._database.fetch(
                query,
                [shards[place] for place in group.places],
                [names[place] for place in group.places],
                *group.shards,
            )
        return rows

    async def list(self, selection: Selection, *, after: str | None, limit: int) -> ActionPage:
        return await list_page(self._database, self._decoder, selection, after=after, limit=limit)

    async def count_selected(
        self, selection: Selection, *, after: str | None = None, limit: int
    ) -> SelectedCount:
        return await count_selected(self._database, selection, after=after, limit=limit)

    async def list_attempts(self, id: str, *, limit: int) -> Sequence[Attempt]:
        place = await self._place(id)
        logged = await self._database.fetch("list_attempts", place.shard, id, limit)
        plain = await self._database.fetch("list_attempts_finished", place.shard, id, limit)
        attempts = [logged_attempt(row) for row in logged]
        attempts += [read_attempt(row["last_attempt"]) or plain_success(row) for row in plain]
        attempts.sort(key=_newest_first, reverse=True)
        return attempts[:limit]

    async def count(self) -> Mapping[State, int]:
        counts = dict.fromkeys(State, 0)
        for query in ("count_live", "count_unsuccessful"):
            for row in await self._database.fetch_wide(query):
                counts[State(row["state"])] = row["count"]
        trouble = counts[State.DEAD] + counts[State.CANCELLED] + counts[State.EXPIRED]
        rows = await self._database.fetch_wide("count_estimate", self._database.schema)
        estimated: int = rows[0]["count"]
        if estimated < ESTIMATED_FROM:
            rows = await self._database.fetch_wide("count_done")
            counts[State.DONE] = rows[0]["count"]
        else:
            counts[State.DONE] = max(0, estimated - trouble)
        return counts


def _newest_first(attempt: Attempt) -> tuple[datetime, int]:
    return attempt.began_at, attempt.attempt_no
