"""Rows whose session broke: they go back to PLAN, unless the task itself breaks its sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from gnomon.clock import wait_set
from gnomon.contracts.task_table import RescueResult
from gnomon.model.task import GroupKey, RowRefused
from gnomon.tasks.owned_table import OwnedTable

ALONE_MAX = 3  # a task that lost its session so often in a row, and it alone, becomes FAIL
TOGETHER_MAX = 10  # the same where others lost theirs at that time, or the server was away
AGAIN_S = 0.1  # while a backend that is to end has not ended
HELD_AGAIN_S = 1.0  # while somebody has a row locked that is to go back
KNOWN_MAX = 10_000


class _Loss(msgspec.Struct):
    """A row that was with a session that broke."""

    key: GroupKey
    words: str
    is_performed: bool


class _Record(msgspec.Struct):
    """How often a task lost its session in a row: alone, and together with others."""

    alone: int = 0
    together: int = 0

    @property
    def is_enough(self) -> bool:
        """Whether the task itself must be what breaks its sessions."""
        return self.alone >= ALONE_MAX or self.alone + self.together >= TOGETHER_MAX


class Rescuer:
    """Watches over rows that nobody performs."""

    def __init__(self, owned: OwnedTable, *, on_back: Callable[[GroupKey], None]) -> None:
        self._owned = owned
        self._table = owned.table
        self._on_back = on_back
        self._losses: dict[int, _Loss] = {}
        self._records: dict[int, _Record] = {}
        self._woken = asyncio.Event()
        self._is_server_lost = False

    def lost(self, key: GroupKey, task_id: int, words: str, *, is_performed: bool) -> None:
        """A session broke while it had this row; `is_performed`: while it performed it."""
        self._losses[task_id] = _Loss(key, words, is_performed)
        self._woken.set()

    def ended(self, task_id: int) -> None:
        """A task ended with a session that holds: what was before is forgotten."""
        if self._records:
            self._records.pop(task_id, None)

    def wake(self) -> None:
        """Another `reset` counts from now on."""
        self._woken.set()

    def server_lost(self) -> None:
        """The server was away: what broke now is not one task's fault."""
        self._is_server_lost = True

    async def watch(self) -> None:
        """Rescue at once when something was lost, and every `reset`, until cancelled.

        Errors: Unavailable.
        """
        reset_at = self._owned.now()  # the last time
        while True:
            due_s = reset_at + self._owned.entry.reset.total_seconds() - self._owned.now()
            is_reset = due_s <= 0 and self._takes_nothing()
            if is_reset:
                reset_at = self._owned.now()
            rescued = await self._rescue(is_reset=is_reset)
            await wait_set(self._woken, self._rest_s(rescued, max(AGAIN_S, due_s)))

    def _rest_s(self, rescued: RescueResult, due_s: float) -> float:
        """How long to wait: not long while rows are locked by somebody, or backends still end."""
        if rescued.held:
            return min(HELD_AGAIN_S, due_s)
        return AGAIN_S if rescued.others or self._losses else due_s

    def _takes_nothing(self) -> bool:
        """Whether no row can be TAKE for good reason, as one is while a way to its `remote` is
        made."""
        return not self._owned.connecting_count

    async def _rescue(self, *, is_reset: bool) -> RescueResult:
        """Put rows back to PLAN whose backend is gone, and settle the losses among them."""
        self._woken.clear()
        losses = dict(self._losses)
        rescued = await self._table.rescue(lease_guid=self._owned.lease_guid, stale=is_reset)
        self._owned.admission.set_others(rescued.others)
        if rescued.count:
            self._owned.event("tasks_rescued", count=rescued.count)
            self._owned.count("tasks_rescued", rescued.count)
        is_together = self._is_server_lost or len(losses) > 1
        for task_id, loss in losses.items():
            if not rescued.others.get(loss.key) and task_id not in rescued.held:
                await self._settle(task_id, loss, is_together=is_together)
        if not self._losses:
            self._is_server_lost = False
        return rescued

    async def _settle(self, task_id: int, loss: _Loss, *, is_together: bool) -> None:
        """A lost row whose backend is gone is PLAN again; or it fails, if it broke one session too
        many."""
        if loss.key.remote is not None:
            lease_guid = self._owned.lease_guid
            if await self._table.untake([task_id], lease_guid=lease_guid):
                return  # somebody has it locked: another time
        if loss.is_performed and self._note(task_id, is_together=is_together).is_enough:
            await self._fail(task_id, loss)
        del self._losses[task_id]
        self._owned.admission.release(loss.key, task_id)
        self._on_back(loss.key)

    def _note(self, task_id: int, *, is_together: bool) -> _Record:
        """Count one more session that the task lost."""
        if len(self._records) >= KNOWN_MAX:
            self._records.clear()
        record = self._records.setdefault(task_id, _Record())
        if is_together:
            record.together += 1
        else:
            record.alone += 1
        return record

    async def _fail(self, task_id: int, loss: _Loss) -> None:
        """End a row as FAIL that breaks its sessions: it would do so for ever."""
        lease_guid = self._owned.lease_guid
        try:
            if not await self._table.mark_taken([task_id], lease_guid=lease_guid):
                return
            await self._table.refuse(task_id, loss.words, lease_guid=lease_guid)
        except RowRefused as exc:
            self._owned.event("task_row_refused", id=task_id, problem=str(exc))
            return
        self._owned.count("tasks_finished", state="FAIL")
        self._owned.event("task_broke_sessions", id=task_id, problem=loss.words)
        self._records.pop(task_id, None)

    def forget(self) -> None:
        """The table is another's now: so are its rows."""
        for task_id, loss in self._losses.items():
            self._owned.admission.release(loss.key, task_id)
        self._losses.clear()
