"""One limit inside one process: what it was told by the store, and its part of the rate.

A queue's gate is asked before attempts are begun: what may not begin is not begun. A target's gate
stands before the executor, for only then is it known where an attempt goes: those who find it
closed wait a moment, few at a time, or are handed back for later, so that the other targets of
their queue get their slots.
"""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Collection
from datetime import timedelta
from uuid import UUID

from gnomon.contracts.clock import Clock
from gnomon.contracts.store import LimitRequest
from gnomon.model.limits import PARALLEL_MAX, Limit, rate_bucket, resize_bucket
from gnomon.model.token_bucket import TokenBucket

UNLIMITED = PARALLEL_MAX
BATCH_S = 0.02  # of a rate is waited for, so that many attempts share a begin
PAUSE_MIN_S = 1.0  # who is handed back comes again after this
PAUSE_MAX_S = 600.0
FEED_MIN = 20.0  # a second come back at most, of those handed back, unless the target is quicker
EXPECTED_S = 1.5  # somebody who comes back soon keeps the process's place for so long


class Gate(ABC):
    """What queues and targets have in common."""

    def __init__(self, limit: Limit, clock: Clock, hurry: Callable[[], None]) -> None:
        self.limit = limit
        self._clock = clock
        self._hurry = hurry  # asks the store soon
        self._allowed = 0
        self._trusted_until = -math.inf
        self._counted = 0  # what the store counts for this process
        self._bucket: TokenBucket | None = None
        self._peak = 0  # of the use, since the last claim
        self.is_denied = False  # it was told less than it wanted
        self.is_noted = False  # the store has a row of it

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.limit.key}, {self.in_use} of {self.allowed})"

    @property
    @abstractmethod
    def in_use(self) -> int:
        """Attempts that count."""

    @property
    @abstractmethod
    def waiting(self) -> int:
        """Attempts that wait for this limit, as far as is known."""

    @property
    def allowed(self) -> int:
        """So many attempts may be under way; none when the store was silent for too long."""
        if self.limit.parallel is None:
            return UNLIMITED
        return self._allowed if self._clock.monotonic() < self._trusted_until else 0

    def change(self, limit: Limit, part: float) -> None:
        """The limit is now this one, and this process's part of its rate this."""
        self.limit = limit
        if limit.parallel is None:
            self._counted, self.is_denied, self.is_noted = 0, False, False
        if limit.rate is None:
            self._bucket = None
            return
        now = self._clock.monotonic()
        if self._bucket is None:
            self._bucket = rate_bucket(limit, part, now)
        else:
            resize_bucket(self._bucket, limit, part, now)

    def tell(self, allowed: int, claim: LimitRequest, trusted_until: float) -> None:
        """The store's answer to a claim."""
        self._allowed = allowed
        self._trusted_until = trusted_until
        self._counted = max(allowed, claim.held)
        self.is_denied = allowed < min(claim.wanted, self.limit.parallel or 0)
        self.is_noted = bool(self._counted or claim.wanted)
        self._note_end()

    def _claim(self, wanted: int) -> LimitRequest | None:
        """What to tell the store; None if there is nothing to say."""
        if self.limit.parallel is None:
            return None
        in_use = self.in_use
        claim = LimitRequest(held=max(in_use, self.allowed), wanted=max(in_use, wanted, self._peak))
        self._peak = in_use
        return claim if claim.held or claim.wanted or self.is_noted else None

    def _note_use(self, in_use: int) -> None:
        self._peak = max(self._peak, in_use)

    def _note_end(self) -> None:
        """What others may wait for is given back at once, not with the next question."""
        if self._counted > max(self.in_use, self._allowed):
            self._hurry()

    def _want_more(self) -> None:
        """Ask soon, unless the store has just refused it or has no more."""
        most = self.limit.parallel
        if most is not None and not self.is_denied and self.in_use >= self.allowed < most:
            self._hurry()


class QueueGate(Gate):
    """Before a queue: how many more may be begun."""

    def __init__(
        self, limit: Limit, clock: Clock, hurry: Callable[[], None], in_use: Callable[[], int]
    ) -> None:
        super().__init__(limit, clock, hurry)
        self._in_use = in_use
        self.is_starving = False  # something is due that may not begin, since the last claim
        self._was_starving = False  # the same, before that

    @property
    def in_use(self) -> int:
        return self._in_use()

    @property
    def waiting(self) -> int:
        return int(self._was_starving)

    def room(self, promised: int) -> int:
        """How many more may be begun; so many are being begun."""
        room = self.allowed - self.in_use
        if self._bucket is not None:
            room = min(room, self._bucket.count(self._clock.monotonic()) - promised)
        return max(0, room)

    def starve(self) -> None:
        """Something is due, and nothing but this limit holds it back."""
        if not self.is_starving:
            self.is_starving = True
            self._want_more()

    def took(self) -> None:
        """An attempt was begun."""
        self._note_use(self.in_use)
        if self._bucket is not None:
            self._bucket.spend(1, self._clock.monotonic())

    def ended(self) -> None:
        """An attempt has ended."""
        self._note_end()

    def claim(self, concurrency: int) -> LimitRequest | None:
        """A starving queue wants all its slots: nobody knows how much is due."""
        self._was_starving, self.is_starving = self.is_starving, False
        return self._claim(concurrency if self._was_starving else 0)

    def reopens_s(self) -> float:
        """How long until the rate lets the next batch begin."""
        if self._bucket is None or self.in_use >= self.allowed:
            return math.inf
        batch = max(1.0, (self.limit.rate or 0.0) * BATCH_S)
        return self._bucket.wait_s(self._clock.monotonic(), batch)


