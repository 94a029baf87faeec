"""The open sessions of a table: started as the admission allows, ended together."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from datetime import timedelta

from gnomon.model.errors import Unavailable
from gnomon.model.task import GroupKey, Task
from gnomon.tasks.finder import Finder
from gnomon.tasks.owned_table import OwnedTable
from gnomon.tasks.rescuer import Rescuer
from gnomon.tasks.session_run import SessionRun

Drain = Callable[[], timedelta | None]  # how long tasks may take to end; None: as long as it takes

TROUBLE_FIRST_S = 0.1
TROUBLE_MAX_S = 2.0
DRAIN_LOOK_S = 0.5  # a reload lets tasks end however long they take, a stop after it does not
GIVE_UP_S = 3.0  # for a cancelled task to end; then its connection is cut
ASIDE_FIRST_S = 1.0
ASIDE_MAX_S = 60.0
ASIDE_KNOWN_MAX = 10_000


class Sessions:
    """Starts sessions, and hears what becomes of their rows."""

    def __init__(self, owned: OwnedTable, *, on_failure: Callable[[BaseException], None]) -> None:
        self._owned = owned
        self._admission = owned.admission
        self._on_failure = on_failure
        self.finder = Finder(owned, on_found=self.start)
        self.rescuer = Rescuer(owned, on_back=self.finder.want)
        self._open: dict[asyncio.Task[None], SessionRun] = {}
        self._trouble_s = 0.0
        self._not_before = 0.0  # the server is away or full: no session until then
        self._aside: dict[int, float] = {}  # for how long a row was last left alone

    @property
    def count(self) -> int:
        return len(self._open)

    # -- starting ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Start all that may start now."""
        owned, now = self._owned, self._owned.now()
        if not owned.may_take or now < self._not_before:
            return
        for slot, row in self._admission.starts(now):
            serving = SessionRun(owned, self, slot, row)
            task = asyncio.get_running_loop().create_task(serving.serve())
            self._open[task] = serving
            task.add_done_callback(self._over)
            self.finder.used(slot.key)

    def show(self) -> None:
        """Tell how much there is."""
        self._owned.gauge("tasks_running", self._admission.slot_count)
        self._owned.gauge("tasks_waiting", self._admission.waiting_count)

    def _over(self, task: asyncio.Task[None]) -> None:
        del self._open[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_failure(error)
        self.start()

    # -- what sessions tell -----------------------------------------------------------------------

    def used(self, key: GroupKey) -> None:
        """A row that waited was started."""
        self.finder.used(key)

    def ended(self, task: Task) -> None:
        """A task was performed to its end."""
        self._trouble_s = 0.0
        self._aside.pop(task.id, None)
        self.rescuer.ended(task.id)
        if task.max < 0:  # those like it were planned for later
            self._admission.paused(task.key)
            self.finder.hint()

    def lost(self, key: GroupKey, task_id: int, words: str, *, is_performed: bool) -> None:
        """The connection broke while it had this row."""
        self._owned.event("task_session_lost", id=task_id, problem=words)
        if not is_performed:
            self._wait_out()
        if self._owned.is_ours:
            self.rescuer.lost(key, task_id, words, is_performed=is_performed)
        else:
            self._admission.release(key, task_id)

    def give_back(self, key: GroupKey, task_id: int) -> None:
        """The row was not begun: it waits as before."""
        self._admission.release(key, task_id)
        self.finder.want(key)

    def set_aside(self, key: GroupKey, task_id: int, words: str) -> None:
        """Leave a row alone that cannot be changed, for longer each time; the others go on."""
        self._owned.event("task_row_refused", id=task_id, problem=words)
        if len(self._aside) >= ASIDE_KNOWN_MAX:
            self._aside.clear()
        wait_s = min(ASIDE_MAX_S, max(ASIDE_FIRST_S, 2 * self._aside.get(task_id, 0.0)))
        self._aside[task_id] = wait_s
        asyncio.get_running_loop().call_later(wait_s, self.give_back, key, task_id)

    def unavailable(self, trouble: Unavailable) -> None:
        """No connection could be made."""
        if self._wait_out():
            self._owned.event("task_session_unavailable", problem=str(trouble))

    def _wait_out(self) -> bool:
        """Wait for what is nobody's fault: a server that is away, or has no connection left.

        Whether that is news."""
        if self._owned.now() < self._not_before:
            return False
        self._trouble_s = min(TROUBLE_MAX_S, max(TROUBLE_FIRST_S, self._trouble_s * 2))
        self._not_before = self._owned.now() + self._trouble_s
        asyncio.get_running_loop().call_later(self._trouble_s, self.start)
        return True

    # -- ending -----------------------------------------------------------------------------------

    async def drain(self, within: Drain) -> None:
        """Let what is performed end; what takes longer is given up and goes back to PLAN."""
        began = self._owned.now()
        while self._open:
            limit = within()
            left_s = (
                math.inf if limit is None else began + limit.total_seconds() - self._owned.now()
            )
            if left_s <= 0:
                self._owned.event("drain_timed_out", running=len(self._open))
                await self.give_up(self._open.values())
                return
            await asyncio.wait(list(self._open), timeout=min(left_s, DRAIN_LOOK_S))

    async def give_up_remote(self) -> None:
        """The table is another's now, and with it every row that was sent away."""
        await self.give_up([item for item in self._open.values() if item.is_remote])

    async def give_up(self, servings: Iterable[SessionRun]) -> None:
        """Cancel, and where that does not help cut."""
        chosen = list(servings)
        await asyncio.gather(*(serving.give_up() for serving in chosen))
        tasks = [task for task, serving in self._open.items() if serving in chosen]
        if tasks:
            _, slow = await asyncio.wait(tasks, timeout=GIVE_UP_S)
            await asyncio.gather(*(self._open[task].cut() for task in slow))
            if slow:
                await asyncio.wait(slow, timeout=GIVE_UP_S)
