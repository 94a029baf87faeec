"""The limits of queues and targets in a worker: one gate for each, and what the store is told."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from uuid import UUID

from gnomon.contracts.env import Env
from gnomon.contracts.store import HeartbeatResult, LimitRequest, LimitStore, LimitTable
from gnomon.limiter import Limiter
from gnomon.model.limits import Limit, LimitKey, LimitKind
from gnomon.worker.config import WorkerConfig
from gnomon.worker.gates import Gate, QueueGate, TargetGate, TargetWaiters
from gnomon.worker.slots import Slots


class AttemptLimits:
    """The gates of a worker: those of queues and of targets, as long as they have a limit."""

    def __init__(
        self,
        store: LimitStore,
        *,
        worker: UUID,
        slots: Slots,
        config: WorkerConfig,
        env: Env,
        queues: dict[str, QueueGate],
        targets: dict[str, TargetGate],
        changed: Callable[[], None],
    ) -> None:
        self._slots = slots
        self._config = config
        self._clock = env.clock
        self._observer = env.observer
        self._queues = queues  # shared with those who ask them
        self._targets = targets
        self._waiters = TargetWaiters(config.concurrency_of)
        self._version: int | None = None  # of the limits that are known; None: nothing is
        self._part = 0.0
        self._shards_held = 0  # by all processes, when it was said last
        self._requests: dict[LimitKey, LimitRequest] = {}  # the last ones
        self._changed = changed
        self.limiter = Limiter(
            store,
            self,
            worker=worker,
            alive_for=config.lease,
            trust_for=config.lease - config.step_down,
            env=env,
        )

    def note_heartbeat(self, heartbeat: HeartbeatResult, held: int) -> None:
        """What a heartbeat said: whether limits were changed, and this process's part of rates."""
        self._shards_held = shards_held = heartbeat.shards_held
        self._change_part(min(1.0, held / shards_held) if shards_held else 0.0)
        if self._version is None and heartbeat.limits_version == 0:
            self._version = 0  # there never was a limit
        elif heartbeat.limits_version != self._version:
            self.limiter.read_soon()

    def note_given_back(self, held: int) -> None:
        """So many shards are left. The part of the others is their next owners' from now on, not
        from the next heartbeat on: until then both would use it."""
        if self._shards_held:
            self._change_part(min(self._part, held / self._shards_held))

    def _change_part(self, part: float) -> None:
        if part != self._part:
            self._part = part
            for gate in self._gates():
                gate.change(gate.limit, part)

    @property
    def are_known(self) -> bool:
        """Nothing may begin before."""
        return self._version is not None

    # -- what the limiter asks --------------------------------------------------------------------

    @property
    def is_denied(self) -> bool:
        """Whether some gate was told less of its limit than it wants."""
        return any(gate.is_denied for gate in self._gates())

    def limit_keys(self) -> Collection[LimitKey]:
        return [gate.limit.key for gate in self._gates()]

    def set_limits(self, table: LimitTable) -> None:
        limits = {
            use.limit.key: use.limit
            for use in table.uses
            if use.limit.kind is not LimitKind.STAGE  # those are asked for by the stages
        }
        for gate in list(self._gates()):
            if gate.limit.key not in limits:
                self._drop(gate)
        for key, limit in limits.items():
            gate = self._find(key) or self._add(limit)
            gate.change(limit, self._part)
        self._version = table.version

    def requests(self) -> dict[LimitKey, LimitRequest]:
        if self._targets:
            performing = {begun.attempt_id for begun in self._slots.performing()}
            for target in self._targets.values():
                target.forget_elders(performing)
        requests = {
            gate.limit.key: gate.claim(self._config.concurrency_of(name))
            for name, gate in self._queues.items()
        }
        requests |= {gate.limit.key: gate.claim() for gate in self._targets.values()}
        self._requests = {key: told for key, told in requests.items() if told is not None}
        return self._requests

    def grant(self, answer: Mapping[LimitKey, int], trusted_until: float) -> None:
        for key, allowed in answer.items():
            gate = self._find(key)
            if gate is not None:
                gate.tell(allowed, self._requests[key], trusted_until)
        for target in self._targets.values():
            target.admit()

    def end_round(self) -> None:
        for gate in self._gates():
            granted = 0 if gate.limit.parallel is None else gate.allowed
            self._show(gate.limit.key, granted, gate.waiting)
        self._changed()

    # -- gates ------------------------------------------------------------------------------------

    def _show(self, key: LimitKey, granted: int, waiting: int) -> None:
        kind, name = str(key.kind), key.name
        self._observer.gauge("limit_granted", granted, kind=kind, name=name)
        self._observer.gauge("limit_waiting", waiting, kind=kind, name=name)

    def _gates(self) -> Iterator[Gate]:
        yield from self._queues.values()
        yield from self._targets.values()

    def _find(self, key: LimitKey) -> Gate | None:
        gates: Mapping[str, Gate] = self._queues if key.kind is LimitKind.QUEUE else self._targets
        return gates.get(key.name)

    def _add(self, limit: Limit) -> Gate:
        """Closed until the store has said how much of it is for this process."""
        if limit.kind is LimitKind.QUEUE:
            in_use = partial(self._slots.in_use, limit.name)
            queue = QueueGate(limit, self._clock, self.limiter.wake, in_use)
            self._queues[limit.name] = queue
            return queue
        target = TargetGate(limit, self._clock, self.limiter.wake, self._waiters)
        target.find_elders(
            [
                begun.attempt_id
                for begun in self._slots.performing()
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
        self._show(key, 0, 0)