class TargetWaiters:
    """Who waits before targets occupies a slot of his queue: at most half of them."""

    def __init__(self, concurrency_of: Callable[[str], int]) -> None:
        self._concurrency_of = concurrency_of
        self._counts: Counter[str] = Counter()

    def has_place(self, queue: str) -> bool:
        return self._counts[queue] < self._concurrency_of(queue) // 2

    def come(self, queue: str) -> None:
        self._counts[queue] += 1

    def go(self, queue: str) -> None:
        self._counts[queue] -= 1
        if not self._counts[queue]:
            del self._counts[queue]  # users name queues: nothing is kept of those not in use


class TargetGate(Gate):
    """Before a target: who may call its executor now."""

    def __init__(
        self, limit: Limit, clock: Clock, hurry: Callable[[], None], waiting_room: TargetWaiters
    ) -> None:
        super().__init__(limit, clock, hurry)
        self._room = waiting_room
        self._inside = 0
        self._elders: frozenset[UUID] = frozenset()  # attempts that were there before the gate
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._expected_until = -math.inf
        self._back_at = -math.inf  # when the last one that was handed back comes again
        self._entered = 0
        self._pace = 0.0
        self._paced_at = clock.monotonic()

    @property
    def in_use(self) -> int:
        return self._inside + len(self._elders)

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    async def enter(self, queue: str, patience_s: float) -> timedelta | None:
        """Wait for one's turn; None when it has come, then `leave` must follow. Else: how long to
        stay away."""
        if not self._waiters and self._take():
            return None
        if patience_s <= 0 or not self._room.has_place(queue):
            return self._pause()
        self._room.come(queue)
        try:
            is_in = await self._wait(patience_s)
        finally:
            self._room.go(queue)
        return None if is_in else self._pause()

    async def _wait(self, patience_s: float) -> bool:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(turn)
        self._note_use(self.in_use + len(self._waiters))
        self._want_more()
        self._set_timer()
        try:
            await asyncio.wait([turn], timeout=patience_s)
        except asyncio.CancelledError:
            if turn.done():
                self.leave()
            raise
        finally:
            if not turn.done():
                self._waiters.remove(turn)
        return turn.done()

    def leave(self) -> None:
        """The executor has answered."""
        self._inside -= 1
        self.admit()
        self._note_end()

    def admit(self) -> None:
        """Let in whoever may come in by now."""
        while self._waiters and self._take():
            self._waiters.popleft().set_result(None)
        self._set_timer()

    def forget_elders(self, performing: Collection[UUID]) -> None:
        """Of those that were there before the gate, these are still there."""
        if self._elders:
            self._elders = self._elders.intersection(performing)

    def find_elders(self, performing: Collection[UUID]) -> None:
        """The gate is new: these are past it already."""
        self._elders = frozenset(performing)

    def claim(self) -> LimitRequest | None:
        """What to tell the store."""
        is_expecting = not self._waiters and self._clock.monotonic() < self._expected_until
        return self._claim(self.in_use + len(self._waiters) + is_expecting)

    def open(self) -> None:
        """There is no limit any more: whoever waits may go on."""
        self.change(Limit(kind=self.limit.kind, name=self.limit.name), 0.0)
        self.admit()

    def _take(self) -> bool:
        now = self._clock.monotonic()
        if self.in_use >= self.allowed or (self._bucket and not self._bucket.count(now)):
            return False
        if self._bucket is not None:
            self._bucket.spend(1, now)
        self._inside += 1
        self._entered += 1
        self._note_use(self.in_use)
        return True

    def _set_timer(self) -> None:
        """Wake up for the next token, if that is what the first in the row waits for."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiters and self._bucket is not None and self.in_use < self.allowed:
            wait_s = self._bucket.wait_s(self._clock.monotonic())
            if math.isfinite(wait_s):
                self._timer = asyncio.get_running_loop().call_later(wait_s, self.admit)

    def _pause(self) -> timedelta:
        """Come back when it is your turn by the present pace: all at once would be of no use."""
        now = self._clock.monotonic()
        elapsed_s = now - self._paced_at
        if elapsed_s >= 1:
            self._pace, self._entered, self._paced_at = self._entered / elapsed_s, 0, now
        feed = max(FEED_MIN, 2 * self._pace)
        self._back_at = max(now + PAUSE_MIN_S, self._back_at + 1 / feed)
        self._back_at = min(self._back_at, now + PAUSE_MAX_S)
        if self._back_at - now < PAUSE_MIN_S + EXPECTED_S:
            self._expected_until = self._back_at + EXPECTED_S
        return timedelta(seconds=self._back_at - now)
