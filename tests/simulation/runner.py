"""The SQLite of simulated worlds."""

from __future__ import annotations

from gnomon.stores.sqlite import InlineRunner
from gnomon.stores.sqlite.connection import Call, T, transact


class SimulationRunner(InlineRunner):
    """Performs SQL at once: the delays and the chances for others are the faulty store's."""

    async def write(self, call: Call[T], *, urgent: bool = False) -> T:
        return transact(self.connection, call)

    async def read(self, call: Call[T]) -> T:
        return call(self.connection)
