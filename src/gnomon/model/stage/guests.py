"""Who works in a shard whose owner does not serve a stage: all who could agree without a word."""

from __future__ import annotations

import zlib
from collections.abc import Collection
from uuid import UUID


def chosen_guest(stage: str, shard: int, servers: Collection[UUID]) -> UUID | None:
    """Of the workers that serve the stage the one whose turn this shard is: the same for whoever
    asks, and another one for the next shard. If one leaves, only its shards move."""
    return min(servers, key=lambda worker: (_place(stage, shard, worker), worker), default=None)


def _place(stage: str, shard: int, worker: UUID) -> int:
    return zlib.crc32(f"{stage}/{shard}/{worker}".encode())
