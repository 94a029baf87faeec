"""After the save: saved versions leave the outbox, in order per entity, and only after an answer.

A sink is the relay (a broker, an HTTP receiver, or a function) or a stage's own `after_save`. Each
has a sender of its own, so that a slow one holds up no other; see `sender`. What nobody here can
send waits for a process that can.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from gnomon.clock import wait_set
from gnomon.contracts.env import Env
from gnomon.contracts.leased_service import Ownership
from gnomon.contracts.store.outbox import RELAY_SINK, OutboxRow, OutboxStore, SinkQueue
from gnomon.model.errors import Unavailable
from gnomon.stages.attendance import Guests
from gnomon.stages.bound_stage import BoundStage
from gnomon.stages.config import StagesConfig
from gnomon.stages.sender import Sender, Sink
from gnomon.stages.sink_ages import NOTHING, SinkAges


class RelayTarget(Protocol):
    """Where saved versions go: a broker's topic, a receiver, a function."""

    async def send(self, rows: Sequence[OutboxRow]) -> Sequence[Exception | None]:
        """Deliver them, those of one entity in order; None where it has been acknowledged."""
        ...

    async def close(self) -> None: ...


class Relay:
    """Empties the outbox of the shards that this process holds."""

    def __init__(
        self,
        outbox: OutboxStore,
        stages: Sequence[BoundStage],
        target: RelayTarget | None,
        *,
        ownership: Ownership,
        env: Env,
        config: StagesConfig,
        guests: Guests = dict,  # where its sinks are besides
        changed: Callable[[], None] = lambda: None,  # told when `is_behind` is another
    ) -> None:
        self._outbox = outbox
        self._ownership = ownership
        self._guests = guests
        self._clock = env.clock
        self._observer = env.observer
        self._poll_s = config.poll.total_seconds()
        self._wake = asyncio.Event()
        self._waiting: Sequence[SinkQueue] = ()
        self._senders: Mapping[str, Sender] = {
            sink.name: Sender(
                sink, outbox, ownership=ownership, env=env, config=config, guests=guests
            )
            for sink in _sinks(stages, target)
        }
        self._ages = SinkAges(self._senders, config=config, observer=env.observer, changed=changed)

    @property
    def is_behind(self) -> bool:
        """Whether saves wait so long that none should be made that can wait."""
        return self._ages.is_behind

    def wake(self) -> None:
        """Something may have been saved by others; who sends nothing learns of it in time."""
        if self._senders:
            self._wake.set()

    def saved(self, sink: str) -> None:
        """Something was saved here that the sink is to be told."""
        if sink in self._senders:
            self._senders[sink].wake()

    async def keep_relaying(self) -> None:
        """Relay until cancelled."""
        async with asyncio.TaskGroup() as group:
            for sink, sender in self._senders.items():
                group.create_task(sender.keep_sending(), name=f"sender-{sink}")
            group.create_task(self._keep_looking(), name="outbox-survey")

    async def _keep_looking(self) -> None:
        while True:
            self._wake.clear()
            try:
                for sender in await self._look():
                    sender.wake()
            except Unavailable as exc:
                self._observer.count("store_errors", operation="relay")
                self._observer.event("relay_failed", error=str(exc))
            await wait_set(self._wake, self._poll_s)

    async def _look(self) -> list[Sender]:
        """Learn what waits; the senders that have something due."""
        self._waiting = await self._survey()
        away = [sink for sink, sender in self._senders.items() if sender.is_away]
        self._ages.note(self._waiting, away=away)
        due = (queue.sink for queue in self._waiting if queue.due_in <= NOTHING)
        return [self._senders[sink] for sink in due if sink in self._senders]

    async def _survey(self) -> list[SinkQueue]:
        """What waits in the shards held here; and, of sinks served here, in those of others."""
        holdings = self._ownership.trusted()
        waiting = list(await self._outbox.waiting_sinks(holdings)) if holdings else []
        guests = {sink: at for sink, at in self._guests().items() if sink in self._senders}
        for sink, at in guests.items():
            there = await self._outbox.waiting_sinks(list(at.values()))
            waiting += [queue for queue in there if queue.sink == sink]
        return waiting

    # -- for those who own the time ---------------------------------------------------------------

    async def step(self) -> bool:
        """One round of every sink; True if anything left the outbox."""
        due = await self._look()
        left = await asyncio.gather(*(sender.step() for sender in due))
        if due:
            await self._look()
        return any(left)

    def next_at(self) -> datetime | None:
        """When something is due next, as of the last look."""
        times = [
            max(queue.due_in, timedelta(seconds=self._senders[queue.sink].pause_s))
            for queue in self._waiting
            if queue.sink in self._senders
        ]
        return self._clock.now() + min(times) if times else None


def _sinks(stages: Sequence[BoundStage], target: RelayTarget | None) -> list[Sink]:
    sinks = [_stage_sink(stage) for stage in stages]
    return sinks if target is None else [Sink(RELAY_SINK, target.send), *sinks]


def _stage_sink(stage: BoundStage) -> Sink:
    return Sink(stage.info.name, stage.after_save, lambda: stage.info.latest)
