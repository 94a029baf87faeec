"""Ends pauses that have an end: what is paused until now goes on, as if somebody had resumed it.

The owner of a shard looks about twice a second, apart from the pump: however many pauses end at one
moment, they are ended in parts, with a rest after each, and what is due meanwhile begins in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta

from gnomon.boundary import Round
from gnomon.contracts.env import Env
from gnomon.contracts.store import HeldShard, PauseEnds, PausePlace, WorkStore
from gnomon.model.pause import decide_end
from gnomon.worker.leases import WorkerLeases
from gnomon.worker.unserved import NOBODY

LOOK_EVERY_S = 0.5
PART = 500  # actions of one transaction
REST_MIN_S = 0.01  # between two parts; or as long as the one before took
SELDOM = 3  # a look at nothing is followed by a rest of so many times what it took,
REST_MAX_S = 5.0  # unless it was the process that stood still


class PauseEnder:
    """Ends the pauses in the held shards, and as a helper in those that nobody looks after."""

    def __init__(
        self,
        store: WorkStore,
        leases: WorkerLeases,
        *,
        ended: Callable[[Collection[int]], None],
        env: Env,
    ) -> None:
        self._store = store
        self._leases = leases
        self._ended = ended  # told of shards that have something to be moved
        self._clock, self._entropy, self._observer = env.clock, env.entropy, env.observer
        self._places: dict[int, PausePlace] = {}  # of shards in which there is more to end

    async def keep_ending(self) -> None:
        """Look until cancelled; an unavailable store is waited for."""
        while True:
            started = self._clock.monotonic()
            with Round(self._observer, "pauses"):
                await self._look()
            took_s = self._clock.monotonic() - started
            if self._places:
                rest_s = max(took_s, REST_MIN_S)
            else:
                usual_s = LOOK_EVERY_S * (0.5 + self._entropy.fraction())
                rest_s = max(usual_s, took_s * SELDOM)
            await asyncio.sleep(min(rest_s, REST_MAX_S))

    async def _look(self) -> None:
        """Where there was more, go on behind it: rows that are dead by now, or that somebody holds,
        are not walked over again until all have had their turn."""
        places, self._places = self._places, {}
        holdings = self._leases.trusted()
        if not holdings:
            return
        ends = await self._store.end_pauses(
            holdings,
            batch=self._entropy.guid(),
            decide=decide_end,
            limit=PART,
            places=places,
        )
        self._places = dict(ends.reached)
        self._tell(ends)

    async def help(self, shards: Sequence[int], *, silent: timedelta) -> None:
        """The same in shards whose owner is silent: a part, and the next time another."""
        ends = await self._store.end_pauses(
            [HeldShard(shard=shard, lease_guid=NOBODY) for shard in shards],
            batch=self._entropy.guid(),
            decide=decide_end,
            limit=PART,
            silent=silent,
        )
        self._tell(ends)

    def _tell(self, ends: PauseEnds) -> None:
        if ends.actions:
            self._observer.count("pauses_ended", len(ends.actions))
            self._ended({action.meta.shard for action in ends.actions})
