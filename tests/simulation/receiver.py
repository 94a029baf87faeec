"""The world outside: executors whose effects are remembered, and the rules on deliveries."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from gnomon.contracts.executor import ASKED_TO_END, AttemptRequest
from gnomon.model.effects import ends_with_process
from gnomon.model.outcome import Cancelled, Failed, Outcome, Succeeded
from gnomon.model.spec import Effect, Http, Mock, Python, Spec
from gnomon.testing.faulty import FaultyStore
from gnomon.testing.virtual import VirtualLoop, VirtualProcess
from tests.simulation.history import History
from tests.simulation.invariants import Rules

NEEDS: dict[type[Effect], str] = {Mock: "kind mock", Http: "kind http", Python: "function "}


@dataclass(slots=True, kw_only=True)
class Delivery:
    """One attempt as the receiver saw it."""

    order: AttemptRequest
    process: VirtualProcess
    store: FaultyStore
    began_s: float
    is_open: bool = True  # the worker still waits for the answer
    answered: bool = False  # the worker got the answer
    until_s: float = 0.0  # when the receiver will be done with it
    is_cut: bool = False  # the process ended in the middle of it
    has_effect: bool = False  # the receiver did it, whether the worker knows or not
    failed_calls: int = 0  # of the process, when it began


@dataclass(slots=True)
class Receiver:
    """Shared by all workers: it is the same outside for everybody."""

    loop: VirtualLoop
    history: History
    rules: Rules
    dice: random.Random
    send_within: timedelta
    window: timedelta
    grace: timedelta
    bad: float = 0.2  # how often it fails or hangs
    is_slow: bool = False  # takes long, so that outages fall into attempts
    is_swift: bool = False  # answers at once, so that what was delayed is caught up with
    deliveries: dict[UUID, list[Delivery]] = field(default_factory=dict)  # by generation
    keys: dict[str, tuple[str, UUID, int]] = field(default_factory=dict)
    occurrence_keys: dict[tuple[str, UUID, int], str] = field(default_factory=dict)
    sealed: set[UUID] = field(default_factory=set)  # behind a barrier: nothing may come any more
    failed_calls: dict[str, int] = field(default_factory=dict)  # by process
    was_set_since: Callable[[float], bool] = lambda _: False  # the database's clock

    def executor(
        self, process: VirtualProcess, store: FaultyStore, kinds: Collection[type[Effect]]
    ) -> ReceiverExecutor:
        return ReceiverExecutor(self, process, store, kinds)

    async def receive(
        self, order: AttemptRequest, process: VirtualProcess, store: FaultyStore
    ) -> Outcome:
        delivery = Delivery(
            order=order,
            process=process,
            store=store,
            began_s=self.loop.time(),
            failed_calls=self.failed_calls.get(process.name, 0),
        )
        self._check(delivery)
        self.deliveries.setdefault(order.guid, []).append(delivery)
        outcome, takes_s = self._decide(order)
        delivery.until_s = delivery.began_s + takes_s
        if isinstance(outcome, Succeeded | Cancelled):
            # The effect happens also when the worker is gone by then.
            self.loop.call_later(takes_s, setattr, delivery, "has_effect", True)
        try:
            await asyncio.sleep(takes_s)
            delivery.answered = True
            self.rules.answered_at[order.attempt_id] = self.rules.now()
        except asyncio.CancelledError as exc:
            if exc.args == (ASKED_TO_END,):
                self._check_asked(order)
            raise
        finally:
            delivery.is_open = False
            delivery.is_cut = process.dead
        return outcome

    def _decide(self, order: AttemptRequest) -> tuple[Outcome, float]:
        dice = self.dice
        takes_s = 0.0 if dice.random() < 0.3 else dice.random() ** 3 * min(order.timeout_s, 20)
        if self.is_slow and dice.random() < 0.5:
            takes_s = min(order.timeout_s, 20) * dice.uniform(0.5, 1)
        if self.is_swift:
            takes_s = min(takes_s, 0.02)
        drawn = dice.random() / self.bad if self.bad else 1.0
        if drawn < 0.15:
            self.history.reach("hang")
            return Succeeded(), order.timeout_s + dice.random() * 30  # too late for the worker
        if drawn < 0.85:
            return Failed(error="500 refused"), takes_s
        if drawn < 0.9:
            return Failed(error="410 gone", retryable=False), takes_s
        if drawn < 0.98:
            wait = timedelta(seconds=dice.randint(1, 10))
            return Failed(error="429 slow down", retry_after=wait), takes_s
        if drawn < 1.0:
            return Cancelled(reason="enough"), takes_s
        return Succeeded(answer=None if dice.random() < 0.7 else "ok"), takes_s

    def is_in_hand(self, process: str, guid: UUID, attempt_id: UUID) -> bool:
        """Whether this process delivered the attempt and lives: it is at it, or has its result."""
        return any(
            one.order.attempt_id == attempt_id
            and one.process.name == process
            and not one.process.dead
            for one in self._of(guid)
        )

    def was_sent(self, guid: UUID, attempt_id: UUID) -> bool:
        """Whether the attempt came here."""
        return any(one.order.attempt_id == attempt_id for one in self._of(guid))

    # -- rules ------------------------------------------------------------------------------------

    def _check(self, delivery: Delivery) -> None:
        order, violate = delivery.order, self.history.violate
        begun = self.rules.attempts.get(order.attempt_id)
        self.history.note(delivery.process.name, "delivery", order.id, f"no {order.attempt_no}")
        if begun is None or begun.guid != order.guid:
            violate("sent_without_begin", order.id)
            return
        if order.attempt_id in self.rules.unconfirmed:
            violate("sent_unconfirmed", order.id)
        if delivery.process.dead:
            violate("sent_by_the_dead", order.id)
        if order.guid in self.sealed:
            violate("sent_after_barrier", order.id)
        if any(one.order.attempt_id == order.attempt_id for one in self._of(order.guid)):
            violate("sent_twice", order.id, order.attempt_no)
        sent_after_s = self.loop.time() - self.rules.began_s[order.attempt_id]
        if sent_after_s > self.send_within.total_seconds() + 0.001:
            violate("sent_late", order.id, sent_after_s)
        self._check_key(order)
        self._check_overlap(delivery, begun.spec)

    def _check_asked(self, order: AttemptRequest) -> None:
        """Whoever is asked to end was cancelled by a user who wanted that."""
        self.history.note("receiver", "asked to end", order.id)
        self.history.reach("attempt asked to end")
        if order.attempt_id not in self.rules.asked:
            self.history.violate("asked_without_cancel", order.id)

    def _check_key(self, order: AttemptRequest) -> None:
        """Same occurrence, same key; another occurrence or series, another key."""
        series = self.rules.generations[order.guid].series
        occurrence = (order.id, series, order.occurrence_no)
        known = self.keys.setdefault(order.key, occurrence)
        other = self.occurrence_keys.setdefault(occurrence, order.key)
        if known != occurrence or other != order.key:
            self.history.violate("key", order.id, order.key)

    def _check_overlap(self, delivery: Delivery, spec: Spec) -> None:
        """Two attempts at once only if the earlier one's worker was cut off meanwhile, for all of
        its reservation. Of a process that ended only what goes on elsewhere is under way."""
        for earlier in self._of(delivery.order.guid):
            is_elsewhere = earlier.is_cut and not ends_with_process(earlier.order.effect)
            is_under_way = earlier.is_open or (is_elsewhere and earlier.until_s > delivery.began_s)
            if is_under_way and self._is_reserved(earlier, spec, delivery):
                self.history.violate("overlap_too_early", delivery.order.id)
            if not earlier.is_open:
                continue
            self.history.reach("overlap")
            if not self._was_cut_off(earlier):
                self.history.violate("overlap", delivery.order.id, delivery.order.attempt_no)

    def _is_reserved(self, earlier: Delivery, spec: Spec, later: Delivery) -> bool:
        """Whether the later attempt began while the earlier one's reservation was not over. A clock
        that was set since counts no reservation."""
        if self.was_set_since(self.rules.began_s[earlier.order.attempt_id]):
            return False
        began_at, next_at = (
            self.rules.attempts[one.order.attempt_id].began_at for one in (earlier, later)
        )
        return next_at < began_at + min(spec.timeout, self.window) + self.grace

    def _was_cut_off(self, delivery: Delivery) -> bool:
        """Whether the delivery's worker was dead, frozen, stalled or refused since it began; or the
        clock was set, by which its reservation ended."""
        since_s = self.rules.began_s[delivery.order.attempt_id]
        return (
            delivery.process.dead
            or self.was_set_since(since_s)
            or delivery.process.frozen_until > since_s
            or delivery.store.stalled_until > since_s
            or self.failed_calls.get(delivery.process.name, 0) > delivery.failed_calls
        )

    def check_duplicates(self) -> None:
        """An effect that happened twice has a cause: the first one's worker could not tell."""
        for guid, deliveries in self.deliveries.items():
            for index, first in enumerate(deliveries):
                repeats = [
                    later
                    for later in deliveries[index + 1 :]
                    if later.order.occurrence_no == first.order.occurrence_no
                ]
                if not (first.has_effect and repeats):
                    continue
                self.history.reach("duplicate")
                if first.answered and not self._was_cut_off(first):
                    self.history.violate("unexplained_duplicate", first.order.id, guid)

    def _of(self, guid: UUID) -> list[Delivery]:
        return self.deliveries.get(guid, [])


class ReceiverExecutor:
    """The executor of one worker process: hands everything to the receiver."""

    def __init__(
        self,
        receiver: Receiver,
        process: VirtualProcess,
        store: FaultyStore,
        kinds: Collection[type[Effect]],
    ) -> None:
        self._receiver = receiver
        self._process = process
        self._store = store
        self._kinds = kinds

    def serves(self, need: str) -> bool:
        return any(need.startswith(NEEDS[kind]) for kind in self._kinds)

    async def execute(self, order: AttemptRequest) -> Outcome:
        return await self._receiver.receive(order, self._process, self._store)

    async def close(self) -> None: ...
