"""Limits: how many attempts of a queue or to a target at once, and how many a second.

Pure. A limit counts for the whole installation. Its parallelism is shared out by `share_of` in the
transaction that writes it down, so the sum of what processes may use never exceeds it; its rate is
split by the shards that each process holds, and each has a token bucket for its part.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

import msgspec

from gnomon.model.errors import InvalidSpec
from gnomon.model.ids import check_name
from gnomon.model.token_bucket import TokenBucket

PARALLEL_MAX = 1_000_000
RATE_MIN = 1 / 86_400  # one a day
RATE_MAX = 1_000_000.0
BURST_MAX = 1_000_000
BURST_DEFAULT_S = 0.2  # of the rate may come at once, unless the limit says how many
TURN = timedelta(seconds=1)  # who has his share keeps it for so long, though others wait
FRESH_FOR = timedelta(seconds=2)  # nothing is kept free for whoever has not asked for so long


class LimitKind(StrEnum):
    """What is limited."""

    QUEUE = "queue"
    TARGET = "target"
    STAGE = "stage"


class LimitKey(NamedTuple):
    """Which limit."""

    kind: LimitKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """The most that may happen; None: as much as there is."""

    kind: LimitKind
    name: str
    parallel: int | None = None  # attempts at once; 0: none at all
    rate: float | None = None  # attempts begun a second, on the average
    burst: int | None = None  # with a rate: how many may come at once after a quiet time

    @property
    def key(self) -> LimitKey:
        return LimitKey(self.kind, self.name)


def limit_key(kind: str, name: str) -> LimitKey:
    """The key that two words name. Errors: InvalidSpec."""
    try:
        limited = LimitKind(kind)
    except ValueError:
        raise InvalidSpec("kind", "must be queue, target or stage", got=kind) from None
    check_name("name", name)
    return LimitKey(limited, name)


def validate_limit(limit: Limit) -> None:
    """Refuse a limit that breaks a rule. Errors: InvalidSpec."""
    limit_key(limit.kind, limit.name)
    if limit.parallel is None and limit.rate is None:
        raise InvalidSpec("parallel", "or rate is required; drop the limit to have none")
    if limit.parallel is not None and not 0 <= limit.parallel <= PARALLEL_MAX:
        raise InvalidSpec("parallel", f"must be from 0 to {PARALLEL_MAX}", got=limit.parallel)
    if limit.rate is not None and not RATE_MIN <= limit.rate <= RATE_MAX:
        least = "1/86400 (one a day)"
        raise InvalidSpec("rate", f"must be from {least} to {RATE_MAX:g} a second", got=limit.rate)
    if limit.burst is not None:
        if limit.rate is None:
            raise InvalidSpec("burst", "goes with a rate", got=limit.burst)
        if not 1 <= limit.burst <= BURST_MAX:
            raise InvalidSpec("burst", f"must be from 1 to {BURST_MAX}", got=limit.burst)


# -- parallelism ----------------------------------------------------------------------------------


class Share(NamedTuple):
    """What a process was told, and what is counted for it until it asks again."""

    allowed: int  # it may begin as long as fewer than this many are under way
    counted: int  # at least `allowed`; more, while what it has under way must end first
    is_waiting: bool  # it has less than its fair part of what it wants
    since: datetime  # it has been waiting, or not waiting, since then


class Claimant(NamedTuple):
    """A process that wants something of a limit, or has something of it."""

    wanted: int
    counted: int  # so many may be under way in it
    shards: int  # that it holds
    share: Share | None  # what it was told last; None: it has not asked before
    asked_at: datetime


def fair_part(parallel: int, shards: int, shards_all: int) -> int:
    """What a process is entitled to: by its shards, and one in its turn if that is less."""
    part = parallel * shards // shards_all if shards_all else 0
    return min(parallel, max(1, part))


def share_of(
    parallel: int,
    asker: Claimant,
    others: Sequence[Claimant],
    *,
    shards_all: int,
    now: datetime,
) -> Share:
    """What the asker may use from now on; its `counted` is what it may use until it hears of it.

    Never more than what the others leave, so the sum of all `counted` stays within the limit but
    for what was under way when the limit was lowered. What others lack of their fair parts is kept
    free for those who have waited longer; who has his own part gives up the rest for them, and
    where there is not one for each he gives up all of it after his turn. What nobody lacks is for
    whoever asks.
    """
    table = _Table(parallel, others, shards_all, now)
    last = asker.share
    since = now if last is None else last.since
    part = table.part_of(asker)
    allowed = min(asker.wanted, table.spare - table.lacking)
    if last is None or last.is_waiting:
        allowed = max(allowed, min(part, table.spare - table.lacking_before(since)))
    else:
        allowed = max(allowed, min(table.kept_by(asker, since), asker.wanted, table.spare))
    allowed = max(0, allowed)
    is_waiting = allowed < part
    if last is None or is_waiting != last.is_waiting:
        since = now
    return Share(allowed, max(allowed, asker.counted), is_waiting, since)


class _Table:
    """The other processes that share a limit, and what they leave of it for the asker."""

    def __init__(
        self, parallel: int, others: Sequence[Claimant], shards_all: int, now: datetime
    ) -> None:
        self._parallel = parallel
        self._others = others
        self._shards_all = shards_all
        self._now = now
        self.spare = max(0, parallel - sum(other.counted for other in others))
        told = [(other, other.share) for other in others if other.share is not None]
        self._fresh = [(o, share) for o, share in told if now - o.asked_at <= FRESH_FOR]
        self._lacks = [(share.since, self._lack(other)) for other, share in self._fresh]
        self.lacking = sum(lack for _, lack in self._lacks)

    def part_of(self, claimant: Claimant) -> int:
        part = fair_part(self._parallel, claimant.shards, self._shards_all)
        return min(claimant.wanted, part)

    def _lack(self, claimant: Claimant) -> int:
        return max(0, self.part_of(claimant) - claimant.counted)

    def lacking_before(self, since: datetime) -> int:
        """What those lack who have waited longer."""
        return sum(lack for at, lack in self._lacks if at < since)

    def kept_by(self, asker: Claimant, since: datetime) -> int:
        """What somebody who has his part need not give up for those who have less than theirs."""
        if self._now - since < TURN:
            return asker.counted
        parts = self.part_of(asker) + sum(self.part_of(other) for other in self._others)
        if parts <= self._parallel:
            return self.part_of(asker)
        return asker.counted - max(0, self.lacking - self._given_up_before(since))

    def _given_up_before(self, since: datetime) -> int:
        """What others are about to give up: those whose turn has been over for longer."""
        return sum(self._given_up(share, since) for _, share in self._fresh)

    def _given_up(self, share: Share, since: datetime) -> int:
        if not share.is_waiting:
            return share.counted if share.since < since else 0
        # Who does not get it done soon is not relied on: his attempts may be long.
        return share.counted - share.allowed if self._now - share.since < TURN else 0


# -- rates ----------------------------------------------------------------------------------------


def rate_bucket(limit: Limit, part: float, now: float) -> TokenBucket:
    """The bucket for one process's part of a rate, from 0 to 1.

    At first the buckets of all processes together hold one token.
    """
    bucket = TokenBucket(rate=0.0, burst=1.0, tokens=0.0, filled_at=now)
    resize_bucket(bucket, limit, part, now)
    return bucket


def resize_bucket(bucket: TokenBucket, limit: Limit, part: float, now: float) -> None:
    """This process's part of the limit is now `part`.

    Each bucket can hold one token: what is due alone after a quiet time need not wait.
    """
    assert limit.rate is not None
    bucket.spend(0, now)  # what came until now came at the former rate
    if not bucket.rate:
        bucket.tokens = max(bucket.tokens, part)
    burst = limit.rate * BURST_DEFAULT_S if limit.burst is None else limit.burst
    bucket.rate = limit.rate * part
    bucket.burst = max(1.0, burst * part)
    bucket.tokens = min(bucket.tokens, bucket.burst)
