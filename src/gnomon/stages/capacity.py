"""How many calls of a stage may begin now: parallelism, rate, and whether it is there at all."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from gnomon.model.token_bucket import TokenBucket
from gnomon.stages.stage_info import StageInfo

OUTAGE_MIN_S = 1.0
OUTAGE_MAX_S = 30.0
BURST_S = 0.1  # a rate may be used up in bursts of this length
BATCH_S = 1.0  # a batch may be as large as what the rate lets through in this time
BACKGROUND_EVERY = 10  # of so many claims at least one is from the background lane
ASK_WINDOW_S = 30.0
ASKS_MIN = 10
ASK_PAUSE_S = 60.0


@dataclass(slots=True)
class Capacity:
    """One stage's room in this process. All times are of the monotonic clock."""

    info: StageInfo
    running: int = 0  # calls on their way
    share: float = 1.0  # of the installation's shards that this process holds
    paused_until: float = 0.0
    limit: int | None = None  # calls at once in the whole installation, if it is not the stage's
    rate_limit: float | None = None  # likewise, a second
    granted: int | None = None  # of them, what this process may use; None: by its share
    granted_until: float = 0.0
    used_at: float = -math.inf  # when the last call began
    _outages: int = 0
    _bucket: TokenBucket = field(
        default_factory=lambda: TokenBucket(0.0, 1.0, tokens=1.0, filled_at=0.0)
    )
    _since_background: int = 0

    def free(self, now: float) -> int:
        """How many calls may begin."""
        if now < self.paused_until or not self.share or not self.info.revision:
            return 0
        parallel = self.parallel(now)
        if self._outages:  # one call finds out whether it is back
            parallel = min(1, parallel)
        room = max(0, parallel - self.running)
        return room if self.rate is None else min(room, self._tokens(now))

    def ahead(self, now: float, most: int) -> int:
        """How many entities to claim before a call of them can begin. Of a rate none: what waits
        for it shall be free for other stages."""
        return most if self.rate is None else min(most, self._tokens(now))

    def entities(self, now: float) -> int:
        """How many entities the next call may carry: a rate counts them, not calls."""
        batch = self.info.batch
        return batch if self.rate is None else max(1, min(batch, self._tokens(now)))

    @property
    def parallel_all(self) -> int:
        """Calls at once in the whole installation."""
        return self.info.parallel if self.limit is None else self.limit

    @property
    def rate(self) -> float | None:
        """Entities a second in the whole installation."""
        return self.info.rate if self.rate_limit is None else self.rate_limit

    def parallel(self, now: float) -> int:
        """This process's part: what it was granted, as long as that may be trusted."""
        if self.granted is None:
            return max(1, self.fair_part)
        return self.granted if now < self.granted_until else 0

    @property
    def fair_part(self) -> int:
        """What this process may count on; 0 where there is less than one for each."""
        return math.floor(self.parallel_all * self.share)

    @property
    def is_short(self) -> bool:
        """Whether it was granted less than it would get if it had enough to do."""
        return self.granted is not None and self.granted < max(1, self.fair_part)

    def is_open(self, now: float) -> bool:
        """Whether calls end and begin, though there may be no room at this moment."""
        return now >= self.paused_until and self.share > 0 and self.parallel(now) > 0

    def next_at(self, now: float) -> float:
        """When there may be room again, as far as time alone decides."""
        if now < self.paused_until:
            return self.paused_until
        if self.rate is None or not self.share or self._tokens(now):
            return now
        return now + self._bucket.wait_s(now)

    def began(self, entities: int, now: float) -> None:
        """A call began; a rate counts entities, and a call may carry many."""
        self.running += 1
        self.used_at = now
        if self.rate is not None:  # without one nothing is owed when one is set later
            self._bucket.tokens -= entities

    def ended(self) -> None:
        """A call ended."""
        self.running -= 1

    def went_well(self) -> None:
        """The stage answered."""
        self._outages = 0

    def came_back(self, info: StageInfo) -> None:
        """The stage is there again, or another one: one call may find out at once."""
        self.info, self.paused_until = info, 0.0

    def was_away(self, now: float, *, at_least_s: float = 0.0) -> float:
        """The stage did not answer: leave it alone for a while; how long."""
        if now >= self.paused_until:  # calls that were on their way together are one outage
            pause_s = min(OUTAGE_MAX_S, OUTAGE_MIN_S * 2.0 ** min(self._outages, 10))
            self._outages += 1
            self.paused_until = now + pause_s
        self.paused_until = max(self.paused_until, now + at_least_s)
        return self.paused_until - now

    def background_first(self) -> bool:
        """Whether the background lane has its turn before the main one."""
        return self._since_background >= BACKGROUND_EVERY - 1

    def claimed(self, *, main: int, background: int) -> None:
        """Count what was claimed from each lane."""
        self._since_background = 0 if background else self._since_background + main

    def _tokens(self, now: float) -> int:
        """How many entities the rate lets through now."""
        assert self.rate is not None
        rate = self.rate * self.share
        self._bucket.rate = rate
        self._bucket.burst = max(1.0, rate * BURST_S, min(float(self.info.batch), rate * BATCH_S))
        return self._bucket.count(now)


@dataclass(slots=True)
class AskBreaker:
    """Notices a stage whose `should_process` mostly fails, and keeps its rows waiting."""

    began_at: float = 0.0
    asks: int = 0
    failures: int = 0
    open_until: float = field(default=0.0)

    def count(self, now: float, *, failed: bool) -> None:
        """An ask was answered, or failed."""
        if now - self.began_at > ASK_WINDOW_S:
            if self.asks >= ASKS_MIN and self.failures * 2 > self.asks:
                self.open_until = now + ASK_PAUSE_S
            self.began_at, self.asks, self.failures = now, 0, 0
        self.asks += 1
        self.failures += failed

    def pause_s(self, now: float) -> float:
        """How much later a row of a failed ask shall be ready."""
        return ASK_PAUSE_S if now < self.open_until else 0.0
