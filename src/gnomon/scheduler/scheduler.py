"""The verbs that users call, in process or through a gateway. Each is one store transaction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from gnomon.clock import DatabaseClock
from gnomon.contracts.clock import Clock, Entropy
from gnomon.contracts.store import (
    LOCAL,
    ActionDraft,
    ActionPage,
    ActionWrites,
    ChangeResult,
    Installation,
    LimitUse,
    Selection,
    Store,
)
from gnomon.model.action import Action, Attempt, State
from gnomon.model.errors import (
    AlreadyExists,
    FailedPrecondition,
    GnomonError,
    InvalidRequest,
    NotFound,
)
from gnomon.model.ids import action_id
from gnomon.model.limits import Limit, limit_key, validate_limit
from gnomon.scheduler.admission import Request, admit, decide_resume
from gnomon.scheduler.barrier import Barriers, pauses

BULK_MAX = 10_000
BULK_CHUNK = 2_000  # a transaction's size: larger adds latency for others and gains nothing
PAGE_MAX = 1_000
CLOCK_TRUSTED_S = 60.0
WATCH_POLL_MIN_S = 0.1
WATCH_POLL_MAX_S = 1.0
BARRIER_GRACE = timedelta(seconds=15)  # lease and grace: after that the attempt cannot succeed


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """How long finished actions stay visible, unless their spec says otherwise."""

    retention: timedelta = timedelta(days=7)


class Scheduler:
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
    ) -> None:
        self.store = store
        self.installation = installation
        self._clock = clock
        self._entropy = entropy
        self._config = config or SchedulerConfig()
        self._database = DatabaseClock(clock)
        self._trusted_until = 0.0
        self._barriers = Barriers()

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
        draft = await self._admit(request, actor)
        (stored,) = await (within or self.store.actions).create([draft], actor=actor, verb=verb)
        if stored is None:
            raise AlreadyExists("action", draft.id)
        if within is None:
            self.store.wakeups.hint({draft.shard})
        return stored

    async def create_many(
        self, requests: Sequence[Request], *, actor: str = LOCAL
    ) -> Sequence[ChangeResult | GnomonError]:
        """Store up to 10,000 actions; one answer each, in order. A bad one spoils no other."""
        if len(requests) > BULK_MAX:
            raise InvalidRequest(f"{len(requests)} actions in one call; at most {BULK_MAX}")
        now = await self._now()
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
        admitted = [self._admitted(request, now, actor) for request in requests]
        seen: dict[str, ActionDraft] = {}
        for index, draft in enumerate(admitted):
            if isinstance(draft, ActionDraft):
                if draft.id in seen:
                    admitted[index] = AlreadyExists("action", draft.id)
                seen.setdefault(draft.id, draft)
        drafts = list(seen.values())
        answers = await self.store.actions.create(drafts, actor=actor)
        stored = dict(zip(seen, answers, strict=True))
        self.store.wakeups.hint({draft.shard for draft in drafts})
        return [
            draft
            if isinstance(draft, GnomonError)
            else stored[draft.id] or AlreadyExists("action", draft.id)
            for draft in admitted
        ]

    def _admitted(self, request: Request, now: datetime, actor: str) -> ActionDraft | GnomonError:
        try:
            return self._draft(request, now, actor)
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
            draft = await self._admit(request, actor)
            changed = await self.store.actions.replace(draft, if_match=if_match, actor=actor)
            self.store.wakeups.hint({draft.shard})
            return await self._passed(changed, barrier=barrier)

    async def delete(
        self,
        id: str,
        *,
        if_match: UUID | None = None,
        barrier: bool = False,
        actor: str = LOCAL,
    ) -> ChangeResult:
        """Cancel an action: no attempt of it begins any more."""
        with self._barriers.place(wanted=barrier):
            changed = await self.store.actions.delete(action_id(id), if_match=if_match, actor=actor)
            return await self._passed(changed, barrier=barrier)

    async def pause(
        self, id: str, *, if_match: UUID | None = None, actor: str = LOCAL
    ) -> ChangeResult:
        """Let no attempt begin until it is resumed."""
        return await self.store.actions.pause(
            action_id(id), self._entropy.guid(), if_match=if_match, actor=actor
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
            actor=actor,
        )
        self.store.wakeups.hint({changed.action.meta.shard})
        return changed

    async def run_now(
        self, id: str, *, if_match: UUID | None = None, actor: str = LOCAL
    ) -> ChangeResult:
        """Make an action due at once."""
        changed = await self.store.actions.run_now(
            action_id(id), self._entropy.guid(), if_match=if_match, actor=actor
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
        spec = msgspec.structs.replace(action.spec, start_at=None)
        return await self._create("retry", Request(id=id, spec=spec), None, actor)

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
        return await self.store.actions.list(selection, after=after, limit=limit)

    async def attempts(self, id: str, *, limit: int = 100) -> Sequence[Attempt]:
        """The recorded attempts of an action, newest first."""
        if not 1 <= limit <= PAGE_MAX:
            raise InvalidRequest(f"limit: must be between 1 and {PAGE_MAX} (got {limit})")
        return await self.store.actions.list_attempts(action_id(id), limit=limit)

    async def watch(self, id: str) -> AsyncIterator[Action]:
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

    # -- limits ---------------------------------------------------------------------------------

    async def set_limit(self, limit: Limit, *, actor: str = LOCAL) -> LimitUse:
        """Set a limit of a queue or a target, or change it. Errors: InvalidSpec."""
        validate_limit(limit)
        await self.store.limits.set(limit, guid=self._entropy.guid(), actor=actor)
        uses = {use.limit.key: use for use in await self.list_limits()}
        return uses.get(limit.key, LimitUse(limit=limit))

    async def drop_limit(self, kind: str, name: str, *, actor: str = LOCAL) -> LimitUse:
        """Have no such limit any more; as it was. Errors: NotFound."""
        use = await self.get_limit(kind, name)
        if not await self.store.limits.delete(
            use.limit.key, guid=self._entropy.guid(), actor=actor
        ):
            raise NotFound("limit", str(use.limit.key))
        return use

    async def get_limit(self, kind: str, name: str) -> LimitUse:
        """A limit, and how much of it is in use. Errors: NotFound."""
        key = limit_key(kind, name)
        for use in await self.list_limits():
            if use.limit.key == key:
                return use
        raise NotFound("limit", str(key))

    async def list_limits(self) -> Sequence[LimitUse]:
        """All limits by kind and name."""
        return (await self.store.limits.list()).uses

    # -- inside ---------------------------------------------------------------------------------

    async def _admit(self, request: Request, actor: str) -> ActionDraft:
        return self._draft(request, await self._now(), actor)

    def _draft(self, request: Request, now: datetime, actor: str) -> ActionDraft:
        return admit(
            request,
            guid=self._entropy.guid(),
            now=now,
            installation=self.installation,
            retention=self._config.retention,
            actor=actor,
        )

    async def _now(self) -> datetime:
        if self._clock.monotonic() >= self._trusted_until:
            self._database.observe(await self.store.installation.now())
            self._trusted_until = self._clock.monotonic() + CLOCK_TRUSTED_S
        return self._database.now()

    async def _passed(self, changed: ChangeResult, *, barrier: bool) -> ChangeResult:
        """Wait until the attempt in flight has ended, or can no longer succeed."""
        flight = changed.in_flight
        if not barrier or flight is None or flight.deadline is None:
            return changed
        for pause_s in pauses():
            if await self._now() >= flight.deadline + BARRIER_GRACE:
                break
            log = await self.store.actions.list_attempts(changed.action.meta.id, limit=PAGE_MAX)
            ended = [entry for entry in log if entry.attempt_id == flight.attempt_id]
            if ended and ended[0].outcome not in ("running", "superseded"):
                break
            await asyncio.sleep(pause_s)
        return changed
