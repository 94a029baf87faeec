"""One stage's work in one process."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gnomon.contracts.store.batches import BATCH_BYTES_MAX
from gnomon.contracts.store.queues import ClaimedEntity, StageLane, size_of
from gnomon.stages.bound_stage import BoundStage
from gnomon.stages.capacity import BACKGROUND_EVERY, Capacity
from gnomon.stages.held import HeldPauses

OLD_BACKGROUND = timedelta(hours=1)  # a background row so old counts as main
FRESH_S = 1.0
RESTS = 2.0  # beside what is fresh: so many times as long as it worked, the background rests
OVERTAKEN_MAX = timedelta(seconds=1)
KEPT_PART = 8  # of a stage's calls, so much the background lane leaves to the main one
BACKGROUND_PART = 8  # of what is claimed ahead of the main lane, at most so much of the other


@dataclass(slots=True)
class BackgroundShare:
    """What the stages of a process share about their background lanes. As long as the main lane of
    any of them had something lately, there is one small call or page of a backfill at a time, and a
    rest after it, for they share the processor and the store: what is fresh would have to wait for
    them."""

    fresh_at: float = -FRESH_S  # when a main lane had something
    running: int = 0  # calls for background lanes alone, and pages
    rest_until: float = 0.0
    _began_at: float = 0.0

    def is_quiet(self, now: float) -> bool:
        """Whether there was nothing fresh lately."""
        return now - self.fresh_at >= FRESH_S

    def may_begin(self, now: float) -> bool:
        """Whether it is the background's turn."""
        return self.is_quiet(now) or (not self.running and now >= self.rest_until)

    def began(self, now: float) -> None:
        """A call or a page began."""
        self.running += 1
        self._began_at = now

    def ended(self, now: float) -> None:
        """It ended: the longer it took, the longer the rest."""
        self.running -= 1
        self.rest_until = now + RESTS * (now - self._began_at)


class ClaimBuffer:
    """What was claimed ahead of one lane, in its order."""

    def __init__(self) -> None:
        self._claims: deque[tuple[ClaimedEntity, int]] = deque()
        self.size = 0  # bytes

    def __len__(self) -> int:
        return len(self._claims)

    @property
    def first(self) -> ClaimedEntity:
        return self._claims[0][0]

    def add(self, claims: Iterable[ClaimedEntity]) -> None:
        for claim in claims:
            size = size_of(claim.entity, claim.states)
            self._claims.append((claim, size))
            self.size += size

    def add_some(self, claims: Iterable[ClaimedEntity], most: int) -> int:
        """Add the first of them, as long as there are fewer than `most` and it is no full batch in
        bytes; how many."""
        count = 0
        for claim in claims:
            if len(self._claims) >= most or self.size >= BATCH_BYTES_MAX:
                break
            self.add((claim,))
            count += 1
        return count

    def take(self, count: int) -> list[ClaimedEntity]:
        """The first ones."""
        taken = [self._claims.popleft() for _ in range(min(count, len(self._claims)))]
        self.size -= sum(size for _, size in taken)
        return [claim for claim, _ in taken]


