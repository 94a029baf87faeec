"""The scheduler's verbs on limits."""

from __future__ import annotations

from collections.abc import Sequence

from gnomon.contracts.clock import Entropy
from gnomon.contracts.store import LOCAL, Actor, LimitUse, Store
from gnomon.contracts.store.tokens import through
from gnomon.model.errors import NotFound
from gnomon.model.limits import Limit, limit_key, validate_limit


class LimitVerbs:
    """Set, drop, get, list."""

    store: Store
    _entropy: Entropy
    _face: str  # of actors who do not say through which one they ask

    async def set_limit(self, limit: Limit, *, actor: str = LOCAL) -> LimitUse:
        """Set a limit of a queue or a target, or change it. Errors: InvalidSpec."""
        validate_limit(limit)
        await self.store.limits.set(limit, guid=self._entropy.guid(), actor=self._by(actor))
        uses = {use.limit.key: use for use in await self.list_limits()}
        return uses.get(limit.key, LimitUse(limit=limit))

    async def drop_limit(self, kind: str, name: str, *, actor: str = LOCAL) -> LimitUse:
        """Have no such limit any more; as it was. Errors: NotFound."""
        use = await self.get_limit(kind, name)
        if not await self.store.limits.delete(
            use.limit.key, guid=self._entropy.guid(), actor=self._by(actor)
        ):
            raise NotFound("limit", str(use.limit.key))
        return use

    async def get_limit(self, kind: str, name: str) -> LimitUse:
        """A limit, and how much of it is in use. Errors: NotFound."""
        key = limit_key(kind, name)
        for use in await self.list_limits():
            if use.limit.key == key:
                return use
        raise NotFound("limit", str(key))

    async def list_limits(self) -> Sequence[LimitUse]:
        """All limits by kind and name."""
        return (await self.store.limits.list()).uses

    def _by(self, actor: str) -> Actor:
        return through(self._face, actor)
