"""Changes of actions on behalf of a caller: his scopes and quotas are checked first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from gnomon.contracts.store import ChangeResult, Selection
from gnomon.gateways.auth import ADMIN, Authorizer, Principal, check_spec
from gnomon.model.errors import Exhausted, Forbidden, GnomonError, InvalidSpec
from gnomon.model.ids import ID_PATTERN
from gnomon.model.redaction import Redaction
from gnomon.model.spec import Spec
from gnomon.scheduler import Request, Scheduler
from gnomon.scheduler.selected import Change, StepResult, Verb, check_options


class ActionChanges:
    """The verbs of the scheduler that need more than the scope `write`."""

    def __init__(self, scheduler: Scheduler, authorizer: Authorizer) -> None:
        self._scheduler = scheduler
        self._authorizer = authorizer

    async def create(self, request: Request, *, caller: Principal) -> ChangeResult:
        """Errors: Forbidden, Exhausted, and those of the scheduler."""
        self._check(caller, request.spec)
        await self._authorizer.admit(caller)
        return await self._scheduler.create(request, actor=caller.name)

    async def create_many(
        self, items: Sequence[Request | GnomonError], *, caller: Principal
    ) -> list[ChangeResult | GnomonError]:
        """One result for each item, in order; an item that could not be read keeps its error."""
        checked = [permitted(caller, item, self._authorizer.redaction) for item in items]
        requests = [item for item in checked if isinstance(item, Request)]
        await self._authorizer.admit(caller, len(requests))
        results = iter(
            await self._scheduler.create_many(requests, actor=caller.name) if requests else ()
        )
        return [item if isinstance(item, GnomonError) else next(results) for item in checked]

    async def replace(
        self, id: str, request: Request, *, if_match: UUID | None, barrier: bool, caller: Principal
    ) -> ChangeResult:
        """Errors: Forbidden, Exhausted, and those of the scheduler."""
        self._check(caller, request.spec)
        await self._admit_replace(id, caller)
        return await self._scheduler.replace(
            request, if_match=if_match, barrier=barrier, actor=caller.name
        )

    async def run_now(self, id: str, *, if_match: UUID | None, caller: Principal) -> ChangeResult:
        """Errors: Forbidden, and those of the scheduler."""
        await self._check_stored(id, caller)
        return await self._scheduler.run_now(id, if_match=if_match, actor=caller.name)

    async def resume(self, id: str, *, if_match: UUID | None, caller: Principal) -> ChangeResult:
        """Errors: Forbidden, and those of the scheduler."""
        await self._check_stored(id, caller)
        return await self._scheduler.resume(id, if_match=if_match, actor=caller.name)

    async def retry(self, id: str, *, caller: Principal) -> ChangeResult:
        """Errors: Forbidden, Exhausted, and those of the scheduler."""
        await self._check_stored(id, caller)
        await self._authorizer.admit(caller)
        return await self._scheduler.retry(id, actor=caller.name)

    async def change_selected(
        self,
        verb: str,
        selection: Selection,
        *,
        running: bool,
        reason: str | None,
        until: str | None,
        after: str | None,
        limit: int,
        caller: Principal,
    ) -> StepResult:
        """One step of a verb on everything that matches; of what the caller may not change, none
        is. Errors: Exhausted, and those of the scheduler."""
        delete, pause, name = self._scheduler.delete, self._scheduler.pause, caller.name
        check_options(verb, reason=reason, until=until)
        changes: Mapping[Verb, Change] = {
            Verb.DELETE: lambda it: delete(
                it.meta.id, if_match=it.meta.guid, running=running, actor=name
            ),
            Verb.PAUSE: lambda it: pause(
                it.meta.id, reason=reason, until=until, if_match=it.meta.guid, actor=name
            ),
            Verb.RESUME: lambda it: self.resume(it.meta.id, if_match=it.meta.guid, caller=caller),
            Verb.RUN_NOW: lambda it: self.run_now(it.meta.id, if_match=it.meta.guid, caller=caller),
            Verb.RETRY: lambda it: self.retry(it.meta.id, caller=caller),
        }
        return await self._scheduler.step(verb, selection, changes, after=after, limit=limit)

    def _check(self, caller: Principal, spec: Spec) -> None:
        check_spec(caller, spec)
        self._authorizer.redaction.check(spec)

    async def _admit_replace(self, id: str, caller: Principal) -> None:
        """A replace counts against the quota only if no action with this id lives yet."""
        try:
            await self._authorizer.admit(caller)
        except Exhausted:
            stored = await self._scheduler.store.actions.get(id)
            if stored is None or stored.status.state.is_terminal:
                raise

    async def _check_stored(self, id: str, caller: Principal) -> None:
        """Check the stored spec, before it is made to run. Errors: Forbidden.

        Whoever replaces it between this look and the change needed the scope himself.
        """
        if ADMIN in caller.scopes or ID_PATTERN.fullmatch(id) is None:
            return
        stored = await self._scheduler.store.actions.get(id)
        if stored is not None:
            check_spec(caller, stored.spec)


def permitted(
    caller: Principal, item: Request | GnomonError, redaction: Redaction | None = None
) -> Request | GnomonError:
    """An item of a list, or why it is refused; a bad one spoils no other."""
    if isinstance(item, Request):
        try:
            check_spec(caller, item.spec)
            if redaction is not None:
                redaction.check(item.spec)
        except (Forbidden, InvalidSpec) as exc:
            return exc
    return item
