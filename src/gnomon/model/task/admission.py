"""Who may start next: the rules of `max`, `live` and `count` over the due rows of one table.

A row may start while at most `max` sessions of its group are open beside it. Inside a group the
order is the highest `max` first, then the id. Groups take turns, so that none starves where the
cap over all groups (`run`) is reached. A session that may be reused takes the next row that fits.

Rows that are alike in `max`, `live` and `count` wait in one lane: what holds for the first of them
holds for all, so that a choice looks at lanes and never at every row.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from gnomon.model.task.row import DueTask, GroupKey, Task

TURN_S = 1.0  # a reused session keeps its slot at least this long while other groups wait for one


class Slot(msgspec.Struct):
    """A session as the rules see it: it counts in its group from its opening to its end."""

    key: GroupKey
    opened_at: float
    first_max: int = 0  # of the first task that it performed
    done: int = 0  # tasks that it has performed


class _Kind(NamedTuple):
    """What the rows of a lane share."""

    allowed_beside: int
    max: int
    done_max: int  # the column `count`
    live_s: float

    def fits(self, slot: Slot, now: float) -> bool:
        """Whether a session that has done so much, so long, may perform such a row, too."""
        is_few, is_young = self.done_max > slot.done, now - slot.opened_at < self.live_s
        return is_few and is_young if self.done_max and self.live_s else is_few or is_young


class _Group:
    """The due rows of a group that are known, and the sessions that count against them."""

    def __init__(self) -> None:
        self.lanes: dict[_Kind, deque[int]] = {}  # the highest `max` first
        self.waiting = 0
        self.slots = 0
        self.others = 0  # sessions of a former owner that are still at it
        self.busy: set[int] = set()
        self.touched: set[int] | None = None  # taken since the rows now being loaded were asked for
        self.has_more = False  # rows beyond those that are known

    @property
    def running(self) -> int:
        return self.slots + self.others

    @property
    def is_idle(self) -> bool:
        return not (self.waiting or self.running or self.busy or self.touched is not None)

    def fill(self, rows: Iterable[DueTask]) -> None:
        """Put these rows in place of those that waited, but for rows that were started meanwhile.
        They come ordered by id where they are alike."""
        taken = self.busy | (self.touched or set())
        lanes: dict[_Kind, deque[int]] = {}
        for row in rows:
            if row.id not in taken:
                kind = _Kind(row.allowed_beside, row.max, row.count, row.live_s)
                lanes.setdefault(kind, deque()).append(row.id)
        self.lanes = {kind: lanes[kind] for kind in sorted(lanes, reverse=True)}
        self.waiting = sum(map(len, lanes.values()))

    def first(self, kinds: Iterable[_Kind]) -> _Kind | None:
        """The lane whose first row is next: of those with the highest `max`, the lowest id."""
        first: _Kind | None = None
        for kind in kinds:
            if first is not None and kind.allowed_beside < first.allowed_beside:
                break
            if first is None or self.lanes[kind][0] < self.lanes[first][0]:
                first = kind
        return first

    def next_start(self) -> _Kind | None:
        """The lane of the row that may start now, on a session of its own."""
        kind = self.first(self.lanes)
        return None if kind is None or self.running > kind.allowed_beside else kind

    def take(self, kind: _Kind) -> DueTask:
        lane = self.lanes[kind]
        task_id = lane.popleft()
        if not lane:
            del self.lanes[kind]
        self.waiting -= 1
        self.busy.add(task_id)
        if self.touched is not None:
            self.touched.add(task_id)
        return DueTask(id=task_id, max=kind.max, count=kind.done_max, live_s=kind.live_s)

    def drop_paused(self) -> None:
        """Rows with a pause were planned for later: they come due again one by one."""
        for kind in [kind for kind in self.lanes if kind.max < 0]:
            self.waiting -= len(self.lanes.pop(kind))


class Admission:
    """The known due rows of a table by group, and the slots that are in use."""

    def __init__(self, run: int) -> None:
        self.run = run  # so many sessions at once, over all groups
        self.slot_count = 0
        self._groups: dict[GroupKey, _Group] = {}
        self._turns: dict[GroupKey, None] = {}  # groups that may have something to start, in turn

    # -- what waits -------------------------------------------------------------------------------

    @property
    def waiting_count(self) -> int:
        """Due rows that are known."""
        return sum(group.waiting for group in self._groups.values())

    def waiting_in(self, key: GroupKey) -> int:
        """Due rows of a group that are known."""
        group = self._groups.get(key)
        return 0 if group is None else group.waiting

    def has_more(self, key: GroupKey) -> bool:
        """Whether a group may have due rows beyond those that are known."""
        group = self._groups.get(key)
        return group is not None and group.has_more

    def asking(self, key: GroupKey) -> None:
        """The rows of a group are being read: what is taken meanwhile is not to come back."""
        self._group(key).touched = set()

    def fill(self, key: GroupKey, rows: Iterable[DueTask], *, has_more: bool) -> None:
        """The first due rows of a group were read: they replace what was known of it. `has_more`:
        there are others behind them."""
        group = self._group(key)
        group.fill(rows)
        group.touched = None
        group.has_more = has_more
        self._note(key)

    def set_others(self, others: Mapping[GroupKey, int]) -> None:
        """What sessions of a former owner still perform; they count against `max`."""
        for key, group in list(self._groups.items()):
            if group.others and key not in others:
                group.others = 0
                self._note(key)
        for key, count in others.items():
            self._group(key).others = count
            self._note(key)

    def clear(self) -> None:
        """Forget what waits; what is in use stays."""
        for key, group in list(self._groups.items()):
            group.fill(())
            group.touched, group.has_more = None, False
            self._note(key)

    # -- who is next ------------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        return self.slot_count >= self.run

    @property
    def ready_count(self) -> int:
        """Groups that may have something to start."""
        return len(self._turns)

    def starts(self, now: float) -> Iterator[tuple[Slot, DueTask]]:
        """Every start that is allowed now, groups in turn. The slots are in use from here on."""
        while not self.is_full and self._turns:
            key = next(iter(self._turns))
            del self._turns[key]
            task = self._next_start(self._groups[key])
            if task is None:
                continue
            self._groups[key].slots += 1
            self.slot_count += 1
            self._turns[key] = None  # again, after the others
            yield Slot(key=key, opened_at=now, first_max=task.max), task

    def another(self, slot: Slot, now: float) -> DueTask | None:
        """A new session's first row was not to be had: the next one, on the same slot."""
        group = self._groups[slot.key]
        group.slots -= 1
        task = self._next_start(group)
        group.slots += 1
        if task is not None:
            slot.first_max, slot.opened_at = task.max, now
        return task

    def reuse(self, slot: Slot, ended: Task, now: float) -> DueTask | None:
        """What the session of a task that ends performs next; None: its session ends with it."""
        if ended.max < 0 or not (ended.count or ended.live_s):
            return None
        if now - slot.opened_at >= TURN_S and self.is_full and self._others_wait(slot.key):
            return None
        group = self._groups[slot.key]
        beside = group.running - 1
        fitting = (
            kind
            for kind in group.lanes
            if kind.max >= slot.first_max and kind.allowed_beside >= beside and kind.fits(slot, now)
        )
        kind = group.first(fitting)
        return None if kind is None else group.take(kind)

    def paused(self, key: GroupKey) -> None:
        """A task with a pause has ended: those like it wait for their new time."""
        self._groups[key].drop_paused()

    def release(self, key: GroupKey, task_id: int) -> None:
        """A row that was started is nobody's any more."""
        group = self._groups.get(key)
        if group is not None:
            group.busy.discard(task_id)
            self._note(key)

    def end(self, slot: Slot) -> None:
        """The session is over."""
        self._groups[slot.key].slots -= 1
        self.slot_count -= 1
        self._note(slot.key)

    def _next_start(self, group: _Group) -> DueTask | None:
        kind = group.next_start()
        return None if kind is None else group.take(kind)

    def _others_wait(self, own: GroupKey) -> bool:
        """Whether another group could start something if it had a slot."""
        blocked = []
        try:
            for key in self._turns:
                if key != own:
                    if self._groups[key].next_start() is not None:
                        return True
                    blocked.append(key)
        finally:
            for key in blocked:  # a change in the group brings it back
                del self._turns[key]
        return False

    def _group(self, key: GroupKey) -> _Group:
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group()
        return group

    def _note(self, key: GroupKey) -> None:
        """Something changed in a group: it may have something to start, or be over."""
        group = self._groups[key]
        if group.lanes:
            self._turns[key] = None
        elif group.is_idle:
            del self._groups[key]
            self._turns.pop(key, None)
