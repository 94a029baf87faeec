"""One session's life: connect, take, perform, record, and on to the next task that may follow."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from gnomon.contracts.task_table import TaskSession
from gnomon.model.errors import Unavailable
from gnomon.model.task import (
    DueTask,
    Outcome,
    RemoteRefused,
    RowRefused,
    SessionLost,
    Task,
)
from gnomon.model.task.admission import Slot
from gnomon.tasks.owned_table import OwnedTable

if TYPE_CHECKING:
    from gnomon.tasks.sessions import Sessions

LOCKED_FIRST_S = 0.05
LOCKED_MAX_S = 1.0


class SessionRun:
    """A session, from the row that it is opened for to its end."""

    def __init__(self, owned: OwnedTable, sessions: Sessions, slot: Slot, row: DueTask) -> None:
        self._owned = owned
        self._table = owned.table
        self._admission = owned.admission
        self._sessions = sessions
        self._slot = slot
        self._key = slot.key
        self._row: int | None = row.id  # that it has now
        self._following: int | None = None  # asked for together with the end of the other
        self._session: TaskSession | None = None
        self._is_given_up = False
        # Who watches is told when this session waits for its server: a task does not wait for that.
        self._loop = asyncio.get_running_loop()

    @property
    def is_remote(self) -> bool:
        return self._key.remote is not None

    async def serve(self) -> None:
        """Until no task follows. The slot is free when the connection is closed, not before."""
        try:
            if await self._connect():
                await self._perform_all()
        finally:
            if self._session is not None:
                await self._session.close()
            self._admission.end(self._slot)

    async def give_up(self) -> None:
        """Stop what is performed and record nothing: the row goes back to PLAN."""
        self._is_given_up = True
        if self._session is not None:
            await self._session.cancel()

    async def cut(self) -> None:
        """End the connection, whatever it does."""
        self._is_given_up = True
        if self._session is not None:
            await self._session.close()

    # -- connecting -------------------------------------------------------------------------------

    async def _connect(self) -> bool:
        """Open the session for its first row; False if that row, or the way to it, is not to be
        had."""
        try:
            if not await self._mark():
                return False
            self._session = await self._open()
        except RemoteRefused as exc:
            await self._refuse(str(exc))
            return False
        except RowRefused as exc:
            self._set_aside(str(exc))
            return False
        except Unavailable as exc:
            self._sessions.unavailable(exc)
            await self._give_back()
            return False
        self._slot.opened_at = self._owned.now()
        return True

    async def _mark(self) -> bool:
        """The way to a `remote` may be long, so its row says TAKE meanwhile; False if no row of the
        group is to be had: stopped, planned for later, expired."""
        while self.is_remote and self._row is not None:
            lease_guid = self._owned.lease_guid
            if await self._table.mark_taken([self._row], lease_guid=lease_guid):
                break
            self._release()
            self._next_first()
        return self._row is not None

    async def _open(self) -> TaskSession:
        """Connect; while the way leads to a `remote`, that is counted, for its row is TAKE
        meanwhile."""
        if not self.is_remote:
            return await self._table.open(self._key)
        self._owned.connecting_count += 1
        try:
            return await self._table.open(self._key)
        finally:
            self._owned.connecting_count -= 1

    async def _refuse(self, error: str) -> None:
        """End the session's row as FAIL: it cannot be sent where it wants to be, or cannot be
        taken. That is the task's own error."""
        row, lease_guid = self._row, self._owned.lease_guid
        assert row is not None
        try:
            await self._insist(
                lambda: self._table.refuse(row, error, lease_guid=lease_guid), lease_guid
            )
            self._owned.count("tasks_finished", state="FAIL")
            self._release()
        except RowRefused as exc:
            self._set_aside(str(exc))
        except Unavailable:
            await self._give_back()

    def _set_aside(self, words: str) -> None:
        """The row cannot be changed at all: others go on without it."""
        assert self._row is not None
        self._sessions.set_aside(self._key, self._row, words)
        self._row = None

    async def _insist(self, call: Callable[[], Awaitable[bool]], lease_guid: UUID) -> None:
        """Call it again while somebody has the row locked, and as long as the table is ours."""
        wait_s, owned = LOCKED_FIRST_S, self._owned
        while not await call() and owned.is_ours and owned.lease_guid == lease_guid:
            await asyncio.sleep(wait_s)
            wait_s = min(LOCKED_MAX_S, wait_s * 2)

    async def _put_back(self) -> None:
        """Make the row PLAN again; where that cannot be now, a rescue does it later."""
        row, lease_guid = self._row, self._owned.lease_guid
        assert row is not None

        async def untaken() -> bool:
            return not await self._table.untake([row], lease_guid=lease_guid)

        with suppress(Unavailable):
            await self._insist(untaken, lease_guid)

    # -- performing -------------------------------------------------------------------------------

    async def _perform_all(self) -> None:
        """Perform the first row and all that follow on this session, and tell what breaks it."""
        is_performed = False
        try:
            task = await self._take_first()
            while task is not None:
                self._note_start(task)
                is_performed = True
                outcome = await self._perform(task)
                if self._is_given_up:
                    await self._untake()
                    return
                task = await self._finish(task, outcome)
                is_performed = False
        except RowRefused as exc:
            await self._refuse_taken(str(exc))
        except SessionLost as exc:
            self._note_loss(str(exc), is_performed=is_performed)

    async def _refuse_taken(self, words: str) -> None:
        """The row cannot be taken for a reason that is its own, or its login's: so it fails."""
        assert self._row is not None
        self._owned.event("task_row_refused", id=self._row, problem=words)
        await self._refuse(words)

    async def _perform(self, task: Task) -> Outcome:
        assert self._session is not None
        return await self._session.perform(task)

    async def _take_first(self) -> Task | None:
        """Take the first row of the group that is still to be had."""
        while self._row is not None:
            if not self._owned.may_take:
                await self._give_back()
                return None
            task = await self._take(self._row)
            if task is not None:
                return task
            self._release()
            self._next_first()
        return None

    def _next_first(self) -> None:
        """The session's first row was gone: let the admission name another one."""
        task = self._admission.another(self._slot, self._owned.now())
        if task is not None:
            self._row = task.id
            self._sessions.used(self._key)

    async def _take(self, task_id: int) -> Task | None:
        """Take a row on this session; None if it is not to be had."""
        assert self._session is not None
        return await self._session.take(task_id, lease_guid=self._owned.lease_guid)

    async def _finish(self, task: Task, outcome: Outcome) -> Task | None:
        """Record how a task ended and take the one that follows, in one step if that is still
        there."""
        assert self._session is not None
        self._slot.done += 1
        self._choose(task)
        finished = await self._session.finish(
            task, outcome, then=self._following, lease_guid=self._owned.lease_guid
        )
        self._note_end(task, outcome, recorded=finished.recorded)
        self._release()
        following = finished.next
        while self._advance():
            if following is not None:
                return following
            self._release()  # it was deleted, stopped or planned for later meanwhile
            self._choose(task)
            following = await self._take_following()
        return None

    def _advance(self) -> bool:
        """The session is done with its row, and has the one that was to follow, if any; whether it
        has."""
        self._row, self._following = self._following, None
        return self._row is not None

    async def _take_following(self) -> Task | None:
        """Take the row that was chosen to follow, if any."""
        return None if self._following is None else await self._take(self._following)

    def _choose(self, ended: Task) -> None:
        """Let the admission name the row that this session performs next, if any."""
        if not self._owned.may_take:
            return
        task = self._admission.reuse(self._slot, ended, self._owned.now())
        if task is not None:
            self._following = task.id
            self._sessions.used(self._key)

    # -- what became of the row -------------------------------------------------------------------

    def _release(self) -> None:
        """The row has ended or is gone: it counts no more against its group."""
        if self._row is not None:
            self._admission.release(self._key, self._row)
            self._row = None

    async def _give_back(self) -> None:
        """The row was not begun: it is PLAN again, and waits as before."""
        assert self._row is not None
        if self.is_remote:
            await self._put_back()
        self._sessions.give_back(self._key, self._row)
        self._row = None

    async def _untake(self) -> None:
        """What was performed is given up: end the connection, then put the row back."""
        assert self._row is not None
        assert self._session is not None
        await self._session.close()
        await self._put_back()
        self._release()

    def _note_loss(self, words: str, *, is_performed: bool) -> None:
        """The connection broke: the row that it had, and the one asked for with it, are to be
        rescued."""
        for task_id in (self._row, self._following):
            if task_id is not None:
                is_own = is_performed and task_id == self._row and not self._is_given_up
                self._sessions.lost(self._key, task_id, words, is_performed=is_own)
        self._row = self._following = None

    def _note_start(self, task: Task) -> None:
        """Measure how late a task starts."""
        late_s = max(0.0, (task.start - task.plan).total_seconds())
        self._loop.call_soon(self._owned.observe, "task_lateness_seconds", late_s)

    def _note_end(self, task: Task, outcome: Outcome, *, recorded: bool) -> None:
        """Count a task that was performed to its end, or tell that its result was another's to
        write."""
        owned = self._owned
        self._sessions.ended(task)
        if not recorded:
            owned.event("task_result_dropped", id=task.id)
            return
        state = "DONE" if outcome.error is None else "FAIL"
        self._loop.call_soon(partial(owned.count, "tasks_finished", state=state))
