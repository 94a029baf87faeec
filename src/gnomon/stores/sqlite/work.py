"""Work in SQLite: move, begin, extend, and what lapsed.

Every verb is one write transaction, so what it read stays true until it has written. The fences
are in the queries all the same: `move_head`, `begin_due`, `begin_overdue`, `begin_stamp`.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from gnomon.contracts.store import (
    ArrivalResult,
    BeginRequest,
    BeginResult,
    BegunAttempt,
    HeldShard,
    Lane,
    LapsedRow,
    ReservedAttempt,
)
from gnomon.model.action import Status
from gnomon.model.codec import read_attempt, read_spec
from gnomon.model.errors import check
from gnomon.stores.sqlite.move import OVERDUE_US, SqliteMoving
from gnomon.stores.sqlite.queries import SQL
from gnomon.stores.sqlite.results import Parameters
from gnomon.stores.sqlite.rows import (
    LiveRow,
    duration_us,
    micros,
    moment,
    moment_or_none,
)

Connection = sqlite3.Connection

ALWAYS_US = -(2**63)
LOOKED_AT = 50  # rows of a lane that may be looked at in vain, each time it is asked in haste
CLOSELY_LOOKED_AT = 250  # the same for a look at what was passed over before
STALE_LOOKED_AT = 200  # rows at the head of a lane; a backlog behind them is looked at later

OLDEST = {name: SQL[name] for name in ("begin_due", "begin_overdue")}
NEWEST = {name: sql.replace("/*order*/", "DESC") for name, sql in OLDEST.items()}


class DueRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A row that may be begun, in the order of the queries."""

    guid: UUID
    scheduled_at: int
    attempts: int
    id: str
    timeout_us: int
    created_at: int
    occurrence_no: int
    occurrence_at: int
    expires_at: int | None
    succeeded: int
    failed: int
    interrupted: int
    consecutive_failures: int
    consecutive_interruptions: int
    occurrence_failures: int
    last_attempt: str | None
    spec: str
    series: UUID | None
    attempt_id: UUID | None = None  # of one that was begun already


_DUE_ROWS = msgspec.json.Decoder(list[DueRow])


class BeginTerms(NamedTuple):
    """What all attempts of one `begin` share."""

    batch: str
    owner: str
    now: datetime
    now_us: int
    window_us: int
    grace_us: int
    silent_us: int