class StagePipeline:
    """One stage's work in this process: what was claimed ahead, and what is on its way."""

    def __init__(self, stage: BoundStage, background: BackgroundShare | None = None) -> None:
        self.stage = stage
        self.background = background or BackgroundShare()
        self.capacity = Capacity(stage.info)
        self._ahead = {lane: ClaimBuffer() for lane in StageLane}
        self.next_at: dict[StageLane, datetime] = {}  # when a lane has something, as far as known
        # Since when a lane has due rows that are not claimed, as far as known.
        self.lagging_since: dict[StageLane, datetime] = {}
        self.claimed: set[str] = set()  # entities in hand: claimed ahead, or in a call
        # Entities with a due row whose turn is not yet: other stages work on them, or are to come
        # first. Looking again before one of these is done would find the same.
        self.behind: dict[str, StageLane] = {}
        self.held: HeldPauses[str] = HeldPauses()  # entities
        self.is_held = False  # its background lane: see `hold_background`

    def __repr__(self) -> str:
        claimed = "+".join(str(len(claims)) for claims in self._ahead.values())
        return f"Line({self.stage.info.name}, {claimed} claimed)"

    @property
    def is_waiting(self) -> bool:
        """Whether it has, or may soon have, something to do."""
        return bool(self.has_claims or self.next_at)

    @property
    def has_claims(self) -> bool:
        """Whether anything was claimed ahead."""
        return any(self._ahead.values())

    def note(self, lane: StageLane, at: datetime) -> None:
        """Something will be ready there by then."""
        if self.is_held and lane is StageLane.BACKGROUND:
            return
        known = self.next_at.get(lane)
        if known is None or at < known:
            self.next_at[lane] = at

    def left(self, lane: StageLane, at: datetime) -> None:
        """Something is in that queue since then, and is to be looked for."""
        self.note(lane, at)
        self.lagging_since[lane] = min(at, self.lagging_since.get(lane, at))

    def open_times(self, now: float, ahead: int) -> list[datetime]:
        """When the lanes have something that can be claimed."""
        return [at for lane, at in self.next_at.items() if self.room(lane, now, ahead)]

    def room(self, lane: StageLane, now: float, ahead: int) -> int:
        """How many more to claim of a lane; 0 as long as it has more than half of them, or half of
        a batch in bytes, or so many wait for others that looking for more is too dear."""
        if len(self.behind) >= ahead or self._ahead[lane].size * 2 >= BATCH_BYTES_MAX:
            return 0
        most = ahead = self.capacity.ahead(now, ahead)
        if lane is StageLane.BACKGROUND:  # few: what is fresh may need the same entities
            most = min(ahead, max(self.stage.info.batch, ahead // BACKGROUND_PART))
        room = most - len(self._ahead[lane])
        return room if room * 2 >= most else 0

    def take_in(self, lane: StageLane, claims: Sequence[ClaimedEntity], now: float) -> None:
        """They were claimed ahead."""
        self._ahead[lane].add(claims)
        self.claimed.update(claim.entity.key for claim in claims)
        if claims and lane is StageLane.MAIN:
            self.background.fresh_at = now

    def take_followers(
        self, claims: Sequence[ClaimedEntity], now: float, ahead: int
    ) -> Sequence[ClaimedEntity]:
        """They became ready this moment, where `may_follow` holds. Those for which there is no room
        any more, by those before them."""
        count = self._ahead[StageLane.MAIN].add_some(claims, self.capacity.ahead(now, ahead))
        self.claimed.update(claim.entity.key for claim in claims[:count])
        if count:
            self.background.fresh_at = now
        return claims[count:]

    def may_follow(self, now: float, time: datetime, ahead: int) -> bool:
        """Whether what becomes ready this moment may be claimed at once, before others that wait
        in the queue: not if these have waited for long."""
        since = self.lagging_since.get(StageLane.MAIN)
        return (
            (since is None or time - since < OVERTAKEN_MAX)
            and self.capacity.free(now) > 0  # else others may have the entity meanwhile
            and len(self._ahead[StageLane.MAIN]) < self.capacity.ahead(now, ahead)
            and self._ahead[StageLane.MAIN].size < BATCH_BYTES_MAX
        )

    def freed(self, entity_keys: Iterable[str], now: datetime) -> None:
        """Nobody works on these any more."""
        if self.behind:
            for entity_key in entity_keys:
                lane = self.behind.pop(entity_key, None)
                if lane is not None:
                    self.left(lane, now)

    def may_begin(self, now: float) -> bool:
        """Whether a call may begin. The background lane leaves room for what is fresh."""
        free = self.capacity.free(now)
        if self._ahead[StageLane.MAIN]:
            return free > 0
        if not self._ahead[StageLane.BACKGROUND]:
            return False
        if not self.background.may_begin(now):
            return False
        kept = self.capacity.parallel(now) // KEPT_PART if self.background.is_quiet(now) else 0
        return free > kept

    def next_batch(self, now: float, time: datetime) -> list[ClaimedEntity]:
        """What the next call is for: main lane first, but the other one has its share."""
        main, background = self._ahead[StageLane.MAIN], self._ahead[StageLane.BACKGROUND]
        size = self.capacity.entities(now)
        if not main:
            size = size if self.background.is_quiet(now) else max(1, size // BACKGROUND_PART)
            fresh, others = [], background.take(size)
        elif background and (self.capacity.background_first() or _is_old(background.first, time)):
            others = background.take(max(1, size // BACKGROUND_EVERY))
            fresh = main.take(size - len(others))
        else:
            fresh, others = main.take(size), []
        self.capacity.claimed(main=len(fresh), background=len(others))
        return others + fresh

    def began(self, batch: Sequence[ClaimedEntity], now: float) -> None:
        """A call began."""
        self.capacity.began(len(batch), now)
        if _is_background(batch):
            self.background.began(now)

    def ended(self, batch: Sequence[ClaimedEntity], now: float) -> None:
        """What came of a call was written."""
        if _is_background(batch):
            self.background.ended(now)

    def hold_background(self, *, held: bool) -> list[ClaimedEntity]:
        """Take nothing of the background lane, until it is said again; what is let go of it."""
        self.is_held = held
        if not held:
            return []
        self.next_at.pop(StageLane.BACKGROUND, None)
        background = self._ahead[StageLane.BACKGROUND]
        return background.take(len(background))

    def let_go(self, before: datetime | None = None) -> list[ClaimedEntity]:
        """Forget what was claimed ahead, or what was before a moment; its rows are still in the
        queue."""
        gone = []
        for claims in self._ahead.values():
            while claims and (before is None or claims.first.now < before):
                gone += claims.take(1)
        self.claimed.difference_update(claim.entity.key for claim in gone)
        return gone


def _is_background(batch: Sequence[ClaimedEntity]) -> bool:
    return all(claim.row.lane is StageLane.BACKGROUND for claim in batch)


def _is_old(claim: ClaimedEntity, now: datetime) -> bool:
    return claim.row.ready_at is not None and claim.row.ready_at < now - OLD_BACKGROUND
