"""Calls that are given up: what becomes of their connections, and that nobody hides it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import asyncpg

from gnomon.stores.postgres.errors import Connection


def stay_cancelled() -> None:
    """What fails while a cancelled call is given up must not hide that it was cancelled: the
    caller would take it for an outage, and go on."""
    current = asyncio.current_task()
    if current is not None and current.cancelling():
        raise asyncio.CancelledError


@contextmanager
def ended_if_cancelled(connection: Connection) -> Iterator[None]:
    """Giving a call up politely would wait for a server that may be gone. And a connection that the
    driver has lost track of is of no use to anybody else."""
    try:
        yield
    except (asyncio.CancelledError, asyncpg.InternalClientError):
        with suppress(asyncpg.InterfaceError):  # it is gone already
            connection.terminate()
        raise
