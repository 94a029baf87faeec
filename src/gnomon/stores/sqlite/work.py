"""Work in SQLite: what the owner of a shard does with its queues.

Every verb is one write transaction, so what it read stays true until it has written.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from gnomon.contracts.clock import Clock
from gnomon.contracts.store import (
    ArrivalResult,
    BeginRequest,
    BeginResult,
    BegunAttempt,
    FinishRequest,
    HeldShard,
    Lane,
    LapsedRow,
    MoveResult,
    OpenTransactions,
    PollResult,
    Recorded,
    ReservedAttempt,
    SettleRequest,
)
from gnomon.model.codec import read_spec
from gnomon.stores.sqlite.begin import (
    begin_lanes,
    begin_terms,
    find_begun_in,
    lane_row,
    move_and_begin,
)
from gnomon.stores.sqlite.connection import Runner
from gnomon.stores.sqlite.move import filled_shards, move_held, move_unheld
from gnomon.stores.sqlite.queries import SQL
from gnomon.stores.sqlite.results import finish_attempts, settle_rows
from gnomon.stores.sqlite.rows import LiveRow, duration_us, micros, moment

Connection = sqlite3.Connection

STALE_LOOKED_AT = 200  # rows at the head of a lane; a backlog behind them is looked at later


class SqliteWork:
    """The `WorkStore` of this engine."""

    def __init__(self, runner: Runner, clock: Clock) -> None:
        self._runner = runner
        self._clock = clock

    # -- move -------------------------------------------------------------------------------------

    async def poll(self, holdings: Sequence[HeldShard]) -> PollResult:
        held = [holding.shard for holding in holdings]
        shards = await self._runner.read(lambda connection: filled_shards(connection, held))
        return PollResult(shards=shards, now=self._clock.now(), open=OpenTransactions())

    async def move(self, holdings: Sequence[HeldShard], *, limit: int) -> MoveResult:
        return await self._runner.write(
            lambda connection: move_held(connection, holdings, limit, self._clock.now())
        )

    async def move_silent(
        self, shards: Sequence[int], *, limit: int, silent: timedelta
    ) -> MoveResult:
        silent_us = duration_us(silent)
        return await self._runner.write(
            lambda connection: move_unheld(
                connection, shards, limit, self._clock.now(), silent_us=silent_us
            )
        )

    # -- begin ------------------------------------------------------------------------------------

    async def begin(
        self,
        demands: Sequence[BeginRequest],
        *,
        batch: UUID,
        owner: str,
        grace: timedelta,
        window: timedelta,
        silent: timedelta,
    ) -> BeginResult:
        def call(connection: Connection) -> BeginResult:
            terms = begin_terms(
                batch, owner, self._clock.now(), grace=grace, window=window, silent=silent
            )
            return begin_lanes(connection, demands, terms)

        return await self._runner.write(call)

    async def move_and_begin(
        self,
        holdings: Sequence[HeldShard],
        *,
        limit: int,
        room: Mapping[str, int],
        batch: UUID,
        owner: str,
        grace: timedelta,
        window: timedelta,
    ) -> ArrivalResult:
        def call(connection: Connection) -> ArrivalResult:
            terms = begin_terms(batch, owner, self._clock.now(), grace=grace, window=window)
            return move_and_begin(connection, holdings, limit, room, terms)

        return await self._runner.write(call)

    async def find_begun(
        self, demands: Sequence[BeginRequest], *, batch: UUID
    ) -> Sequence[BegunAttempt]:
        return await self._runner.write(
            lambda connection: [
                begun
                for lane in dict.fromkeys(demand.lane for demand in demands)
                for begun in find_begun_in(connection, lane, str(batch))
            ]
        )

    async def extend(
        self, attempts: Sequence[ReservedAttempt], *, window: timedelta, grace: timedelta
    ) -> Collection[UUID]:
        return await self._runner.write(
            lambda connection: _extend(connection, attempts, self._clock.now() + window + grace)
        )

    # -- record -----------------------------------------------------------------------------------

    async def finish(self, finishes: Sequence[FinishRequest], *, owner: str) -> Sequence[Recorded]:
        return await self._runner.write(
            lambda connection: finish_attempts(connection, finishes, owner, self._clock.now())
        )

    async def settle(self, settlements: Sequence[SettleRequest]) -> int:
        return await self._runner.write(
            lambda connection: settle_rows(connection, settlements, self._clock.now())
        )

    # -- lapsed -----------------------------------------------------------------------------------

    async def list_lapsed(
        self, holdings: Sequence[HeldShard], *, limit: int
    ) -> Sequence[LapsedRow]:
        return await self._runner.write(
            lambda connection: _lapsed(connection, holdings, limit, self._clock.now())
        )

    async def delete_stale(self, holdings: Sequence[HeldShard], *, limit: int) -> int:
        return await self._runner.write(
            lambda connection: _delete_stale(connection, holdings, limit, self._clock.now())
        )

    async def list_orphans(
        self, owners: Collection[str], *, shards: Sequence[int], after: UUID | None, limit: int
    ) -> Sequence[LapsedRow]:
        wanted = {
            "owners": json.dumps(sorted(owners)),
            "shards": json.dumps(list(shards)),
            "after": None if after is None else after.bytes,
            "limit": limit,
        }

        def call(connection: Connection) -> list[LapsedRow]:
            now = self._clock.now()
            return [lapsed_of(row, now) for row in connection.execute(SQL["list_orphans"], wanted)]

        return await self._runner.read(call)

    async def list_lanes(self, holdings: Sequence[HeldShard]) -> Mapping[Lane, datetime]:
        return await self._runner.read(
            lambda connection: {
                lane: moment(earliest)
                for holding in holdings
                for lane, earliest in _lanes(connection, holding.shard)
            }
        )


def _extend(
    connection: Connection, attempts: Sequence[ReservedAttempt], until: datetime
) -> set[UUID]:
    reserved_until = micros(until)
    kept = set()
    for attempt in attempts:
        row = {
            "shard": attempt.shard,
            "guid": attempt.guid.bytes,
            "attempt_id": attempt.attempt_id.bytes,
            "reserved_until": reserved_until,
        }
        if connection.execute(SQL["extend"], row).rowcount:
            kept.add(attempt.attempt_id)
    return kept


def _lapsed(
    connection: Connection, holdings: Sequence[HeldShard], limit: int, now: datetime
) -> list[LapsedRow]:
    found: list[LapsedRow] = []
    for holding in holdings:
        wanted = {
            "shard": holding.shard,
            "lease_guid": holding.lease_guid.bytes,
            "now": micros(now),
            "limit": limit - len(found),
        }
        for query in ("list_lapsed_running", "list_lapsed_expired"):
            found += [lapsed_of(row, now) for row in connection.execute(SQL[query], wanted)]
    return found[:limit]


def _delete_stale(
    connection: Connection, holdings: Sequence[HeldShard], limit: int, now: datetime
) -> int:
    now_us = micros(now)
    count = 0
    for holding in holdings:
        look = {"shard": holding.shard, "now": now_us, "limit": STALE_LOOKED_AT}
        count += connection.execute(SQL["delete_stale_running"], look).rowcount
        for lane, earliest in _lanes(connection, holding.shard):
            if earliest <= now_us and count < limit:
                head = look | lane_row(lane)
                count += connection.execute(SQL["delete_stale"], head).rowcount
    return count


def lapsed_of(row: tuple[Any, ...], now: datetime) -> LapsedRow:
    live = LiveRow._make(row[:-2])
    due_at, is_running = row[-2:]
    return LapsedRow(
        shard=live.shard_id,
        id=live.id,
        guid=UUID(bytes=live.guid),
        spec=read_spec(live.spec),
        status=live.status(),
        attempt=live.attempt(),
        running=bool(is_running),
        scheduled_at=moment(due_at),
        now=now,
    )


def _lanes(connection: Connection, shard: int) -> list[tuple[Lane, int]]:
    """All lanes of a shard with their earliest times: one step in the index for each."""
    found: list[tuple[Lane, int]] = []
    lane = Lane(shard, "", -1)
    while row := connection.execute(SQL["list_lanes_after"], lane_row(lane)).fetchone():
        queue, priority, earliest = row
        lane = Lane(shard, queue, priority)
        found.append((lane, earliest))
    return found
