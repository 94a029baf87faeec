"""How far running attempts are, as their functions say."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol
from uuid import UUID

from gnomon.contracts.store.value import Value


class Progress(Value, frozen=True):
    """What a function says of its running attempt."""

    shard: int
    id: str
    guid: UUID
    attempt_id: UUID
    fraction: float  # 0 to 1
    text: str = ""


class ProgressStore(Protocol):
    """Keeps the last report of each running attempt, beside the tables of the work itself: whoever
    reports nothing pays nothing."""

    async def report(self, reports: Sequence[Progress]) -> Collection[UUID]:
        """Keep how far these attempts are, at most one of each action; the ids of those that are
        under way. A report of an attempt that is not, any more, changes nothing. `get` shows what
        was kept with the action's current attempt."""
        ...

    async def forget_reports(self, reports: Sequence[Progress]) -> None:
        """These attempts have ended: what was kept of them goes. What a crash leaves behind is
        never shown with another attempt, and is purged after a day, which no attempt outlives."""
        ...
