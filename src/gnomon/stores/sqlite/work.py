"""Work in SQLite: what the owner of a shard does with its queues.

Every verb is one write transaction, so what it read stays true until it has written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from gnomon.contracts.store import (
    NO_PLACES,
    ArrivalResult,
    BeginRequest,
    BeginResult,
    BegunAttempt,
    ConfirmResult,
    DecideResume,
    FinishRequest,
    HeldShard,
    Lane,
    LapsedRow,
    MoveResult,
    OpenTransactions,
    PauseEnds,
    PausePlace,
    PollResult,
    Recorded,
    ReservedAttempt,
    SettleRequest,
)
from gnomon.model.codec import read_spec
from gnomon.stores._attempts import first_half
from gnomon.stores._pauses import PauseEnding
from gnomon.stores.sqlite.arrivals import Arrivals, move_and_begin
from gnomon.stores.sqlite.begin import (
    BeginTerms,
    begin_lanes,
    begin_terms,
    confirm_attempts,
    find_begun_in,
    lane_row,
)
from gnomon.stores.sqlite.move import filled_shards, is_mixed, move_held, move_unheld
from gnomon.stores.sqlite.pauses import end_pauses, shards_with_ends
from gnomon.stores.sqlite.queries import SQL, fetch, fetch_one
from gnomon.stores.sqlite.results import finish_attempts, settle_rows
from gnomon.stores.sqlite.rows import (
    Row,
    duration_us,
    live_status,
    micros,
    moment,
    running_attempt,
)
from gnomon.stores.sqlite.verbs import Connection, SqliteVerbs, read, write

STALE_LOOKED_AT = 200  # rows at the head of a lane; a backlog behind them is looked at later


class SqliteWork(SqliteVerbs):
    """The `WorkStore` of this engine."""

    # -- move -------------------------------------------------------------------------------------

    @read
    def poll(self, connection: Connection, holdings: Sequence[HeldShard]) -> PollResult:
        shards = filled_shards(connection, [holding.shard for holding in holdings])
        return PollResult(shards=shards, now=self._clock.now(), open=OpenTransactions())

    @write
    def move(
        self, connection: Connection, holdings: Sequence[HeldShard], *, limit: int
    ) -> MoveResult:
        return move_held(connection, holdings, limit, self._clock.now())

    @write
    def move_silent(
        self, connection: Connection, shards: Sequence[int], *, limit: int, silent: timedelta
    ) -> MoveResult:
        now, silent_us = self._clock.now(), duration_us(silent)
        return move_unheld(connection, shards, limit, now, silent_us=silent_us)

    @read
    def is_mixed(
        self, connection: Connection, holdings: Sequence[HeldShard], *, limit: int
    ) -> bool:
        return is_mixed(connection, [holding.shard for holding in holdings], limit)

    # -- begin ------------------------------------------------------------------------------------

    @write
    def begin(
        self,
        connection: Connection,
        demands: Sequence[BeginRequest],
        *,
        batch: UUID,
        owner: str,
        grace: timedelta,
        window: timedelta,
        silent: timedelta,
        until: datetime | None = None,
    ) -> BeginResult:
        now = self._clock.now()
        terms = begin_terms(
            batch, owner, now, grace=grace, window=window, silent=silent, until=until
        )
        return begin_lanes(connection, demands, terms)

    @read
    def confirm(self, connection: Connection, attempts: Sequence[BegunAttempt]) -> ConfirmResult:
        return confirm_attempts(connection, attempts, self._clock.now())

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
        newest: bool = False,
    ) -> ArrivalResult:
        def terms() -> BeginTerms:
            return begin_terms(batch, owner, self._clock.now(), grace=grace, window=window)

        arrivals = await self._move_and_begin(holdings, limit, room, terms, newest=newest)
        return arrivals.result()

    @write
    def _move_and_begin(
        self,
        connection: Connection,
        holdings: Sequence[HeldShard],
        limit: int,
        room: Mapping[str, int],
        terms: Callable[[], BeginTerms],
        *,
        newest: bool,
    ) -> Arrivals:
        return move_and_begin(connection, holdings, limit, room, terms(), newest=newest)

    @write
    def find_begun(
        self, connection: Connection, shards: Collection[int], *, batch: UUID
    ) -> Sequence[BegunAttempt]:
        return [
            begun
            for shard in sorted(shards)
            for begun in find_begun_in(connection, shard, first_half(batch))
        ]

    @write
    def extend(
        self,
        connection: Connection,
        attempts: Sequence[ReservedAttempt],
        *,
        window: timedelta,
        grace: timedelta,
    ) -> Collection[UUID]:
        reserved_until = micros(self._clock.now() + window + grace)
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

    # -- record -----------------------------------------------------------------------------------

    @write
    def finish(
        self, connection: Connection, finishes: Sequence[FinishRequest], *, owner: str
    ) -> Sequence[Recorded]:
        return finish_attempts(connection, finishes, owner, self._clock.now())

    @write
    def settle(self, connection: Connection, settlements: Sequence[SettleRequest]) -> int:
        return settle_rows(connection, settlements, self._clock.now())

    # -- lapsed -----------------------------------------------------------------------------------

    @write
    def list_lapsed(
        self, connection: Connection, holdings: Sequence[HeldShard], *, limit: int
    ) -> Sequence[LapsedRow]:
        now = self._clock.now()
        lapsed: list[LapsedRow] = []
        for holding in holdings:
            wanted = {
                "shard": holding.shard,
                "lease_guid": holding.lease_guid.bytes,
                "now": micros(now),
                "limit": limit - len(lapsed),
            }
            for query in ("list_lapsed_running", "list_lapsed_expired"):
                lapsed += [lapsed_of(row, now) for row in fetch(connection, query, wanted)]
        return lapsed[:limit]

    async def end_pauses(
        self,
        holdings: Sequence[HeldShard],
        *,
        batch: UUID,
        decide: DecideResume,
        limit: int,
        places: Mapping[int, PausePlace] = NO_PLACES,
        silent: timedelta | None = None,
    ) -> PauseEnds:
        ending = PauseEnding(batch, decide, limit, places, silent)
        shards = await self._find_ended_pauses(holdings, ending)
        if not shards:
            return PauseEnds()  # most often; nobody is kept from writing by a look
        return await self._end_pauses([held for held in holdings if held.shard in shards], ending)

    @read
    def _find_ended_pauses(
        self, connection: Connection, holdings: Sequence[HeldShard], ending: PauseEnding
    ) -> frozenset[int]:
        return shards_with_ends(connection, holdings, ending, self._clock.now())

    @write
    def _end_pauses(
        self, connection: Connection, holdings: Sequence[HeldShard], ending: PauseEnding
    ) -> PauseEnds:
        return end_pauses(connection, holdings, ending, self._clock.now())

    @write
    def delete_stale(
        self, connection: Connection, holdings: Sequence[HeldShard], *, limit: int
    ) -> int:
        now_us = self._now_us()
        count = 0
        for holding in holdings:
            look = {"shard": holding.shard, "now": now_us, "limit": STALE_LOOKED_AT}
            count += connection.execute(SQL["delete_stale_running"], look).rowcount
            for lane, earliest in lanes_of(connection, holding.shard):
                if earliest <= now_us and count < limit:
                    head = look | lane_row(lane)
                    count += connection.execute(SQL["delete_stale"], head).rowcount
        return count

    @read
    def list_orphans(
        self,
        connection: Connection,
        owners: Collection[str],
        *,
        shards: Sequence[int],
        after: UUID | None,
        limit: int,
    ) -> Sequence[LapsedRow]:
        now = self._clock.now()
        wanted = {
            "owners": json.dumps(sorted(owners)),
            "shards": json.dumps(list(shards)),
            "after": None if after is None else after.bytes,
            "limit": limit,
        }
        return [lapsed_of(row, now) for row in fetch(connection, "list_orphans", wanted)]

    @read
    def list_needs(self, connection: Connection, *, limit: int) -> Sequence[str]:
        return _needs(connection, limit)

    @read
    def list_cancelling(
        self, connection: Connection, shards: Collection[int], *, owner: str, since: datetime
    ) -> Collection[UUID]:
        wanted = {"owner": owner, "since": micros(since)}
        rows = fetch(connection, "list_cancelling", wanted)
        return {UUID(bytes=row["attempt_id"]) for row in rows if row["shard_id"] in shards}

    @read
    def list_need_lanes(
        self, connection: Connection, needs: Sequence[str]
    ) -> Mapping[Lane, datetime]:
        return {
            lane: moment(earliest)
            for need in needs
            for lane, earliest in _need_lanes(connection, need)
        }

    @read
    def count_due(
        self,
        connection: Connection,
        lanes: Sequence[Lane],
        *,
        limit: int,
        until: datetime | None = None,
    ) -> int:
        count, now_us = 0, self._now_us()
        until_us = now_us if until is None else max(now_us, micros(until))
        for lane in lanes:
            wanted = lane_row(lane) | {"now": until_us, "limit": limit - count}
            (row,) = fetch(connection, "count_due", wanted)
            count += row["count"]
        return count

    @read
    def list_lanes(
        self, connection: Connection, holdings: Sequence[HeldShard]
    ) -> Mapping[Lane, datetime]:
        return {
            lane: moment(earliest)
            for holding in holdings
            for lane, earliest in lanes_of(connection, holding.shard)
        }


def lapsed_of(row: Row, now: datetime) -> LapsedRow:
    """The columns of `live_action`, and those of the row in the processing queue."""
    return LapsedRow(
        shard=row["shard_id"],
        id=row["id"],
        guid=UUID(bytes=row["guid"]),
        spec=read_spec(row["spec"]),
        status=live_status(row),
        attempt=running_attempt(row),
        running=bool(row["is_running"]),
        scheduled_at=moment(row["due_at"]),
        now=now,
    )


def lanes_of(connection: Connection, shard: int) -> list[tuple[Lane, int]]:
    """All lanes of a shard with their earliest times: one step in the index for each."""
    lanes: list[tuple[Lane, int]] = []
    lane = Lane(shard, "", -1)
    while row := fetch_one(connection, "list_lanes_after", lane_row(lane)):
        lane = Lane(shard, row["queue"], row["priority"], row["need"])
        lanes.append((lane, row["scheduled_at"]))
    return lanes


def _needs(connection: Connection, limit: int) -> list[str]:
    """All needs, one step in the index for each."""
    needs: list[str] = []
    last = {"need": ""}
    while len(needs) < limit and (row := fetch_one(connection, "list_needs_after", last)):
        last = {"need": row["need"]}
        needs.append(row["need"])
    return needs


def _need_lanes(connection: Connection, need: str) -> list[tuple[Lane, int]]:
    """All lanes of a need with their earliest times."""
    lanes: list[tuple[Lane, int]] = []
    lane = Lane(-1, "", -1, need)
    while row := fetch_one(connection, "list_need_lanes_after", lane_row(lane)):
        lane = Lane(row["shard_id"], row["queue"], row["priority"], need)
        lanes.append((lane, row["scheduled_at"]))
    return lanes
