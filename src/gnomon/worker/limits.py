"""Keeps this process within the installation's limits.

Why no more than `parallel` attempts are under way at once, whatever the number of processes:

* What processes may use is written down in the store, by one transaction at a time for each limit,
  and its sum never exceeds the limit. A process uses no more than it was told last; what it says
  it holds when it asks is what it may use until it hears the answer; and it is counted with all
  that it has under way, also while it shuts down.
* What was told is trusted for as long as a lease is. A process that cannot ask begins nothing more
  some seconds before the others may have what it had.

When a limit is new or lowered, what is under way is not cut off: it counts, and nothing more begins
until enough has ended. When a process dies, so do its attempts, and its part is used by nobody for
the time of a lease, or until it is buried (see `undertaker`). Only a process that is silent for
longer without being dead (frozen, or cut off from the database) may still be at attempts that are
not counted any more, until they time out.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from uuid import UUID

from gnomon.clock import wait_set
from gnomon.contracts.env import Env
from gnomon.contracts.store import HeartbeatResult, LimitRequest, LimitStore
from gnomon.model.errors import Unavailable
from gnomon.model.limits import Limit, LimitKey, LimitKind
from gnomon.worker.config import WorkerConfig
from gnomon.worker.gates import Gate, QueueGate, TargetGate, TargetWaiters
from gnomon.worker.slots import Slots

ASK_S = 0.5
ASK_DENIED_S = 0.2  # while there is less than is wanted
ASK_MIN_S = 0.05  # between two questions, however urgent
LEAVE_S = 2.0


class LimitGates:
    """The gates of this process, and the questions to the store that keep them open."""

    def __init__(
        self,
        store: LimitStore,
        *,
        worker: UUID,
        config: WorkerConfig,
        env: Env,
        queues: dict[str, QueueGate],
        targets: dict[str, TargetGate],
    ) -> None:
        self._store = store
        self._worker = worker
        self._config = config
        self._clock = env.clock
        self._observer = env.observer
        self._queues = queues  # shared with those who ask them
        self._targets = targets
        self._waiting_room = TargetWaiters(config.concurrency_of)
        self._version: int | None = None  # of the limits that are known; None: nothing is
        self._is_stale = False
        self._part = 0.0
        self._wake = asyncio.Event()
        self._asked_at = -math.inf

    def __repr__(self) -> str:
        return f"Limits({', '.join(str(gate.limit.key) for gate in self._gates())})"

    def note(self, pulse: HeartbeatResult, held: int) -> None:
        """What a heartbeat said: whether limits were changed, and this process's part of rates."""
        part = min(1.0, held / pulse.shards_held) if pulse.shards_held else 0.0
        if part != self._part:
            self._part = part
            for gate in self._gates():
                gate.change(gate.limit, part)
        if self._version is None and pulse.limits_version == 0:
            self._version = 0  # there never was a limit
        elif pulse.limits_version != self._version:
            self._is_stale = True
            self._wake.set()

    @property
    def are_known(self) -> bool:
        """Nothing may begin before."""
        return self._version is not None

    async def _read(self, slots: Slots) -> None:
        """Learn which limits there are."""
        table = await self._store.list()
        limits = {
            use.limit.key: use.limit
            for use in table.uses
            if use.limit.kind is not LimitKind.STAGE  # not about attempts: see stages/limiting
        }
        for gate in list(self._gates()):
            if gate.limit.key not in limits:
                self._drop(gate)
        for key, limit in limits.items():
            gate = self._find(key) or self._add(limit, slots)
            gate.change(limit, self._part)
        self._version, self._is_stale = table.version, False

    async def keep_sharing(self, slots: Slots, changed: Callable[[], None]) -> None:
        """Ask the store for this process's part, as often as needed, until cancelled; `changed` is
        told after every answer."""
        while True:
            await self._rest()
            try:
                if self._is_stale:
                    await self._read(slots)
                await self._share(slots)
            except Unavailable as exc:
                self._observer.count("store_errors", operation="share_limits")
                self._observer.event("share_failed", error=str(exc))
                await asyncio.sleep(ASK_DENIED_S)
            self._show()
            changed()

    async def leave(self) -> None:
        """Give everything back, so that the others need not wait for the silence. Nothing is under
        way any more, and nobody shares."""
        nothing = LimitRequest(held=0, wanted=0)
        claims = {gate.limit.key: nothing for gate in self._gates() if gate.is_noted}
        with suppress(Unavailable, TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                if claims:
                    await self._store.share(self._worker, claims, alive_for=self._config.lease)

    # -- asking -----------------------------------------------------------------------------------

    async def _rest(self) -> None:
        """Until the next question: when something hurries, soon; without limits, for ever."""
        gates = list(self._gates())
        pause_s = ASK_DENIED_S if any(gate.is_denied for gate in gates) else ASK_S
        await wait_set(self._wake, pause_s if gates else None)
        too_soon_s = self._asked_at + ASK_MIN_S - self._clock.monotonic()
        if too_soon_s > 0:
            await asyncio.sleep(too_soon_s)
        self._wake.clear()

    async def _share(self, slots: Slots) -> None:
        self._asked_at = started = self._clock.monotonic()
        claims = dict(self._claims(slots))
        if not claims:
            return
        answer = await self._store.share(self._worker, claims, alive_for=self._config.lease)
        trusted_until = started + (self._config.lease - self._config.step_down).total_seconds()
        for key, allowed in answer.items():
            gate = self._find(key)
            if gate is not None:
                gate.tell(allowed, claims[key], trusted_until)
        for target in self._targets.values():
            target.admit()

    def _claims(self, slots: Slots) -> Iterator[tuple[LimitKey, LimitRequest]]:
        if self._targets:
            performing = {begun.attempt_id for begun in slots.performing()}
            for target in self._targets.values():
                target.forget_elders(performing)
        found: list[tuple[Gate, LimitRequest | None]] = [
            (gate, gate.claim(self._config.concurrency_of(name)))
            for name, gate in self._queues.items()
        ]
        found += [(gate, gate.claim()) for gate in self._targets.values()]
        yield from ((gate.limit.key, claim) for gate, claim in found if claim is not None)

    def _show(self) -> None:
        for gate in [*self._queues.values(), *self._targets.values()]:
            granted = 0 if gate.limit.parallel is None else gate.allowed
            self._gauge(gate.limit.key, granted, gate.waiting)

    def _gauge(self, key: LimitKey, granted: int, waiting: int) -> None:
        kind, name = str(key.kind), key.name
        self._observer.gauge("limit_granted", granted, kind=kind, name=name)
        self._observer.gauge("limit_waiting", waiting, kind=kind, name=name)

    # -- gates ------------------------------------------------------------------------------------

    def _gates(self) -> Iterator[Gate]:
        yield from self._queues.values()
        yield from self._targets.values()

    def _find(self, key: LimitKey) -> Gate | None:
        gates: Mapping[str, Gate] = self._queues if key.kind is LimitKind.QUEUE else self._targets
        return gates.get(key.name)

    def _add(self, limit: Limit, slots: Slots) -> Gate:
        """Closed until the store has said how much of it is for this process."""
        if limit.kind is LimitKind.QUEUE:
            in_use = partial(slots.in_use, limit.name)
            queue = QueueGate(limit, self._clock, self._wake.set, in_use)
            self._queues[limit.name] = queue
            return queue
        target = TargetGate(limit, self._clock, self._wake.set, self._waiting_room)
        target.find_elders(
            [
                begun.attempt_id
                for begun in slots.performing()
                if getattr(begun.spec.action, "target", None) == limit.name
            ]
        )
        self._targets[limit.name] = target
        return target

    def _drop(self, gate: Gate) -> None:
        """Whoever waits may go on."""
        key = gate.limit.key
        if isinstance(gate, TargetGate):
            gate.open()
            del self._targets[key.name]
        else:
            del self._queues[key.name]
        self._gauge(key, 0, 0)
