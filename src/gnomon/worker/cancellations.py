"""Hears which of this worker's attempts were asked to end, because their actions were cancelled.

Whoever cancels may be on another machine: the ask is in the database, beside the attempt. A worker
looks for it only while it has something in hand, and changes nothing: the ask is over when the
attempt's end is recorded, and is heard again until then.
"""

from __future__ import annotations

import asyncio
from datetime import datetime

from gnomon.boundary import Round
from gnomon.contracts.observer import Observer
from gnomon.contracts.store import WorkStore
from gnomon.worker.slots import Slots

LOOK_EVERY_S = 0.5


class Cancellations:
    """Asks for the attempts in the slots of one worker."""

    def __init__(self, store: WorkStore, slots: Slots, owner: str, observer: Observer) -> None:
        self._store = store
        self._slots = slots
        self._owner = owner
        self._observer = observer

    async def keep_looking(self) -> None:
        """Until cancelled; also while the worker drains."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            with Round(self._observer, "cancellations"):
                await self.look()

    async def look(self) -> None:
        """Once."""
        shards, since = set[int](), None
        for begun in self._slots.attempts():
            shards.add(begun.shard)
            since = _earlier(since, begun.began_at)
        if since is None:
            return
        asked = await self._store.list_cancelling(sorted(shards), owner=self._owner, since=since)
        if asked:
            self._slots.end(asked)


def _earlier(known: datetime | None, other: datetime) -> datetime:
    return other if known is None else min(known, other)
