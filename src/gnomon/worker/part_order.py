"""Which shards a worker takes first, and gives back last: those of one part go together.

Where the store keeps shards in parts, a statement is about one of them, and who has shards of many
parts sends as many statements. Each worker has the parts in an order of its own, so that two of
them seldom begin with the same. Where there are no parts, this has no opinion.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from gnomon.contracts.clock import Entropy
from gnomon.contracts.store import ShardLock


class PartOrder:
    """What one worker knows of parts."""

    def __init__(self, entropy: Entropy) -> None:
        self._entropy = entropy
        self._parts: dict[int, int] = {}  # by shard
        self._ranks: dict[int, float] = {}  # by part

    def learn(self, locks: Iterable[ShardLock]) -> None:
        """Parts may have changed since."""
        for lock in locks:
            if lock.part is None:
                self._parts.pop(lock.shard, None)
            else:
                self._parts[lock.shard] = lock.part
                if lock.part not in self._ranks:
                    self._ranks[lock.part] = self._entropy.fraction()
        if len(self._ranks) > len(self._parts):  # some were cut into others
            present = set(self._parts.values())
            self._ranks = {part: rank for part, rank in self._ranks.items() if part in present}

    def first(
        self, free: Sequence[ShardLock], count: int, *, held: Collection[int]
    ) -> Sequence[ShardLock] | None:
        """So many of the free ones: of the part that it has the most of, and then of the next. Of
        a part it draws: others may be at it. None where there are no parts."""
        if not self._parts:
            return None
        counts = self._counts(held)
        order = {lock.shard: self._entropy.fraction() for lock in free}
        by_part = sorted(
            free, key=lambda lock: (*self._place(lock.shard, counts), order[lock.shard])
        )
        return by_part[:count]

    def last(self, shards: Sequence[int], count: int) -> Sequence[int]:
        """So many of those held: of the part that it has the fewest of. In one, and where there are
        no parts, from the end."""
        counts = self._counts(shards)
        by_part = sorted(shards, key=lambda shard: self._place(shard, counts))
        return by_part[-count:] if count > 0 else []

    def _counts(self, held: Iterable[int]) -> Counter[int]:
        return Counter(self._parts[shard] for shard in held if shard in self._parts)

    def _place(self, shard: int, counts: Counter[int]) -> tuple[int, float]:
        part = self._parts.get(shard)
        return (0, 0.0) if part is None else (-counts[part], self._ranks[part])
