"""What else a worker does in the shards it holds, besides actions."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Protocol
from uuid import UUID

from gnomon.contracts.store import HeldShard


class Ownership(Protocol):
    """Which shards this process holds, as far as that may be trusted right now."""

    @property
    def worker(self) -> UUID:
        """The worker whose leases these are."""
        ...

    def trusted(self) -> list[HeldShard]:
        """The held shards that may be worked in right now."""
        ...

    def holding(self, shard: int) -> HeldShard | None:
        """The shard as it is held; None if it may not be worked in right now."""
        ...


class LeasedService(Protocol):
    """Works beside the actions, on the same leases."""

    def hint(self, shards: Collection[int]) -> None:
        """Something may have changed in these shards; none named: anywhere."""
        ...

    async def keep_working(self) -> None:
        """Work until cancelled."""
        ...

    async def drain(self, within: timedelta) -> None:
        """End what is on its way; the shards are given back after that."""
        ...