class SqliteWork(SqliteMoving):
    """The `WorkStore` of this engine."""

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
            now = self._clock.now()
            terms = BeginTerms(
                str(batch), owner, now, micros(now), duration_us(window), duration_us(grace),
                duration_us(silent),
            )  # fmt: skip
            return self._begin(connection, demands, terms)

        return await self._runner.write(call)

    def _begin(
        self, connection: Connection, demands: Sequence[BeginRequest], terms: BeginTerms
    ) -> BeginResult:
        due: list[tuple[int, DueRow]] = []
        short: set[Lane] = set()  # gave less than was asked
        for demand in demands:
            rows = self._due(connection, demand, terms, OLDEST)
            due += [(demand.lane.shard, row) for row in rows]
            if len(rows) < demand.limit:
                short.add(demand.lane)
        begun = self._stamp(connection, due, terms) if due else []
        next_due = {demand.lane: self._next_due(connection, demand.lane) for demand in demands}
        refused: dict[Lane, datetime] = {}
        for lane in short:
            first = next_due[lane]
            if first is not None and first <= terms.now:
                refused[lane] = first
                next_due[lane] = self._next_due(connection, lane, after=terms.now_us)
        result = BeginResult(begun=begun, next_due=next_due, now=terms.now, refused=refused)
        return self._begin_behind(connection, result, demands, terms) if refused else result

    def _begin_behind(
        self,
        connection: Connection,
        begin: BeginResult,
        demands: Sequence[BeginRequest],
        terms: BeginTerms,
    ) -> BeginResult:
        """What has just come due in lanes whose head cannot be begun must not wait for that. A lane
        that gives all that was asked may have more at once."""
        given = Counter((each.shard, each.spec.queue, each.spec.priority) for each in begin.begun)
        next_due = dict(begin.next_due)
        reached: dict[Lane, datetime] = {}
        due: list[tuple[int, DueRow]] = []
        for demand in demands:
            lane, left = demand.lane, demand.limit - given[demand.lane]
            if lane not in begin.refused:
                continue
            rest = msgspec.structs.replace(demand, limit=left)
            rows = self._due(connection, rest, terms, NEWEST)
            due += [(lane.shard, row) for row in rows]
            if len(rows) >= left:
                next_due[lane] = begin.refused[lane]
            place = self._reached(connection, demand, begin.refused[lane], terms)
            if place is not None:
                reached[lane] = place
        begun = [*begin.begun, *(self._stamp(connection, due, terms) if due else [])]
        return msgspec.structs.replace(begin, begun=begun, next_due=next_due, reached=reached)

    def _reached(
        self, connection: Connection, demand: BeginRequest, first: datetime, terms: BeginTerms
    ) -> datetime | None:
        """Where the next look goes on; behind rows of one moment, if they are all it looked at."""
        since = _since_us(demand)
        wanted = lane_row(demand.lane) | {"since": since, "now": terms.now_us}
        wanted["looked_at"] = demand.limit + _looked_at(demand)
        row = connection.execute(SQL["begin_reached"], wanted).fetchone()
        return None if row is None else moment(max(row[0], max(since, micros(first)) + 1))

    def _due(
        self,
        connection: Connection,
        demand: BeginRequest,
        terms: BeginTerms,
        queries: Mapping[str, str],
    ) -> list[DueRow]:
        """The rows that the fence lets through."""
        wanted = lane_row(demand.lane)
        wanted["now"] = terms.now_us
        wanted["limit"] = demand.limit
        wanted["looked_at"] = _looked_at(demand)
        wanted["since"] = ALWAYS_US if queries is NEWEST else _since_us(demand)
        if demand.lease_guid is None:
            wanted["silent_since"] = terms.now_us - terms.silent_us
            wanted["overdue_since"] = terms.now_us - OVERDUE_US
            return _due_rows(connection, queries["begin_overdue"], wanted)
        wanted["lease_guid"] = demand.lease_guid.bytes
        return _due_rows(connection, queries["begin_due"], wanted)

    def _stamp(
        self, connection: Connection, due: Sequence[tuple[int, DueRow]], terms: BeginTerms
    ) -> list[BegunAttempt]:
        """Give each row its attempt and its reservation."""
        begun = [
            begun_of(shard, row, derive_attempt_id(terms.batch, row.guid), terms.now)
            for shard, row in due
        ]
        stamp = {
            "seen": json.dumps([row.scheduled_at for _, row in due]),
            "packed": b"".join(each.guid.bytes + each.attempt_id.bytes for each in begun),
            "now": terms.now_us,
            "window_us": terms.window_us,
            "grace_us": terms.grace_us,
            "owner": terms.owner,
        }
        stamped = connection.execute(SQL["begin_stamp"], stamp).rowcount
        check(stamped == len(due), "begin did not stamp what it had read", stamped=stamped)
        return begun

    def _next_due(
        self, connection: Connection, lane: Lane, *, after: int = ALWAYS_US
    ) -> datetime | None:
        row = connection.execute(
            SQL["begin_next_due"], lane_row(lane) | {"after": after}
        ).fetchone()
        return None if row is None else moment(row[0])

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
            now = self._clock.now()
            terms = BeginTerms(
                str(batch), owner, now, micros(now), duration_us(window), duration_us(grace), 0
            )
            return self._arrive(connection, holdings, limit, room, terms)

        return await self._runner.write(call)

    def _arrive(
        self,
        connection: Connection,
        holdings: Sequence[HeldShard],
        limit: int,
        room: Mapping[str, int],
        terms: BeginTerms,
    ) -> ArrivalResult:
        """Both steps, one after the other: what arrived is not the only thing due, so a lane is
        begun in its order."""
        moved = self._move(connection, holdings, limit)
        leases = {holding.shard: holding.lease_guid for holding in holdings}
        left = dict(room)
        lanes = dict(moved.lanes)
        begun: list[BegunAttempt] = []
        for lane in sorted(moved.lanes, key=lambda each: each.priority):
            if moved.lanes[lane] > terms.now or left.get(lane.queue, 0) <= 0:
                continue
            demand = BeginRequest(lane=lane, lease_guid=leases[lane.shard], limit=left[lane.queue])
            result = self._begin(connection, [demand], terms)
            begun += result.begun
            left[lane.queue] -= len(result.begun)
            rest = result.refused.get(lane, result.next_due[lane])
            lanes.pop(lane) if rest is None else lanes.update({lane: rest})
        return ArrivalResult(moved=msgspec.structs.replace(moved, lanes=lanes), begun=begun)

    async def find_begun(
        self, demands: Sequence[BeginRequest], *, batch: UUID
    ) -> Sequence[BegunAttempt]:
        return await self._runner.write(
            lambda connection: [
                begun
                for lane in dict.fromkeys(demand.lane for demand in demands)
                for begun in _recalled(connection, lane, str(batch))
            ]
        )

    async def extend(
        self, attempts: Sequence[ReservedAttempt], *, window: timedelta, grace: timedelta
    ) -> Collection[UUID]:
        return await self._runner.write(
            lambda connection: self._extend(connection, attempts, window + grace)
        )

    def _extend(
        self, connection: Connection, attempts: Sequence[ReservedAttempt], reserve: timedelta
    ) -> set[UUID]:
        reserved_until = micros(self._clock.now() + reserve)
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

    # -- lapsed -----------------------------------------------------------------------------------

    async def list_lapsed(
        self, holdings: Sequence[HeldShard], *, limit: int
    ) -> Sequence[LapsedRow]:
        return await self._runner.write(
            lambda connection: self._lapsed(connection, holdings, limit)
        )

    def _lapsed(
        self, connection: Connection, holdings: Sequence[HeldShard], limit: int
    ) -> list[LapsedRow]:
        now = self._clock.now()
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

    async def delete_stale(self, holdings: Sequence[HeldShard], *, limit: int) -> int:
        return await self._runner.write(
            lambda connection: self._drop_stale(connection, holdings, limit)
        )

    def _drop_stale(self, connection: Connection, holdings: Sequence[HeldShard], limit: int) -> int:
        now_us = micros(self._clock.now())
        count = 0
        for holding in holdings:
            look = {"shard": holding.shard, "now": now_us, "limit": STALE_LOOKED_AT}
            count += connection.execute(SQL["delete_stale_running"], look).rowcount
            for lane, earliest in _lanes(connection, holding.shard):
                if earliest <= now_us and count < limit:
                    head = look | lane_row(lane)
                    count += connection.execute(SQL["delete_stale"], head).rowcount
        return count

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


