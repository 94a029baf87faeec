"""Finding work: what has come due, and when to look again.

A look asks for what came since the last one. What that cannot see (a row that was committed late,
or set back to PLAN) is found by a look at everything, page by page, which takes at most a tenth of
the time. Hints make a look earlier and are never relied upon. Of each group that has due rows the
first ones are loaded into memory; more, when these run out. Nothing of this is unbounded: however
many rows and groups there are, other work has its turn after each step.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from datetime import datetime

from gnomon.clock import DatabaseClock, wait_set
from gnomon.contracts.task_table import PollMark, TaskPoll
from gnomon.model.task import GroupKey
from gnomon.tasks.owned_table import OwnedTable

WINDOW_ROWS = 2_000  # of a group in memory
REFILL_AT = WINDOW_ROWS // 2  # enough for as long as a look at everything may take
RARE = 10  # what may be put off is done at most a tenth of the time
FULL_EVERY_MAX_S = 10.0
GAP_MAX_S = 0.05  # between two looks, when hints come all the time
LOADS_A_ROUND = 32
RESERVE = 64  # groups with something to start: enough for now, more are not loaded
WANTED_MAX = 10_000  # groups to be loaded; the others are found again when these have gone
EXPIRE_AGAIN_S = 1.0  # where nothing could expire: those rows are somebody's


class Finder:
    """Keeps the admission supplied with due rows."""

    def __init__(self, owned: OwnedTable, *, on_found: Callable[[], None]) -> None:
        self._owned = owned
        self._table = owned.table
        self._admission = owned.admission
        self._on_found = on_found
        self._clock = DatabaseClock(owned.env.clock)
        self._woken = asyncio.Event()
        self._is_hinted = False
        self._mark: PollMark | None = None
        self._next_plan: datetime | None = None
        self._next_expiry: datetime | None = None
        self._expire_not_before = 0.0
        self._looked_at = self._look_s = 0.0
        self._full_at, self._full_s = -FULL_EVERY_MAX_S, 0.0
        self._page: str | None = None  # where a look at everything goes on
        self._is_paging = self._is_page_hinted = False
        self._recheck_at = 0.0  # when another group may be loaded that is only looked at again
        self._wanted: dict[GroupKey, float] = {}  # not before this time
        self._refills: dict[GroupKey, None] = {}  # of groups that are being worked on: first
        self._loads: dict[GroupKey, tuple[float, float]] = {}  # when, and how long it took
        self._loading: GroupKey | None = None  # whose rows are being read now
        self._is_sated = False  # it rests while enough groups have something to start

    # -- told from outside ------------------------------------------------------------------------

    def hint(self) -> None:
        """Something may have come."""
        self._is_hinted = True
        self._woken.set()

    def used(self, key: GroupKey) -> None:
        """A row of a group was started: there may be few left of those that are known."""
        admission = self._admission
        if admission.has_more(key) and admission.waiting_in(key) < REFILL_AT:
            if key != self._loading and key not in self._refills:
                self._refills[key] = None
                self._woken.set()
        elif self._is_sated and admission.ready_count < RESERVE:
            self._woken.set()

    def want(self, key: GroupKey) -> None:
        """A group may have due rows that are not known."""
        self._want(key, rare=False)
        self._woken.set()

    # -- the loop ---------------------------------------------------------------------------------

    async def find(self) -> None:
        """Look for due groups and load their first rows, until cancelled. Errors: Unavailable."""
        self._mark = None
        self._full_at = -FULL_EVERY_MAX_S
        self._is_paging, self._page = False, None
        self._wanted.clear()
        self._refills.clear()
        self._loading = None
        while True:
            if self._look_at() <= self._owned.now():
                await self._look()
            await self._load_wanted()
            self._on_found()
            await self._rest()

    def _look_at(self) -> float:
        """When to look next: after a hint, at the next plan or expiry, or after the table's
        `sleep`."""
        if self._mark is None or (self._is_paging and len(self._wanted) < WANTED_MAX):
            return self._looked_at
        due = self._looked_at + self._owned.entry.sleep.total_seconds()
        if self._is_hinted:
            due = self._looked_at
        if self._next_plan is not None:
            due = min(due, self._own_time(self._next_plan))
        due = min(due, self._expiry_at())
        return max(due, self._looked_at + min(GAP_MAX_S, 2 * self._look_s))

    def _expiry_at(self) -> float:
        """When rows that were not begun in time are to be ended next; never, if none is known."""
        if self._next_expiry is None:
            return math.inf
        return max(self._own_time(self._next_expiry), self._expire_not_before)

    def _own_time(self, moment: datetime) -> float:
        """A time of the database's, on our own clock."""
        return self._owned.now() + (moment - self._clock.now()).total_seconds()

    async def _look(self) -> None:
        """Ask for what is new since the last look, and when it is time for a page of everything."""
        is_hinted, self._is_hinted = self._is_hinted, False
        if self._expiry_at() <= self._owned.now():
            await self._expire()
        began = self._owned.now()
        has_news = self._mark is not None and await self._poll(self._mark)
        self._looked_at = self._owned.now()
        self._look_s = self._looked_at - began
        self._begin_paging(is_hinted=is_hinted and not has_news)
        if self._is_paging and len(self._wanted) < WANTED_MAX:
            await self._look_at_page()

    def _begin_paging(self, *, is_hinted: bool) -> None:
        """Begin a look at everything when it is time: what came is not always new by its id or
        plan."""
        since_s = self._owned.now() - self._full_at
        least_s = 0.0 if is_hinted else self._owned.entry.sleep.total_seconds()
        every_s = min(FULL_EVERY_MAX_S, max(least_s, RARE * self._full_s))
        if not self._is_paging and (self._mark is None or since_s >= every_s):
            self._is_paging, self._is_page_hinted = True, is_hinted
            self._page, self._full_s = None, 0.0

    async def _look_at_page(self) -> None:
        """Ask for the next page of a look at everything."""
        began = self._owned.now()
        polled = await self._table.poll(None, after=self._page)
        self._full_at = self._owned.now()
        self._full_s += self._full_at - began
        self._page = polled.rest
        self._is_paging = polled.rest is not None
        self._note_poll(polled, is_full=True)

    async def _poll(self, mark: PollMark) -> bool:
        """Ask for what is new since the mark; whether there was something."""
        polled = await self._table.poll(mark)
        self._note_poll(polled, is_full=False)
        if polled.is_cut:
            self._full_at = -FULL_EVERY_MAX_S
        return bool(polled.groups) and not polled.is_cut

    def _note_poll(self, polled: TaskPoll, *, is_full: bool) -> None:
        """Take in what a poll told: when to look again, and which groups to load."""
        self._clock.observe(polled.now)
        if not is_full or self._mark is None:
            self._mark = polled.mark  # of what came while pages were looked at none is passed over
        self._next_plan, self._next_expiry = polled.next_plan, polled.next_expiry
        for key in sorted(polled.groups, key=lambda key: (key.group, key.remote or "")):
            if len(self._wanted) >= WANTED_MAX:
                self._full_at = -FULL_EVERY_MAX_S  # the rest is found by a look at everything
                return
            is_known = is_full and self._admission.waiting_in(key) > 0
            self._want(key, rare=is_known and not self._is_page_hinted, recheck=is_known)

    async def _expire(self) -> None:
        """End rows that were not begun in time as GONE, as many as one statement takes."""
        began = self._owned.now()
        expired = await self._table.expire(lease_guid=self._owned.lease_guid)
        ended = self._owned.now()
        self._expire_not_before = ended + (ended - began)
        if not expired.count and not expired.has_more:
            self._expire_not_before = ended + EXPIRE_AGAIN_S
        elif expired.has_more:
            self._next_expiry = self._clock.now()
        if expired.count:
            self._owned.count("tasks_finished", expired.count, state="GONE")
        for task_id, problem in expired.troubles.items():
            self._owned.event("task_row_refused", id=task_id, problem=problem)

    # -- rows of a group --------------------------------------------------------------------------

    def _want(self, key: GroupKey, *, rare: bool, recheck: bool = False) -> None:
        """Have a group loaded: soon, or `rare`ly where only what nobody told of could be new. Those
        of which nothing new is known (`recheck`) take turns, for there may be many."""
        loaded_at, load_s = self._loads.get(key, (-FULL_EVERY_MAX_S, 0.0))
        wait_s = FULL_EVERY_MAX_S if rare else RARE * load_s
        not_before = loaded_at + min(FULL_EVERY_MAX_S, wait_s)
        if recheck and not rare:
            self._recheck_at = max(self._owned.now(), self._recheck_at + RARE * load_s)
            not_before = min(loaded_at + FULL_EVERY_MAX_S, max(not_before, self._recheck_at))
        self._wanted[key] = min(not_before, self._wanted.get(key, not_before))

    async def _load_wanted(self) -> None:
        """Load groups that want it, so many that the next look is not late."""
        for _ in range(LOADS_A_ROUND):
            key = self._next_wanted()
            if key is None:
                return
            await self._load_one(key)
            self._on_found()

    def _next_wanted(self) -> GroupKey | None:
        """The group to load next: one whose known rows run out, else one that may have new rows."""
        if self._refills:
            key = next(iter(self._refills))
            del self._refills[key]
            return key
        if self._admission.ready_count >= RESERVE:
            return None
        now = self._owned.now()
        return next((key for key, not_before in self._wanted.items() if not_before <= now), None)

    async def _load_one(self, key: GroupKey) -> None:
        """Read the first due rows of a group into the admission."""
        began = self._owned.now()
        self._wanted.pop(key, None)
        self._admission.asking(key)
        self._loading = key
        window = await self._table.window(key, limit=WINDOW_ROWS, lease_guid=self._owned.lease_guid)
        self._loading = None
        self._admission.fill(key, window.rows, has_more=window.has_more)
        ended = self._owned.now()
        self._note_load(key, ended, ended - began)
        if window.has_more and not window.rows:
            self._want(key, rare=False)  # all that was looked at is about to expire

    def _note_load(self, key: GroupKey, ended: float, load_s: float) -> None:
        """Note how long a load took: the group's next one waits accordingly. What is older than any
        wait can be is forgotten, for groups come and go."""
        self._loads.pop(key, None)
        self._loads[key] = (ended, load_s)
        while self._loads:
            oldest = next(iter(self._loads))
            if self._loads[oldest][0] + FULL_EVERY_MAX_S > ended:
                return
            del self._loads[oldest]

    # -- waiting ----------------------------------------------------------------------------------

    async def _rest(self) -> None:
        """Until a look or a load is due, or somebody wakes us."""
        self._woken.clear()
        self._is_sated = self._admission.ready_count >= RESERVE
        wait_s = min(self._look_at(), self._load_at()) - self._owned.now()
        await wait_set(self._woken, max(0.0, wait_s))

    def _load_at(self) -> float:
        """When the next load is due; never, while enough groups have something to start."""
        if self._refills:
            return 0.0
        if self._admission.ready_count >= RESERVE:
            return math.inf
        return min(self._wanted.values(), default=math.inf)
