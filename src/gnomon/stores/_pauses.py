"""How pauses end by themselves: the same in every engine."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from gnomon.contracts.store import LOCAL, Actor, DecideResume, PausePlace
from gnomon.model.action import Action
from gnomon.model.ids import renewed_guid
from gnomon.stores._actions import resumed_action

END_PAUSE = "end_pause"  # the audit's word,
BY_WORKER = Actor(LOCAL, "worker")  # and who did it
FIRST = PausePlace(datetime(1970, 1, 1, tzinfo=UTC), "")


class PauseEnding(NamedTuple):
    """What `WorkStore.end_pauses` was asked for."""

    batch: UUID
    decide: DecideResume
    limit: int
    places: Mapping[int, PausePlace]
    silent: timedelta | None

    def place(self, shard: int) -> PausePlace:
        """Behind which to look in a shard."""
        return self.places.get(shard, FIRST)

    def resumed(self, action: Action, now: datetime) -> Action:
        """A paused action as it goes on."""
        guid = renewed_guid(self.batch, action.meta.guid)
        return resumed_action(action, guid, self.decide(action, now), now)
