"""One stage's work in one process."""

from __future__ import annotations

from collections import deque
from datetime import datetime

from gnomon.contracts.store.entities import Claim, StageLane
from gnomon.stages.capacity import Capacity
from gnomon.stages.served import Served


class Line:
    """One stage's work in this process: what was claimed ahead, and what is on its way."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.capacity = Capacity(served.info)
        self.claimed: deque[Claim] = deque()
        self.next_at: dict[StageLane, datetime] = {}  # when a lane has something, as far as known
        # Lanes whose due rows are of entities that others work on: looking again before one of
        # them is done, or something new is there, would find the same.
        self.blocked: set[StageLane] = set()

    def __repr__(self) -> str:
        return f"Line({self.served.info.name}, {len(self.claimed)} claimed)"

    @property
    def is_waiting(self) -> bool:
        """Whether it has, or may soon have, something to do."""
        return bool(self.claimed or self.next_at)

    def note(self, lane: StageLane, at: datetime) -> None:
        """Something will be ready there by then."""
        self.blocked.discard(lane)
        known = self.next_at.get(lane)
        if known is None or at < known:
            self.next_at[lane] = at

    def open_times(self) -> list[datetime]:
        """When the lanes have something that can be claimed."""
        return [at for lane, at in self.next_at.items() if lane not in self.blocked]
