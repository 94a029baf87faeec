"""Finding work: what has come due, and when to look again.

A look asks for what came since the last one. What that cannot see (a row that was committed late,
or set back to PLAN) is found by a look at everything, which takes at most a tenth of the time.
Hints make a look earlier and are never relied upon. Of each group that has due rows the first ones
are loaded into memory; more, when these run out.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from datetime import datetime

from gnomon.clock import DatabaseClock
from gnomon.contracts.task_table import Mark, Polled
from gnomon.model.task import GroupKey
from gnomon.tasks.tenure import Tenure

WINDOW_ROWS = 2_000  # of a group in memory
REFILL_AT = WINDOW_ROWS // 2  # enough for as long as a look at everything may take
RARE = 10  # what may be put off is done at most a tenth of the time
FULL_EVERY_MAX_S = 10.0
GAP_MAX_S = 0.05  # between two looks, when hints come all the time
LOADS_A_ROUND = 32
RESERVE = 64  # groups with something to start: enough for now, more are not loaded


class Finder:
    """Keeps the admission supplied with due rows."""

    def __init__(self, tenure: Tenure, *, on_found: Callable[[], None]) -> None:
        self._tenure = tenure
        self._table = tenure.table
        self._admission = tenure.admission
        self._on_found = on_found
        self._clock = DatabaseClock(tenure.env.clock)
        self._woken = asyncio.Event()
        self._is_hinted = False
        self._mark: Mark | None = None
        self._next_plan: datetime | None = None
        self._next_expiry: datetime | None = None
        self._expire_not_before = 0.0
        self._looked_at = self._look_s = 0.0
        self._full_at, self._full_s = -FULL_EVERY_MAX_S, 0.0
        self._wanted: dict[GroupKey, float] = {}  # not before this time
        self._refills: dict[GroupKey, None] = {}  # of groups that are being worked on: first
        self._loads: dict[GroupKey, tuple[float, float]] = {}  # when, and how long it took

    # -- told from outside ------------------------------------------------------------------------

    def hint(self) -> None:
        """Something may have come."""
        self._is_hinted = True
        self._woken.set()

    def used(self, key: GroupKey) -> None:
        """A row of a group was started: there may be few left of those that are known."""
        admission = self._admission
        if admission.has_more(key) and admission.waiting_in(key) < REFILL_AT:
            self._refills[key] = None
            self._woken.set()
        elif self._wanted and admission.ready_count < RESERVE:
            self._woken.set()

    def want(self, key: GroupKey) -> None:
        """A group may have due rows that are not known."""
        self._want(key, rare=False)
        self._woken.set()

    # -- the loop ---------------------------------------------------------------------------------

    async def find(self) -> None:
        """Look and load, until cancelled. Errors: Unavailable."""
        self._mark = None
        self._full_at = -FULL_EVERY_MAX_S
        self._wanted.clear()
        self._refills.clear()
        while True:
            if self._look_at() <= self._tenure.now():
                await self._look()
            await self._load()
            self._on_found()
            await self._rest()

    def _look_at(self) -> float:
        """When the next look is due."""
        if self._mark is None:
            return self._looked_at
        due = self._looked_at + self._tenure.entry.sleep.total_seconds()
        if self._is_hinted:
            due = self._looked_at
        if self._next_plan is not None:
            due = min(due, self._at(self._next_plan))
        due = min(due, self._expiry_at())
        return max(due, self._looked_at + min(GAP_MAX_S, 2 * self._look_s))

    def _expiry_at(self) -> float:
        if self._next_expiry is None:
            return math.inf
        return max(self._at(self._next_expiry), self._expire_not_before)

    def _at(self, moment: datetime) -> float:
        """A time of the database's, on our own clock."""
        return self._tenure.now() + (moment - self._clock.now()).total_seconds()

    async def _look(self) -> None:
        is_hinted, self._is_hinted = self._is_hinted, False
        if self._expiry_at() <= self._tenure.now():
            await self._expire()
        began = self._tenure.now()
        has_news = self._mark is not None and await self._poll(self._mark)
        self._looked_at = self._tenure.now()
        self._look_s = self._looked_at - began
        if self._is_full_due(is_hinted=is_hinted and not has_news):
            await self._poll(None)
            self._full_at = self._tenure.now()
            self._full_s = self._full_at - self._looked_at

    def _is_full_due(self, *, is_hinted: bool) -> bool:
        """Whether to look at everything: what came is not always new by its id or its plan."""
        since_s = self._tenure.now() - self._full_at
        least_s = 0.0 if is_hinted else self._tenure.entry.sleep.total_seconds()
        every_s = min(FULL_EVERY_MAX_S, max(least_s, RARE * self._full_s))
        return self._mark is None or since_s >= every_s

    async def _poll(self, mark: Mark | None) -> bool:
        """Whether there was something new."""
        polled = await self._table.poll(mark)
        self._clock.observe(polled.now)
        self._note(polled, is_full=mark is None)
        return bool(polled.groups)

    def _note(self, polled: Polled, *, is_full: bool) -> None:
        self._mark, self._next_plan = polled.mark, polled.next_plan
        known = None if is_full else self._next_expiry
        expiries = [moment for moment in (known, polled.next_expiry) if moment is not None]
        self._next_expiry = min(expiries, default=None)
        for key in sorted(polled.groups, key=lambda key: (key.group, key.remote or "")):
            self._want(key, rare=is_full and self._admission.waiting_in(key) > 0)

    async def _expire(self) -> None:
        began = self._tenure.now()
        count = await self._table.expire(lease_guid=self._tenure.lease_guid)
        ended = self._tenure.now()
        self._expire_not_before = ended + RARE * (ended - began)
        self._mark = None  # the next end of an `active` is known after a full look
        if count:
            self._tenure.count("tasks_finished", count, state="GONE")

    # -- rows of a group --------------------------------------------------------------------------

    def _want(self, key: GroupKey, *, rare: bool) -> None:
        """Load a group again: soon, or `rare`ly where only what nobody told of could be new."""
        loaded_at, load_s = self._loads.get(key, (-FULL_EVERY_MAX_S, 0.0))
        wait_s = FULL_EVERY_MAX_S if rare else RARE * load_s
        not_before = loaded_at + min(FULL_EVERY_MAX_S, wait_s)
        self._wanted[key] = min(not_before, self._wanted.get(key, not_before))

    async def _load(self) -> None:
        for _ in range(LOADS_A_ROUND):
            key = self._next_wanted()
            if key is None:
                return
            await self._load_one(key)
            self._on_found()

    def _next_wanted(self) -> GroupKey | None:
        if self._refills:
            key = next(iter(self._refills))
            del self._refills[key]
            return key
        if self._admission.ready_count >= RESERVE:
            return None
        now = self._tenure.now()
        return next((key for key, not_before in self._wanted.items() if not_before <= now), None)

    async def _load_one(self, key: GroupKey) -> None:
        began = self._tenure.now()
        self._wanted.pop(key, None)
        self._admission.asking(key)
        rows = await self._table.window(key, limit=WINDOW_ROWS)
        self._admission.fill(key, rows, has_more=len(rows) >= WINDOW_ROWS)
        ended = self._tenure.now()
        if rows:
            self._loads[key] = (ended, ended - began)
        else:
            self._loads.pop(key, None)

    # -- waiting ----------------------------------------------------------------------------------

    async def _rest(self) -> None:
        """Until a look or a load is due, or somebody wakes us."""
        self._woken.clear()
        wait_s = min(self._look_at(), self._load_at()) - self._tenure.now()
        try:
            async with asyncio.timeout(max(0.0, wait_s)):
                await self._woken.wait()
        except TimeoutError:
            pass

    def _load_at(self) -> float:
        if self._refills:
            return 0.0
        if self._admission.ready_count >= RESERVE:
            return math.inf
        return min(self._wanted.values(), default=math.inf)
