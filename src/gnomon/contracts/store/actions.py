"""Actions, as gateways see them: create, change, remove, show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

import msgspec

from gnomon.contracts.store.tokens import LOCAL
from gnomon.contracts.store.value import Value
from gnomon.model.action import Action, Attempt, State
from gnomon.model.pause import NO_TERMS, PauseTerms, ResumeTimes
from gnomon.model.spec import Spec


class ActionDraft(Value, frozen=True):
    """An admitted action, ready to be stored: everything is decided but its time of storing."""

    id: str
    guid: UUID
    shard: int
    spec: Spec
    scheduled_at: datetime  # when the first attempt is due
    occurrence_at: datetime
    expires_at: datetime | None
    retention: timedelta
    keyed: bool = False  # the guid is derived from an idempotency key


class ChangeResult(Value, frozen=True):
    """The answer to a change: the action as it is now, and the attempt that was in flight."""

    action: Action
    in_flight: Attempt | None = None  # of the generation before; it may still arrive
    repeated: bool = False  # the same idempotency key had been applied before: nothing was changed
    asked: bool = False  # the attempt in flight was asked to end, see `delete`


class ActionPage(Value, frozen=True):
    """Part of a listing; `next` continues it, None at the end. Only that says that there are no
    more: a page may be short, or empty."""

    actions: list[Action]
    next: str | None = None
    looked_at: int | None = None  # of a page that ended before it was full: rows of each half


class SelectedCount(Value, frozen=True):
    """How many actions were found; `next` goes on where counting ended, None at the end."""

    count: int
    next: str | None = None


class Selection(Value, frozen=True):
    """Which actions to list. All given conditions must hold."""

    states: tuple[State, ...] = ()  # empty: all
    queue: str | None = None
    id_prefix: str | None = None
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    due_before: datetime | None = None
    function: str | None = None  # that they call
    error_contains: str | None = None  # the error of the last attempt that ended, as it is written
    # Path to value, see `gnomon.model.arguments`: {"customer.id": "7"}
    arguments: Mapping[str, str] = msgspec.field(default_factory=dict)
    # Where functions take the first part of a path by place, if that is known: {"name": {"f": 0}}
    places: Mapping[str, Mapping[str, int]] = msgspec.field(default_factory=dict)
    search: str | None = None  # in the id, the queue or the function, whatever the case
    recurring: bool = False  # only those that come again
    paused_for: str | None = None  # only those that are paused for this reason


DecideResume = Callable[[Action, datetime], ResumeTimes]  # of a paused action and the present; pure


class ActionWrites(Protocol):
    """Creates, replaces and deletes actions.

    These verbs also work inside a transaction of the caller's own: see `Store.joining`. Each writes
    an entry of the audit in the same transaction: `actor` did it. A repeat, and what leaves
    everything as it is, writes none.
    """

    async def create(
        self, drafts: Sequence[ActionDraft], *, actor: str = LOCAL, verb: str = "create"
    ) -> Sequence[ChangeResult | None]:
        """Store new actions and append each to the incoming queue, all or none.

        The answer has one element per draft, in order: None where an action with that id is
        active or paused already under another guid (nothing is changed for it, the others are
        stored). A draft with `keyed` whose guid is found, live or finished, is a repeat: nothing
        changes but a write of its own is made, and the stored action comes back with `repeated`.
        An id whose former action is finished may be used again. The audit gets one entry for all
        that were stored (one a shard, where a transaction may touch one shard only), under `verb`;
        unless it is local, the actor is kept with the actions, as the name they count against.
        """
        ...

    async def replace(
        self, draft: ActionDraft, *, if_match: UUID | None, actor: str = LOCAL
    ) -> ChangeResult:
        """Give an active or paused action a new generation: new guid, spec and zeroed counters.

        Locks the action row, so it is ordered against begin and finish: once it returns, no
        attempt of the old generation begins. An action that does not exist, or is finished, is
        created instead (then `if_match` must be None). The attempt in flight, if any, is closed
        in the attempt log as `superseded`. Errors: Conflict when `if_match` is not its guid;
        NotFound when `if_match` is given and there is none. A keyed repeat changes nothing.
        """
        ...

    async def delete(
        self, id: str, *, if_match: UUID | None, running: bool = False, actor: str = LOCAL
    ) -> ChangeResult:
        """Finish an active or paused action as `cancelled`; it stays visible for its retention.

        Ordered against begin like replace. With `running` the attempt in flight, if any, is asked
        to end: it is closed in the attempt log as `cancelling`, for its worker to find
        (`WorkStore.list_cancelling`), and the answer says `asked`. Errors: NotFound when no active
        or paused action has the id; Conflict.
        """
        ...

    async def get(self, id: str) -> Action | None:
        """The active or paused action with this id, else the latest finished one; inside a
        caller's transaction as that sees it."""
        ...


class ActionStore(ActionWrites, Protocol):
    """All verbs on actions; those that change something are audited, as the first three are."""

    async def pause(
        self,
        id: str,
        guid: UUID,
        *,
        if_match: UUID | None,
        terms: PauseTerms = NO_TERMS,
        actor: str = LOCAL,
    ) -> ChangeResult:
        """Make an action paused under the new `guid`: nothing begins until it is resumed, or until
        the end that the terms name, by the database's clock: see `WorkStore.end_pauses`.

        Counters and the current occurrence are kept. A paused one gets these terms in place of its
        own; one that has them already is returned unchanged. Errors: NotFound, Conflict, and
        InvalidSpec when the end is not to come.
        """
        ...

    async def resume(
        self,
        id: str,
        guid: UUID,
        *,
        decide: DecideResume,
        if_match: UUID | None,
        actor: str = LOCAL,
    ) -> ChangeResult:
        """Make a paused action active under the new `guid` and append it to the incoming queue.

        `decide` says when it is due; it may be called again. An active one is returned unchanged.
        Errors: NotFound, Conflict.
        """
        ...

    async def run_now(
        self, id: str, guid: UUID, *, if_match: UUID | None, actor: str = LOCAL
    ) -> ChangeResult:
        """Make an active action due at once, as an occurrence of its own, under the new `guid`.

        Counters are kept; occurrence_no grows by one unless nothing was attempted yet. Errors:
        NotFound, Conflict, FailedPrecondition when it is paused or an attempt is in flight.
        """
        ...

    async def get_many(self, ids: Sequence[str]) -> Sequence[Action | None]:
        """Like `get`, for several ids in order."""
        ...

    async def list(self, selection: Selection, *, after: str | None, limit: int) -> ActionPage:
        """A page of actions ordered by id, live and finished; keyset, no promise between pages.

        `after` is a former page's `next`. Of several finished generations of one id only the
        latest is shown, and none if the id is live. Where no index answers what is asked for, a
        bounded number of rows is looked at: then a page may have few actions or none, and a `next`
        that goes on behind them. Errors: InvalidRequest for a bad `after`, InvalidSpec for a bad
        argument.
        """
        ...

    async def count_selected(
        self, selection: Selection, *, after: str | None = None, limit: int
    ) -> SelectedCount:
        """How many actions `list` would show on all pages together, or behind `after`; counted up
        to `limit` only. A bounded number of rows is looked at, and `next` goes on behind them.
        Errors: InvalidRequest for a bad `after`."""
        ...

    async def list_attempts(self, id: str, *, limit: int) -> Sequence[Attempt]:
        """The recorded attempts of an id, newest first. The first-time success of a one-shot is
        shown from its own row; every other attempt has a row in the attempt log."""
        ...

    async def count(self) -> Mapping[State, int]:
        """How many actions there are in each state (an estimate is allowed for finished ones)."""
        ...
