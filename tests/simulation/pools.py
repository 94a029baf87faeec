"""A process has the connections that the engine for servers gives it; long reads take theirs.

What is asked for waits until a connection of its own pool is free. A dozen listings or a doctor at
work leave what is small and urgent alone: it has pools of its own.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import msgspec

from gnomon.contracts.store import Selection, Store
from gnomon.model.errors import GnomonError, StoreUnavailable
from gnomon.stores.postgres import POOL_SIZE_DEFAULT
from gnomon.stores.postgres.connection import ACQUIRE_TIMEOUT_S
from gnomon.stores.postgres.pools import LEASE_POOL_SIZE, WIDE_POOL_SIZE
from gnomon.testing.faulty import ROLES
from tests.simulation.history import History

if TYPE_CHECKING:
    from tests.simulation.world import Node, World

READ_WORLDS = 0.2
READ_CALM_WORLDS = 0.5  # where nothing else excuses a delay
PAUSE_S = 5.0  # between two bursts of reads, on average
BURST_MAX = 12
READ_S = (1.0, 15.0)
SIZES = {
    "leases": LEASE_POOL_SIZE,
    "work": POOL_SIZE_DEFAULT,
    "verbs": POOL_SIZE_DEFAULT,
    "wide": WIDE_POOL_SIZE,
}
POOLS = {"leases": "leases", "work": "work", "limits": "work"}  # of roles; others: verbs
LONG = frozenset({"doctor", "list"})
WIDE = LONG | {"counts", "purge"}


class Pools:
    """The connections of one process."""

    def __init__(self, dice: random.Random, history: History, *, is_one: bool) -> None:
        self.dice = dice
        self._history = history
        self._free = {pool: asyncio.Semaphore(size) for pool, size in SIZES.items()}
        if is_one:
            self._free = dict.fromkeys(SIZES, self._free["work"])

    @asynccontextmanager
    async def connection(self, role: str, verb: str) -> AsyncIterator[None]:
        """One of the right pool, as soon as there is one."""
        free = self._free["wide" if verb in WIDE else POOLS.get(role, "verbs")]
        self._history.reach("read waited for a connection", verb in LONG and free.locked())
        try:
            async with asyncio.timeout(ACQUIRE_TIMEOUT_S):
                await free.acquire()
        except TimeoutError:
            raise StoreUnavailable("no connection is free") from None
        try:
            yield
        finally:
            free.release()

    def around(self, store: Store) -> Store:
        """The store, as the process gets to it."""
        roles: dict[str, Any] = {
            role: PooledRole(role, getattr(store, role), self) for role in ROLES
        }
        return msgspec.structs.replace(store, **roles)


class PooledRole:
    """One role of a store; every verb of it takes a connection while it lasts."""

    def __init__(self, role: str, inner: object, pools: Pools) -> None:
        self._role = role
        self._inner = inner
        self._pools = pools

    def __getattr__(self, verb: str) -> Any:
        method = getattr(self._inner, verb)

        async def perform(*args: Any, **named: Any) -> Any:
            async with self._pools.connection(self._role, verb):
                if verb in LONG:
                    await asyncio.sleep(self._pools.dice.uniform(*READ_S))
                return await method(*args, **named)

        self.__dict__[verb] = perform
        return perform


class Reads:
    """Long ones, in some of the worlds: users who list everything, and the doctor."""

    def __init__(self, seed: int, history: History, *, is_calm: bool) -> None:
        self._dice = random.Random(f"reads {seed}")
        self._history = history
        self.tasks: set[asyncio.Task[None]] = set()  # those under way
        self.are_on = self._dice.random() < (READ_CALM_WORLDS if is_calm else READ_WORLDS)

    def around(self, store: Store, *, is_one: bool) -> Store:
        """The store of a process that starts now."""
        if not self.are_on:
            return store
        return Pools(self._dice, self._history, is_one=is_one).around(store)

    async def keep_reading(self, world: World) -> None:
        while self.are_on:
            await asyncio.sleep(self._dice.expovariate(1 / PAUSE_S))
            node = self._dice.choice(world.nodes)
            if node.is_up:
                for _ in range(self._dice.randint(1, BURST_MAX)):
                    task = node.process.start(self._read(node), name="read")
                    self.tasks.add(task)
                    task.add_done_callback(self.tasks.discard)

    async def _read(self, node: Node) -> None:
        with suppress(GnomonError):
            if self._dice.random() < 0.5:
                await node.pooled.actions.list(Selection(), after=None, limit=100)
            else:
                await node.pooled.installation.doctor()
            self._history.reach("long read")
