"""Limits: what may happen at once and how often, and which process may use how much of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Protocol
from uuid import UUID

from gnomon.contracts.store.tokens import LOCAL
from gnomon.contracts.store.value import Value
from gnomon.model.limits import Limit, LimitKey


class LimitUse(Value, frozen=True):
    """A limit, and how much of its parallelism is in use."""

    limit: Limit
    granted: int = 0  # attempts that all processes together may have under way
    wanted: int = 0  # attempts that they would have under way if they were allowed to


class LimitTable(Value, frozen=True):
    """All limits, and the number that changes with each change of one."""

    version: int
    uses: Sequence[LimitUse]


class LimitRequest(Value, frozen=True):
    """What a process asks for of a limit."""

    held: int  # attempts that it has under way, or may have until it hears the answer
    wanted: int  # attempts that it would have under way if it were allowed to


class LimitStore(Protocol):
    """Keeps limits, and shares them out."""

    async def set(self, limit: Limit, *, guid: UUID, actor: str = LOCAL) -> None:
        """Store a limit, or change it; what processes were granted is kept. The audit gets an entry
        `set_limit` with this guid, unless the limit was the same already."""
        ...

    async def delete(self, key: LimitKey, *, guid: UUID, actor: str = LOCAL) -> bool:
        """Remove a limit and what was granted of it; False if there is none. Audited."""
        ...

    async def list(self) -> LimitTable:
        """All limits in order of kind and name. Every heartbeat's answer has the version too."""
        ...

    async def share(
        self, worker: UUID, claims: Mapping[LimitKey, LimitRequest], *, alive_for: timedelta
    ) -> Mapping[LimitKey, int]:
        """How many attempts the worker may have under way, by limit; see `model.limits.share_of`.

        One caller at a time for each limit. In the answer is what has a limit with a parallelism.
        What a worker was told counts for it until it asks again, or has not asked for `alive_for`.
        A claim of nothing gives everything back.
        """
        ...
