"""Hints by NOTIFY: they shorten a poll and are never relied upon.

NOTIFY takes a database-wide lock at commit, so hints are gathered for a moment and sent outside of
any data transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress

import asyncpg

from gnomon.clock import wait_set
from gnomon.contracts.clock import Clock, Entropy
from gnomon.model.errors import GnomonError
from gnomon.stores.postgres.connection import Database
from gnomon.stores.postgres.errors import DRIVER_ERRORS
from gnomon.stores.postgres.pools import CONNECT_TIMEOUT_S

GATHER_S = 0.005
PAYLOAD_BYTES_MAX = 7_999  # PostgreSQL takes less than 8000
CHECK_S = 10.0  # how long a listener that vanished silently may stay unnoticed
RETRY_S = 0.5
CHANNEL_BYTES_MAX = 63

Callback = Callable[[frozenset[int]], None]


class PostgresWakeups:
    """The `Wakeups` of this engine."""

    def __init__(
        self, database: Database, dsn: str, *, clock: Clock, entropy: Entropy, can_listen: bool
    ) -> None:
        self._database = database
        self._dsn = dsn
        self._clock = clock
        self._entropy = entropy
        self._can_listen = can_listen  # not behind a pooler: a session there is not one's own
        self._gathered: set[int] = set()
        self._sending: asyncio.Task[None] | None = None
        self._sent_at = -GATHER_S
        self._is_closed = False

    @property
    def channel(self) -> str:
        return f"gnomon_{self._database.schema}"[:CHANNEL_BYTES_MAX]

    def hint(self, shards: Collection[int]) -> None:
        if self._is_closed or not shards:
            return
        self._gathered.update(shards)
        if self._sending is None or self._sending.done():
            self._sending = asyncio.get_running_loop().create_task(self._send(), name="hint")

    async def _send(self) -> None:
        while self._gathered:
            wait_s = self._sent_at + GATHER_S - self._clock.monotonic()
            await asyncio.sleep(max(0.0, wait_s))
            payload = to_payload(self._gathered)
            self._gathered.clear()
            try:
                await self._database.fetch("notify", self.channel, payload)
            except GnomonError as exc:
                self._database.observer.event("store_hint_lost", cause=str(exc))
            self._sent_at = self._clock.monotonic()

    async def listen(self, callback: Callback) -> None:
        if not self._can_listen:
            await asyncio.Event().wait()  # the polls are the truth; here they are all there is
        is_first = True
        while True:
            try:
                await self._listen_once(callback, announce=not is_first)
            except DRIVER_ERRORS as exc:
                self._database.observer.event("store_listener_lost", cause=str(exc))
            is_first = False
            await asyncio.sleep(RETRY_S * (0.5 + self._entropy.fraction()))

    async def _listen_once(self, callback: Callback, *, announce: bool) -> None:
        """Listen until the connection is lost; `announce` that hints may have been missed."""
        connection = await asyncpg.connect(
            self._dsn, timeout=CONNECT_TIMEOUT_S, command_timeout=CONNECT_TIMEOUT_S
        )
        ended = asyncio.Event()

        def heard(_connection: object, _process: int, _channel: str, payload: object) -> None:
            callback(from_payload(str(payload)))

        try:
            connection.add_termination_listener(lambda _connection: ended.set())
            await connection.add_listener(self.channel, heard)
            if announce:
                callback(frozenset())
            while not ended.is_set():
                if not await wait_set(ended, CHECK_S):
                    await connection.fetchval(self._database.queries["now"])
        finally:
            connection.terminate()

    async def close(self) -> None:
        """Stop sending. What was gathered is lost, as hints may be."""
        self._is_closed = True
        if self._sending is not None:
            self._sending.cancel()
            with suppress(asyncio.CancelledError):
                await self._sending


def to_payload(shards: Collection[int]) -> str:
    """The shards, or nothing at all, which means any, when they are too many to name."""
    text = ",".join(map(str, sorted(shards)))
    return text if len(text) <= PAYLOAD_BYTES_MAX else ""


def from_payload(text: str) -> frozenset[int]:
    """Whatever does not look like shards means that anything may have come."""
    parts = text.split(",")
    return frozenset(map(int, parts)) if all(map(str.isdigit, parts)) else frozenset()
