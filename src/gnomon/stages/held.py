"""What somebody's open transaction holds is tried again, after pauses that grow, and what stages
made of it is kept meanwhile.

Nothing here is needed for safety: what is forgotten is found in the store, and made again.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from gnomon.contracts.store.batches import BATCH_BYTES_MAX
from gnomon.contracts.store.queues import ClaimedEntity
from gnomon.stages.bound_stage import Answer

K = TypeVar("K", bound=Hashable)

PAUSE_FIRST_S = 0.02  # nearly everybody who holds an entity is about to commit
PAUSE_MAX_S = 2.0
PAUSES_MAX = 5_000
ANSWERS_MAX = 1_000


@dataclass(slots=True)
class _Pause:
    """How long something is left alone, and until when."""

    pause_s: float
    until: float  # of the monotonic clock
    is_over: bool = False


class HeldPauses(Generic[K]):
    """Who is left alone for a while, because somebody holds it."""

    def __init__(self) -> None:
        self._pauses: dict[K, _Pause] = {}

    def __contains__(self, key: K) -> bool:
        pause = self._pauses.get(key)
        return pause is not None and not pause.is_over

    @property
    def waiting(self) -> list[K]:
        """Those that are not to be tried yet."""
        return [key for key, pause in self._pauses.items() if not pause.is_over]

    @property
    def next_at(self) -> float | None:
        """When the first of them is tried again."""
        return min((one.until for one in self._pauses.values() if not one.is_over), default=None)

    def put_off(self, key: K, now: float) -> bool:
        """Leave it alone, for longer than the last time; True if there was none."""
        before = self._pauses.pop(key, None)
        pause_s = PAUSE_FIRST_S if before is None else min(PAUSE_MAX_S, before.pause_s * 2)
        self._pauses[key] = _Pause(pause_s, now + pause_s)
        if len(self._pauses) > PAUSES_MAX:
            del self._pauses[next(iter(self._pauses))]
        return before is None

    def end(self, now: float) -> bool:
        """Let those be tried again whose pause is over; True if there are any. Who does not come
        back soon is free by now."""
        ended = False
        for key, pause in list(self._pauses.items()):
            if pause.until <= now and not pause.is_over:
                pause.is_over = ended = True
            elif pause.until + PAUSE_MAX_S <= now:
                del self._pauses[key]
        return ended


class _KeptAnswer(NamedTuple):
    fence: tuple[int, int, int, int]
    answer: Answer
    size: int


class KeptAnswers:
    """What stages made of claims that could not be saved: nobody need call them again, if the claim
    is still the same. Bounded in number and bytes; the oldest goes."""

    def __init__(self) -> None:
        self._answers: dict[tuple[str, str], _KeptAnswer] = {}
        self._size = 0

    def __len__(self) -> int:
        return len(self._answers)

    def keep(self, claim: ClaimedEntity, answer: Answer, size: int) -> None:
        """Keep it, `size` bytes."""
        self.take(claim)
        self._answers[_place(claim)] = _KeptAnswer(_fence(claim), answer, size)
        self._size += size
        while len(self._answers) > ANSWERS_MAX or self._size > BATCH_BYTES_MAX:
            self._size -= self._answers.pop(next(iter(self._answers))).size

    def take(self, claim: ClaimedEntity) -> Answer | None:
        """The answer to exactly this claim; None if there is none."""
        kept = self._answers.pop(_place(claim), None)
        if kept is None:
            return None
        self._size -= kept.size
        return kept.answer if kept.fence == _fence(claim) else None


def _place(claim: ClaimedEntity) -> tuple[str, str]:
    return claim.row.stage, claim.entity.key


def _fence(claim: ClaimedEntity) -> tuple[int, int, int, int]:
    """All that a stage is told of; the present apart."""
    own = claim.states.get(claim.row.stage)
    version = 0 if own is None else own.version
    return claim.row.seq, claim.entity.epoch, claim.entity.version, version
