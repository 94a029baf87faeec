"""Removing many rows a few at a time: whoever writes meanwhile, a heartbeat above all, waits for
one small transaction and not for all of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping

from gnomon.stores.sqlite.connection import Runner

PURGED_AT_ONCE = 500


async def purge_rows(runner: Runner, sql: str, bounds: Mapping[str, object], *, limit: int) -> int:
    """Perform a DELETE that has a `:limit` until nothing is left or so many rows went."""
    gone = 0
    while gone < limit:
        most = min(PURGED_AT_ONCE, limit - gone)
        removed = await runner.write(changed_rows(sql, {**bounds, "limit": most}))
        gone += removed
        if removed < most:
            break
    return gone


def changed_rows(sql: str, values: Mapping[str, object]) -> Callable[[sqlite3.Connection], int]:
    """Performs a statement; how many rows it changed."""

    def call(connection: sqlite3.Connection) -> int:
        return connection.execute(sql, values).rowcount

    return call