def derive_attempt_id(batch: str, guid: UUID) -> UUID:
    """The same as SQL's `md5(batch::text || guid::text)::uuid`: who knows the batch finds it."""
    text = f"{batch}{guid}".encode()
    return UUID(bytes=hashlib.md5(text, usedforsecurity=False).digest())


def lane_row(lane: Lane) -> Parameters:
    return {"shard": lane.shard, "queue": lane.queue, "priority": lane.priority}


def begun_of(shard: int, row: DueRow, attempt_id: UUID, began_at: datetime) -> BegunAttempt:
    due = moment(row.scheduled_at)
    status = Status(
        scheduled_at=due,
        occurrence_no=row.occurrence_no,
        occurrence_at=moment(row.occurrence_at),
        expires_at=moment_or_none(row.expires_at),
        attempts=row.attempts + 1,
        succeeded=row.succeeded,
        failed=row.failed,
        interrupted=row.interrupted,
        consecutive_failures=row.consecutive_failures,
        consecutive_interruptions=row.consecutive_interruptions,
        occurrence_failures=row.occurrence_failures,
        last_attempt=read_attempt(row.last_attempt),
    )
    return BegunAttempt(
        shard=shard,
        id=row.id,
        guid=row.guid,
        attempt_id=attempt_id,
        spec=read_spec(row.spec),
        status=status,
        scheduled_at=due,
        began_at=began_at,
        deadline=began_at + timedelta(0, 0, row.timeout_us),
        created_at=moment(row.created_at),
        series=row.series,
    )


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


def _recalled(connection: Connection, lane: Lane, batch: str) -> Iterator[BegunAttempt]:
    """The due time is gone by now; such attempts are shown as begun on time."""
    for row in _due_rows(connection, SQL["find_begun"], lane_row(lane)):
        attempt_id = derive_attempt_id(batch, row.guid)
        if row.attempt_id == attempt_id:
            yield begun_of(lane.shard, row, attempt_id, moment(row.scheduled_at))


def _due_rows(connection: Connection, sql: str, wanted: Parameters) -> list[DueRow]:
    (text,) = connection.execute(sql, wanted).fetchone()
    return _DUE_ROWS.decode(text)


def _lanes(connection: Connection, shard: int) -> list[tuple[Lane, int]]:
    """All lanes of a shard with their earliest times: one step in the index for each."""
    found: list[tuple[Lane, int]] = []
    lane = Lane(shard, "", -1)
    while row := connection.execute(SQL["list_lanes_after"], lane_row(lane)).fetchone():
        queue, priority, earliest = row
        lane = Lane(shard, queue, priority)
        found.append((lane, earliest))
    return found


def _looked_at(demand: BeginRequest) -> int:
    return LOOKED_AT if demand.hasty else CLOSELY_LOOKED_AT


def _since_us(demand: BeginRequest) -> int:
    """Only where rows were passed over: the head of a lane costs nothing here."""
    return ALWAYS_US if demand.hasty or demand.since is None else micros(demand.since)
