"""Moving rows in SQLite from the incoming to the processing queue.

There are no dead rows and one writer at a time, so marks are not needed: every look is at all rows.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from gnomon.contracts.store import HeldShard, Lane, MoveResult, OpenTransactions, PollResult
from gnomon.stores.sqlite.queries import SQL
from gnomon.stores.sqlite.results import Parameters, SqliteResults
from gnomon.stores.sqlite.rows import duration_us, micros, moment

Connection = sqlite3.Connection

OVERDUE_US = 1_000_000  # a helper leaves younger rows to the owner


class SqliteMoving(SqliteResults):
    """The part of the `WorkStore` that brings rows in."""

    async def move(self, holdings: Sequence[HeldShard], *, limit: int) -> MoveResult:
        return await self._runner.write(lambda connection: self._move(connection, holdings, limit))

    def _move(
        self, connection: Connection, holdings: Sequence[HeldShard], limit: int
    ) -> MoveResult:
        filled = _waiting(connection, [holding.shard for holding in holdings])
        wanted = [
            {"shard": holding.shard, "lease_guid": holding.lease_guid.bytes, "limit": limit}
            for holding in holdings
            if holding.shard in filled
        ]
        return self._move_heads(connection, "move_head", wanted)

    async def move_silent(
        self, shards: Sequence[int], *, limit: int, silent: timedelta
    ) -> MoveResult:
        return await self._runner.write(
            lambda connection: self._move_silent(connection, shards, limit, silent)
        )

    def _move_silent(
        self, connection: Connection, shards: Sequence[int], limit: int, silent: timedelta
    ) -> MoveResult:
        now_us = micros(self._clock.now())
        terms = {
            "limit": limit,
            "silent_since": now_us - duration_us(silent),
            "overdue_since": now_us - OVERDUE_US,
        }
        wanted = [terms | {"shard": shard} for shard in sorted(_waiting(connection, shards))]
        moved = self._move_heads(connection, "move_head_silent", wanted)
        return msgspec.structs.replace(moved, marks={})

    def _move_heads(
        self, connection: Connection, query: str, wanted: Sequence[Parameters]
    ) -> MoveResult:
        """Move the oldest rows of shards, as far as the query lets them go."""
        lanes: dict[Lane, datetime] = {}
        marks: dict[int, datetime] = {}
        count = 0
        more = False
        for each in wanted:
            row = connection.execute(SQL[query], each).fetchone()
            if row is None:
                continue
            last_at, last_guid, found = row
            head = {"shard": each["shard"], "last_at": last_at, "last_guid": last_guid}
            lanes |= self._moved_lanes(connection, head)
            count += self._move_rows(connection, head)
            marks[each["shard"]] = moment(last_at)
            more = more or found == each["limit"]
        return MoveResult(count=count, lanes=lanes, marks=marks, more=more, now=self._clock.now())

    def _moved_lanes(self, connection: Connection, head: Parameters) -> dict[Lane, datetime]:
        return {
            Lane(head["shard"], queue, priority): moment(earliest)
            for queue, priority, earliest in connection.execute(SQL["move_lanes"], head)
        }

    def _move_rows(self, connection: Connection, head: Parameters) -> int:
        """Into the one queue and out of the other; rows of old generations only out."""
        moved: int = connection.execute(SQL["move_insert"], head).rowcount
        connection.execute(SQL["move_delete"], head)
        return moved

    async def poll(self, holdings: Sequence[HeldShard]) -> PollResult:
        held = [holding.shard for holding in holdings]
        shards = await self._runner.read(lambda connection: _waiting(connection, held))
        return PollResult(shards=shards, now=self._clock.now(), open=OpenTransactions())


def _waiting(connection: Connection, shards: Sequence[int]) -> frozenset[int]:
    found = connection.execute(SQL["poll"], {"shards": json.dumps(list(shards))})
    return frozenset(shard for (shard,) in found)
