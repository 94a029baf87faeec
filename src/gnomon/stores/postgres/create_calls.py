"""Calls that store one action each share statements, and so commits.

While as many statements are under way as may be, those who come meanwhile go together in the next
one. Who calls alone is not held up: nobody waits for company.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gnomon.contracts.store import PYTHON, ActionDraft, ChangeResult
from gnomon.model.errors import GnomonError, StoreUnavailable
from gnomon.stores.postgres.errors import RowHeld

UNDER_WAY_MAX = 2  # while one commits, the next is performed
DRAFTS_MAX = 64  # in one statement: 8 MB, if each is as large as a spec may be

Answers = Sequence[ChangeResult | None]


class CreateCaller(NamedTuple):
    """Who stores by which verb through which face: the audit says so, hence one statement is of one
    caller."""

    actor: str
    verb: str
    face: str = PYTHON


Create = Callable[[Sequence[ActionDraft], CreateCaller], Awaitable[Answers]]


@dataclass(eq=False, slots=True)
class _Batch:
    """Drafts that go together, and who waits for them."""

    drafts: list[ActionDraft] = field(default_factory=list)
    stored: asyncio.Task[Answers] | None = None


class CreateCalls:
    """Those of one process. `patient` waits for a row that somebody holds, `hasty` gives up."""

    def __init__(self, *, patient: Create, hasty: Create) -> None:
        self._patient = patient
        self._hasty = hasty
        self._turns = asyncio.Semaphore(UNDER_WAY_MAX)
        self._open: dict[CreateCaller, _Batch] = {}  # not under way yet
        self._tasks: set[asyncio.Task[Answers]] = set()  # or nobody might hold them

    async def create(self, draft: ActionDraft, caller: CreateCaller) -> ChangeResult | None:
        """The answer to one call. A row that is held or cannot be stored costs its own caller
        alone: the others of the statement repeat theirs by themselves."""
        if not self._turns.locked():
            async with self._turns:
                return await self._alone(draft, caller)
        batch = self._joined(draft, caller)
        assert batch.stored is not None
        try:
            answers = await asyncio.shield(batch.stored)
        except asyncio.CancelledError:
            if self._open.get(caller) is batch:
                batch.drafts.remove(draft)
            raise
        except GnomonError as error:
            if isinstance(error, StoreUnavailable) and not isinstance(error, RowHeld):
                raise
            return await self._alone(draft, caller)
        return answers[batch.drafts.index(draft)]

    async def _alone(self, draft: ActionDraft, caller: CreateCaller) -> ChangeResult | None:
        (answer,) = await self._patient([draft], caller)
        return answer

    def _joined(self, draft: ActionDraft, caller: CreateCaller) -> _Batch:
        batch = self._open.get(caller)
        if batch is None or len(batch.drafts) >= DRAFTS_MAX:
            batch = self._open[caller] = _Batch()
            batch.stored = asyncio.create_task(self._together(batch, caller), name="create")
            self._tasks.add(batch.stored)
            batch.stored.add_done_callback(self._tasks.discard)
        batch.drafts.append(draft)
        return batch

    async def _together(self, batch: _Batch, caller: CreateCaller) -> Answers:
        async with self._turns:
            if self._open.get(caller) is batch:
                del self._open[caller]
            return await self._hasty(batch.drafts, caller) if batch.drafts else []
