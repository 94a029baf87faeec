"""Held in check: the proof of a loop, the limit of depth, the bucket of wake-ups.

Stages are functions of (entity, own state). So if the whole of (entity, all states) comes back
within one causal chain, the chain can never end: that is proved, not guessed. Chains that grow
instead of repeating are bounded by depth; wake-ups of one stage by others, by a bucket that only
ever delays.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from datetime import timedelta
from uuid import UUID

from gnomon.model.token_bucket import TokenBucket

DEPTH_MAX = 16
RING_MAX = 16
CHAINS_MAX = 100_000  # remembered at once; an older chain is only bounded by depth
BUCKETS_MAX = 100_000
BURST_BESIDE_STAGES = 5
REFILL_S = 60.0


def digest_of(document: str, states: Mapping[str, bytes]) -> bytes:
    """Eight bytes for an entity and all its states."""
    hashed = hashlib.blake2b(document.encode(), digest_size=8)
    for stage in sorted(states):
        hashed.update(b"\x00" + stage.encode() + b"\x00" + states[stage])
    return hashed.digest()


# What it was then, and by whom. A state that was not looked at is UNSEEN; one that was found by the
# first that looks, though nobody here made it, is by "".
Steps = tuple[tuple[bytes, str], ...]
UNSEEN = b""


class Chains:
    """The chains that are on their way, each with its last digests."""

    def __init__(self) -> None:
        self._chains: OrderedDict[tuple[str, int], Steps] = OrderedDict()

    def knows(self, entity_id: str, root: UUID) -> bool:
        """Whether the entity's digest after the last step is known."""
        steps = self._chains.get((entity_id, root.int))  # a UUID's own hash is slow
        return steps is not None and steps[-1][0] != UNSEEN

    def closes(self, entity_id: str, root: UUID, digest: bytes, stage: str) -> tuple[str, ...]:
        """The stages of the circle that a step would close; empty: none."""
        steps = self._chains.get((entity_id, root.int), ())
        for place, (seen, _) in enumerate(steps):
            if seen == digest:
                return (*(by for _, by in steps[place + 1 :] if by), stage)
        return ()

    def note(self, entity_id: str, root: UUID, digest: bytes, stage: str) -> None:
        """Remember what a stage's save made of the entity; of stage "": what it was before any."""
        key = (entity_id, root.int)
        steps = (*self._chains.pop(key, ()), (digest, stage))
        self._chains[key] = steps[-RING_MAX:]
        if len(self._chains) > CHAINS_MAX:
            self._chains.popitem(last=False)

    def steps(self, entity_id: str, root: UUID) -> Steps:
        """What is remembered of a chain."""
        return self._chains.get((entity_id, root.int), ())

    def put_back(self, entity_id: str, root: UUID, steps: Steps) -> None:
        """Remember these steps again: those noted since were not saved."""
        if steps:
            self._chains[entity_id, root.int] = steps
        else:
            self.forget(entity_id, root)

    def path(self, entity_id: str, root: UUID) -> tuple[str, ...]:
        """Who has taken the steps that are remembered."""
        return tuple(by for _, by in self._chains.get((entity_id, root.int), ()) if by)

    def forget(self, entity_id: str, root: UUID) -> None:
        """The chain has come to rest."""
        self._chains.pop((entity_id, root.int), None)


class Buckets:
    """How often other stages may wake one stage for one entity; empty means later, never no.

    That a change from outside leads once to every stage behind it is what stages are for: the
    first wake-up of a chain costs nothing, however often users change the entity.
    """

    def __init__(self, stage_count: int) -> None:
        self._burst = float(BURST_BESIDE_STAGES + stage_count)
        self._buckets: OrderedDict[tuple[str, str], tuple[TokenBucket, int]] = OrderedDict()

    def take(self, entity_id: str, stage: str, root: UUID, now_s: float) -> timedelta:
        """Spend one wake-up of a chain; how much later it has to be."""
        key = (entity_id, stage)
        if key not in self._buckets:
            bucket, known = self._full_bucket(now_s), None
        else:
            bucket, known = self._buckets.pop(key)
        bucket.spend(int(known == root.int), now_s)
        self._buckets[key] = (bucket, root.int)
        if len(self._buckets) > BUCKETS_MAX:
            self._buckets.popitem(last=False)
        return timedelta(seconds=bucket.wait_s(now_s, 0.0))

    def _full_bucket(self, now_s: float) -> TokenBucket:
        return TokenBucket(1 / REFILL_S, self._burst, tokens=self._burst, filled_at=now_s)
