"""The verbs that users call, in process or through a gateway. Each is one store transaction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import get_args
from uuid import UUID

import msgspec

from gnomon.contracts.clock import Clock, Entropy
from gnomon.contracts.store import (
    LOCAL,
    PYTHON,
    ActionDraft,
    ActionPage,
    ActionWrites,
    ChangeResult,
    Installation,
    SelectedCount,
    Selection,
    Store,
)
from gnomon.contracts.traces import Tracing
from gnomon.model.action import Action, Attempt, State
from gnomon.model.errors import (
    AlreadyExists,
    Conflict,
    FailedPrecondition,
    GnomonError,
    InvalidRequest,
    NotFound,
    StoreUnavailable,
    short,
)
from gnomon.model.ids import action_id
from gnomon.model.pause import Until, decide_resume, pause_terms
from gnomon.model.why import Why
from gnomon.scheduler.admission import (
    IfExists,
    Plans,
    Request,
    admit,
    in_trace,
    is_same,
    shards_to_wake,
)
from gnomon.scheduler.barrier import Barriers, pauses
from gnomon.scheduler.limit_verbs import LimitVerbs
from gnomon.scheduler.named_arguments import with_places
from gnomon.scheduler.options import Duration
from gnomon.scheduler.preview import COUNT_DEFAULT, Preview, previewed
from gnomon.scheduler.reports import Reports
from gnomon.scheduler.selected import (
    STEP_MAX,
    Change,
    StepResult,
    Verb,
    change_step,
    check_options,
    selection_for,
    verb_of,
)
from gnomon.scheduler.shortened import cut_attempt, shortened
from gnomon.scheduler.trusted_time import TrustedTime
from gnomon.scheduler.wait_reason import explain_wait

PUT_TRIES_MAX = 5  # an id that others create and end all the time: let the caller try again
BULK_MAX = 10_000
BULK_CHUNK = 2_000  # a transaction's size: larger adds latency for others and gains nothing
PAGE_MAX = 1_000
COUNT_MAX = 1_000_000  # of what matches: people need no more, and the database has other work
WATCH_POLL_MIN_S = 0.1
WATCH_POLL_MAX_S = 1.0
UNENDED = ("running", "superseded", "cancelling")  # outcomes of attempts that may still go on
BARRIER_GRACE = timedelta(seconds=15)  # lease and grace: after that the attempt cannot succeed


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """How long finished actions stay visible, unless their spec says otherwise."""

    retention: timedelta = timedelta(days=7)


class Scheduler(LimitVerbs):
    """Create, replace, delete, pause, resume, run now, retry, get, list, watch.

    `actor` is who asks, for the audit and as the owner of idempotency keys: a token's name.
    """

    def __init__(
        self,
        store: Store,
        installation: Installation,
        *,
        clock: Clock,
        entropy: Entropy,
        config: SchedulerConfig | None = None,
        tracing: Tracing | None = None,
        face: str = PYTHON,
    ) -> None:
        self._face = face
        self.tracing = tracing
        self.store = store
        self.installation = installation
        self._clock = clock
        self._entropy = entropy
        self._config = config or SchedulerConfig()
        self.time = TrustedTime(store.installation, clock)
        self._barriers = Barriers()
        self.reports = Reports(store, clock=clock)

    def __repr__(self) -> str:
        return f"Scheduler({self.store.capabilities.engine}, {self.installation.id})"

    # -- create ---------------------------------------------------------------------------------

    async def create(
        self, request: Request, *, within: ActionWrites | None = None, actor: str = LOCAL
    ) -> ChangeResult:
        """Store a new action. Errors: AlreadyExists, InvalidSpec and its kin."""
        return await self._create("create", request, within, actor)

    async def _create(
        self, verb: str, request: Request, within: ActionWrites | None, actor: str
    ) -> ChangeResult:
        with self._traced(verb, request.id) as traceparent:
            draft = await self._admit(in_trace(request, traceparent), actor)
            (stored,) = await (within or self.store.actions).create(
                [draft], actor=self._by(actor), verb=verb
            )
        if stored is None:
            raise AlreadyExists("action", draft.id)
        if within is None:
            self.store.wakeups.hint(shards_to_wake([draft], stored.action.meta.created_at))
        return stored

    async def put(
        self,
        request: Request,
        *,
        if_exists: IfExists,
        within: ActionWrites | None = None,
        actor: str = LOCAL,
    ) -> ChangeResult:
        """Create an action unless one with its id is active or paused: then that is an error, is
        kept as it is, or gets the new spec. Replacing by an equal spec changes nothing."""
        _check_if_exists(if_exists, request)
        writes = within or self.store.actions
        for _ in range(PUT_TRIES_MAX):
            try:
                return await self._create("create", request, within, actor)
            except AlreadyExists:
                if if_exists == "error":
                    raise
            kept = await writes.get(action_id(request.id or ""))
            if kept is None or kept.status.state.is_terminal:
                continue  # it has just ended
            if if_exists == "keep" or is_same(request, kept.spec):
                return ChangeResult(action=kept, repeated=True)
            with suppress(Conflict, NotFound):  # somebody else has changed or ended it meanwhile
                return await self._replace_kept(request, kept, within, actor)
        raise StoreUnavailable(f"the action {request.id} is being changed by others all the time")

    async def _replace_kept(
        self, request: Request, kept: Action, within: ActionWrites | None, actor: str
    ) -> ChangeResult:
        if within is None:
            return await self.replace(request, if_match=kept.meta.guid, actor=actor)
        draft = await self._admit(request, actor)
        return await within.replace(draft, if_match=kept.meta.guid, actor=self._by(actor))

    async def create_many(
        self, requests: Sequence[Request], *, actor: str = LOCAL
    ) -> Sequence[ChangeResult | GnomonError]:
        """Store up to 10,000 actions; one answer each, in order. A bad one spoils no other."""
        if len(requests) > BULK_MAX:
            raise InvalidRequest(f"{len(requests)} actions in one call; at most {BULK_MAX}")
        now = await self.time.now()
        # All at once: while the database stores one part, the next is admitted.
        parts = await asyncio.gather(
            *(
                self._create_chunk(requests[start : start + BULK_CHUNK], now, actor)
                for start in range(0, len(requests), BULK_CHUNK)
            )
        )
        return [answer for part in parts for answer in part]

    async def _create_chunk(
        self, requests: Sequence[Request], now: datetime, actor: str
    ) -> Sequence[ChangeResult | GnomonError]:
        with self._traced("create_many") as traceparent:
            requests = [in_trace(request, traceparent) for request in requests]
            return await self._create_traced(requests, now, actor)

    async def _create_traced(
        self, requests: Sequence[Request], now: datetime, actor: str
    ) -> Sequence[ChangeResult | GnomonError]:
        plans, guids = Plans(), self._entropy.guids(len(requests))
        admitted = [
            self._admitted(request, guid, now, actor, plans)
            for request, guid in zip(requests, guids, strict=True)
        ]
        seen = dict[str, ActionDraft]()
        for index, draft in enumerate(admitted):
            if isinstance(draft, ActionDraft):
                if draft.id in seen:
                    admitted[index] = AlreadyExists("action", draft.id)
                seen.setdefault(draft.id, draft)
        answers = await self.store.actions.create([*seen.values()], actor=self._by(actor))
        stored = dict(zip(seen, answers, strict=True))
        self.store.wakeups.hint(shards_to_wake(seen.values(), now))
        return [
            draft
            if isinstance(draft, GnomonError)
            else stored[draft.id] or AlreadyExists("action", draft.id)
            for draft in admitted
        ]

    def _admitted(
        self, request: Request, guid: UUID, now: datetime, actor: str, plans: Plans
    ) -> ActionDraft | GnomonError:
        try:
            return self._draft(request, guid, now, actor, plans)
        except GnomonError as exc:
            return exc

    # -- change ---------------------------------------------------------------------------------

    async def replace(
        self,
        request: Request,
        *,
        if_match: UUID | None = None,
        barrier: bool = False,
        actor: str = LOCAL,
    ) -> ChangeResult:
        """Give an action a new spec, or create it; counters begin at zero."""
        if request.id is None:
            raise InvalidRequest("id: is required to replace an action")
        with self._barriers.place(wanted=barrier):
            with self._traced("replace", request.id) as traceparent:
                draft = await self._admit(in_trace(request, traceparent), actor)
                changed = await self.store.actions.replace(
                    draft, if_match=if_match, actor=self._by(actor)
                )
            self.store.wakeups.hint({draft.shard})
            return await self._passed(changed, barrier=barrier)

    async def delete(
        self,
        id: str,
        *,
        if_match: UUID | None = None,
        running: bool = False,
        barrier: bool = False,
        within: ActionWrites | None = None,
        actor: str = LOCAL,
    ) -> ChangeResult:
        """Cancel an action: no attempt of it begins any more. With `running` the attempt under way
        is asked to end, too; without it goes on to its own end."""
        writes = within or self.store.actions
        with self._barriers.place(wanted=barrier):
            changed = await writes.delete(
                action_id(id), if_match=if_match, running=running, actor=self._by(actor)
            )
            return await self._passed(changed, barrier=barrier)

    async def pause(
        self,
        id: str,
        *,
        reason: str | None = None,
        until: Until | None = None,
        if_match: UUID | None = None,
        actor: str = LOCAL,
    ) -> ChangeResult:
        """Let no attempt begin until it is resumed, or until a time, or for a duration: then it
        goes on by itself. Pausing it again replaces the reason and the end."""
        terms, guid = pause_terms(reason, until), self._entropy.guid()
        return await self.store.actions.pause(
            action_id(id), guid, terms=terms, if_match=if_match, actor=self._by(actor)
        )

    async def resume(
        self, id: str, *, if_match: UUID | None = None, actor: str = LOCAL
    ) -> ChangeResult:
        """Let a paused action go on, by its catch-up rule if its time has passed."""
        changed = await self.store.actions.resume(
            action_id(id),
            self._entropy.guid(),
            decide=decide_resume,
            if_match=if_match,
            actor=self._by(actor),
        )
        self.store.wakeups.hint({changed.action.meta.shard})
        return changed

    async def run_now(
        self, id: str, *, if_match: UUID | None = None, actor: str = LOCAL
    ) -> ChangeResult:
        """Make an action due at once."""
        changed = await self.store.actions.run_now(
            action_id(id), self._entropy.guid(), if_match=if_match, actor=self._by(actor)
        )
        self.store.wakeups.hint({changed.action.meta.shard})
        return changed

    async def retry(self, id: str, *, actor: str = LOCAL) -> ChangeResult:
        """Arm a finished action that did not succeed once more, due now, as a new generation."""
        action = await self.get(id)
        if action.status.state not in (State.DEAD, State.EXPIRED, State.CANCELLED):
            raise FailedPrecondition(
                id, state=action.status.state, wanted="dead, expired or cancelled"
            )
        traceparent = None if self.tracing else action.spec.traceparent  # else: that of the retry
        spec = msgspec.structs.replace(action.spec, start_at=None, traceparent=traceparent)
        return await self._create("retry", Request(id=id, spec=spec), None, actor)

    # -- everything that matches ----------------------------------------------------------------

    async def change_selected(
        self,
        verb: str,
        selection: Selection,
        *,
        running: bool = False,
        reason: str | None = None,
        until: Until | None = None,
        after: str | None = None,
        limit: int = STEP_MAX,
        actor: str = LOCAL,
    ) -> StepResult:
        """Use a verb (delete, pause, resume, run_now, retry) on everything that matches, or a part:
        one step, which `next` of the answer continues. See `gnomon.scheduler.selected`."""
        check_options(verb, reason=reason, until=until)
        changes: Mapping[Verb, Change] = {
            Verb.DELETE: lambda it: self.delete(
                it.meta.id, if_match=it.meta.guid, running=running, actor=actor
            ),
            Verb.PAUSE: lambda it: self.pause(
                it.meta.id, reason=reason, until=until, if_match=it.meta.guid, actor=actor
            ),
            Verb.RESUME: lambda it: self.resume(it.meta.id, if_match=it.meta.guid, actor=actor),
            Verb.RUN_NOW: lambda it: self.run_now(it.meta.id, if_match=it.meta.guid, actor=actor),
            Verb.RETRY: lambda it: self.retry(it.meta.id, actor=actor),
        }
        return await self.step(verb, selection, changes, after=after, limit=limit)

    async def step(
        self,
        verb: str,
        selection: Selection,
        changes: Mapping[Verb, Change],
        *,
        after: str | None,
        limit: int,
    ) -> StepResult:
        """The same by somebody else's verbs: a gateway's, which look at their caller first."""
        if not 1 <= limit <= STEP_MAX:
            raise InvalidRequest(f"limit: must be between 1 and {STEP_MAX} (got {limit})")
        chosen = verb_of(verb)
        return await change_step(
            changes[chosen],
            selection_for(chosen, selection),
            list_page=self.list,
            clock=self._clock,
            after=after,
            limit=limit,
        )

    async def count(self, selection: Selection, *, limit: int = COUNT_MAX) -> int:
        """How many actions match; counted up to `limit` only."""
        step = await self.count_step(selection, limit=limit)
        count = step.count
        while step.next is not None and count < limit:
            step = await self.count_step(selection, after=step.next, limit=limit - count)
            count += step.count
        return count

    async def count_step(
        self, selection: Selection, *, after: str | None = None, limit: int = COUNT_MAX
    ) -> SelectedCount:
        """A part of a count, in bounded time: `next` goes on behind it."""
        if not 1 <= limit <= COUNT_MAX:
            raise InvalidRequest(f"limit: must be between 1 and {COUNT_MAX} (got {limit})")
        wanted = await with_places(selection, self.reports)
        return await self.store.actions.count_selected(wanted, after=after, limit=limit)

    # -- look -----------------------------------------------------------------------------------

    async def get(self, id: str) -> Action:
        """The action with this id, live or the latest finished one. Errors: NotFound."""
        action = await self.store.actions.get(action_id(id))
        if action is None:
            raise NotFound("action", id)
        return action

    async def list(
        self, selection: Selection, *, after: str | None = None, limit: int = 100
    ) -> ActionPage:
        """A page of actions in order of id."""
        if not 1 <= limit <= PAGE_MAX:
            raise InvalidRequest(f"limit: must be between 1 and {PAGE_MAX} (got {limit})")
        wanted = await with_places(selection, self.reports)
        page = await self.store.actions.list(wanted, after=after, limit=limit)
        return msgspec.structs.replace(page, actions=list(map(shortened, page.actions)))

    async def preview(
        self,
        *,
        cron: str | None = None,
        timezone: str | None = None,
        every: Duration | None = None,
        from_: datetime | None = None,
        count: int = COUNT_DEFAULT,
    ) -> Preview:
        """The next firings of a schedule, from now or `from_` on; nothing is stored."""
        start = from_ or await self.time.now()
        return previewed(cron=cron, timezone=timezone, every=every, start=start, count=count)

    async def attempts(self, id: str, *, limit: int = 100) -> Sequence[Attempt]:
        """The recorded attempts of an action, newest first."""
        if not 1 <= limit <= PAGE_MAX:
            raise InvalidRequest(f"limit: must be between 1 and {PAGE_MAX} (got {limit})")
        return list(
            map(cut_attempt, await self.store.actions.list_attempts(action_id(id), limit=limit))
        )

    async def why(self, id: str) -> Why:
        """Why it waits, in a sentence; or that it does not. Errors: NotFound."""
        facts = await self.store.reports.why(action_id(id))
        if facts is None:
            raise NotFound("action", id)
        return explain_wait(facts, here=self._clock.now())

    async def watch(self, id: str) -> AsyncGenerator[Action, None]:
        """The action now, and again after every visible change until it has ended; what comes and
        goes between two looks is not seen. Errors: NotFound."""
        shown = await self.get(id)
        yield shown
        wait_s = WATCH_POLL_MIN_S
        while not shown.status.state.is_terminal:
            await asyncio.sleep(wait_s)
            action = await self.store.actions.get(shown.meta.id)
            if action is None:
                return  # it ended, and nothing of it is kept
            if action == shown:
                wait_s = min(2 * wait_s, WATCH_POLL_MAX_S)
                continue
            shown, wait_s = action, WATCH_POLL_MIN_S
            yield shown

    # -- inside ---------------------------------------------------------------------------------

    def _traced(self, verb: str, id: str | None = None) -> AbstractContextManager[str | None]:
        return nullcontext() if self.tracing is None else self.tracing.trace_create(verb, id)

    async def _admit(self, request: Request, actor: str) -> ActionDraft:
        return self._draft(request, self._entropy.guid(), await self.time.now(), actor)

    def _draft(
        self, request: Request, guid: UUID, now: datetime, actor: str, plans: Plans | None = None
    ) -> ActionDraft:
        return admit(
            request,
            guid=guid,
            now=now,
            installation=self.installation,
            retention=self._config.retention,
            actor=actor,
            plans=plans,
        )

    async def _passed(self, changed: ChangeResult, *, barrier: bool) -> ChangeResult:
        """Wait until the attempt in flight has ended, or can no longer succeed."""
        flight = changed.in_flight
        if not barrier or flight is None or flight.deadline is None:
            return changed
        for pause_s in pauses():
            if await self.time.now() >= flight.deadline + BARRIER_GRACE:
                break
            log = await self.store.actions.list_attempts(changed.action.meta.id, limit=PAGE_MAX)
            ended = [entry for entry in log if entry.attempt_id == flight.attempt_id]
            if ended and ended[0].outcome not in UNENDED:
                break
            await asyncio.sleep(pause_s)
        return changed


def _check_if_exists(if_exists: str, request: Request) -> None:
    if if_exists not in get_args(IfExists):
        raise InvalidRequest(f"if_exists: must be error, keep or replace (got {short(if_exists)})")
    if if_exists != "error" and request.id is None:
        raise InvalidRequest("if_exists: is for an action with an id")
