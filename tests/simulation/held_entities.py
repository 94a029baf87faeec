"""A user's open transaction holds entities, as PostgreSQL lets him: owners pass them over.

The engine of the simulation has one writer, so what row locks do is put around it: who would find
an entity locked is answered as if it were. Users wait for it, owners never do.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from gnomon.contracts.store import Store
from gnomon.contracts.store.entities import Entity, EntityWrite
from gnomon.contracts.store.outbox import OutboxRow
from gnomon.contracts.store.queues import (
    Commit,
    CommitKind,
    CommitResult,
    NewRow,
    ReturnedClaim,
    ReturnedKind,
    Routing,
)

PAUSE_S = 2.0  # between two transactions, on average
HOLD_S = (0.01, 8.0)
WAIT_S = 0.05
TRIES_MAX = 200  # of all owners and stages, while one entity is held: they rest in between


class EntityHolds:
    """What is held just now, and how often it was found so."""

    def __init__(self, seed: object, violations: list[str], coverage: Counter[str]) -> None:
        self.dice = random.Random(f"entity holds {seed}")
        self.held: set[str] = set()
        self.are_timers_held = False
        self.tries: Counter[str] = Counter()
        self._violations = violations
        self._coverage = coverage

    async def keep_holding(self, keys: Callable[[], Sequence[str]]) -> None:
        """One transaction after the other."""
        while True:
            await asyncio.sleep(self.dice.expovariate(1 / PAUSE_S))
            chosen = self.dice.sample(keys(), min(len(keys()), self.dice.randint(1, 2)))
            self.hold(*chosen)
            await asyncio.sleep(self.dice.uniform(*HOLD_S))
            self.release()

    def hold(self, *keys: str) -> None:
        self.held.update(keys)
        self.tries.clear()

    def release(self) -> None:
        self.held.clear()

    def is_held(self, verb: str, key: str) -> bool:
        """Whether an owner finds it held."""
        if key not in self.held:
            return False
        self._coverage[f"held at {verb}"] += 1
        self.tries[key] += 1
        if self.tries[key] == TRIES_MAX:
            self._violations.append(f"{key} is held, and was tried {TRIES_MAX} times: {verb}")
        return True

    def around(self, store: Store) -> Store:
        """The engine, as owners see it."""
        queues, outbox = HeldQueues(store.queues, self), HeldOutbox(store.outbox, self)
        return msgspec.structs.replace(store, queues=queues, outbox=outbox)

    def for_users(self, store: Store) -> Store:
        """The engine, as users see it."""
        return msgspec.structs.replace(store, entities=WaitingEntities(store.entities, self))


class _Around:
    def __init__(self, inner: Any, holds: EntityHolds) -> None:
        self._inner = inner
        self._holds = holds

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._inner, verb)


class HeldQueues(_Around):
    """What owners do with queues: never wait."""

    async def commit(self, commits: Sequence[Commit]) -> list[CommitResult]:
        held = [self._holds.is_held("commit", commit.entity_key) for commit in commits]
        free = [commit for commit, is_held in zip(commits, held, strict=True) if not is_held]
        told = iter(await self._inner.commit(free))
        return [CommitResult(kind=CommitKind.HELD) if is_held else next(told) for is_held in held]

    async def give_back(self, claims: Sequence[ReturnedClaim]) -> list[ReturnedKind]:
        held = [self._holds.is_held("give_back", claim.entity_key) for claim in claims]
        free = [claim for claim, is_held in zip(claims, held, strict=True) if not is_held]
        told = iter(await self._inner.give_back(free))
        return [ReturnedKind.HELD if is_held else next(told) for is_held in held]

    async def route(self, routings: Sequence[Routing]) -> list[tuple[NewRow, ...] | None]:
        held = [self._holds.is_held("route", routing.entity_key) for routing in routings]
        free = [routing for routing, is_held in zip(routings, held, strict=True) if not is_held]
        made = iter(await self._inner.route(free))
        return [None if is_held else next(made) for is_held in held]

    async def fire_timers(self, *args: Any, **named: Any) -> int:
        fired: int = 0
        if not self._holds.are_timers_held:
            fired = await self._inner.fire_timers(*args, **named)
        return fired

    async def advance_backfill(self, *args: Any, routings: Sequence[Routing], **named: Any) -> bool:
        if any(self._holds.is_held("advance_backfill", one.entity_key) for one in routings):
            return False
        advanced: bool = await self._inner.advance_backfill(*args, routings=routings, **named)
        return advanced


class HeldOutbox(_Around):
    """What owners do with saves: never wait."""

    async def put_off(self, rows: Sequence[OutboxRow], **named: Any) -> frozenset[str]:
        keys = {row.entity_key: None for row in rows}
        held = frozenset(key for key in keys if self._holds.is_held("put_off", key))
        free = [row for row in rows if row.entity_key not in held]
        await self._inner.put_off(free, **named)
        return held

    async def quarantine(self, row: OutboxRow, *, error: str) -> bool:
        if self._holds.is_held("quarantine", row.entity_key):
            return False
        written: bool = await self._inner.quarantine(row, error=error)
        return written


class WaitingEntities(_Around):
    """What users do: wait."""

    async def _free(self, key: str) -> None:
        while key in self._holds.held:
            await asyncio.sleep(WAIT_S)

    async def write(self, writes: Sequence[EntityWrite]) -> Sequence[Entity | None]:
        for write in writes:
            await self._free(write.key)
        stored: Sequence[Entity | None] = await self._inner.write(writes)
        return stored

    async def swap_state(self, entity_key: str, *args: Any, **named: Any) -> Any:
        await self._free(entity_key)
        return await self._inner.swap_state(entity_key, *args, **named)
