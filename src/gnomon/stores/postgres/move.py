"""Moving rows from the incoming to the processing queue, and where their live rows begin.

A mark says that no unmoved row is older, except those of transactions that took long to commit. It
lags two seconds behind, a poll tells which transactions may yet bring older ones, and a full move
ignores it, so that no row is lost by it: it only spares the walk over rows that are dead but not
yet vacuumed. No mark counts beyond the present less two seconds: the clock may have been set back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec

from gnomon.contracts.store import (
    ArrivalResult,
    BeginRequest,
    BegunAttempt,
    HeldShard,
    Lane,
    MoveResult,
    OpenTransactions,
    PollResult,
)
from gnomon.stores.postgres.begin import BeginParameters, begin, recall
from gnomon.stores.postgres.connection import Database, Row, Session
from gnomon.stores.postgres.rows import Decoder

MARK_SLACK = timedelta(seconds=2)
LEAST_AGE = timedelta(seconds=1)  # a helper leaves younger rows to the owner
NOBODY = UUID(int=0)
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class MoveTally:
    """Adds up what a move found, shard by shard."""

    def __init__(self, holdings: Sequence[HeldShard], limit: int) -> None:
        self._old_marks = {holding.shard: holding.incoming_mark for holding in holdings}
        self._limit = limit
        self.count = 0
        self.lanes: dict[Lane, datetime] = {}
        self.marks: dict[int, datetime] = {}
        self.more = False

    def add_shard(self, shard: int, taken: int, last_at: datetime | None, now: datetime) -> None:
        """A held shard gave so many rows, the last one created then."""
        is_full = taken >= self._limit and last_at is not None
        self.more = self.more or is_full
        present = now - MARK_SLACK
        mark = last_at - MARK_SLACK if is_full and last_at is not None else present
        self.marks[shard] = min(max(self._old_marks[shard] or mark, mark), present)

    def add_lane(self, lane: Lane, earliest: datetime, count: int) -> None:
        known = self.lanes.get(lane)
        self.lanes[lane] = earliest if known is None else min(known, earliest)
        self.count += count

    def moved(self, now: datetime) -> MoveResult:
        return MoveResult(
            count=self.count, lanes=self.lanes, marks=self.marks, more=self.more, now=now
        )


async def move(
    database: Database, holdings: Sequence[HeldShard], *, limit: int, full: bool
) -> MoveResult:
    tally = MoveTally(holdings, limit)
    if database.many_shards and holdings:
        now = await _move_all(database, holdings, tally, limit, full=full)
        return tally.moved(now)
    for holding in holdings:
        await _move_shard(database, holding, tally, limit, full=full)
    return tally.moved((await database.fetch("now"))[0][0])


def mark_of(holding: HeldShard, *, full: bool = False) -> datetime:
    return LONG_AGO if full or holding.incoming_mark is None else holding.incoming_mark


async def waiting(database: Database, holdings: Sequence[HeldShard]) -> PollResult:
    marks = [mark_of(holding) for holding in holdings]
    shards = [holding.shard for holding in holdings]
    if database.many_shards:
        ((now, ids, start, next_32, found),) = await database.fetch(
            "poll", shards, marks, MARK_SLACK
        )
        stop = start + (next_32 - start) % 2**32
        return PollResult(
            shards=found, now=now, open=OpenTransactions(ids=ids, start=start, stop=stop)
        )
    filled: list[int] = []
    for shard, mark in zip(shards, marks, strict=True):
        filled += [row[0] for row in await database.fetch("poll_shard", shard, mark, MARK_SLACK)]
    return PollResult(shards=filled, now=(await database.fetch("now"))[0][0], open=None)


async def _move_all(
    database: Database, holdings: Sequence[HeldShard], tally: MoveTally, limit: int, *, full: bool
) -> datetime:
    rows = await database.fetch(
        "move",
        [holding.shard for holding in holdings],
        [holding.lease_guid for holding in holdings],
        [mark_of(holding, full=full) for holding in holdings],
        limit,
        MARK_SLACK,
        None,
    )
    return await _added_up(database, rows, tally)


async def _added_up(database: Database, rows: Sequence[Row], tally: MoveTally) -> datetime:
    for shard, queue, priority, moment, count, now in rows:
        if queue is None:
            tally.add_shard(shard, count, moment, now)
        else:
            tally.add_lane(Lane(shard, queue, priority), moment, count)
    if rows:
        found: datetime = rows[0][5]
        return found
    lost: datetime = (await database.fetch("now"))[0][0]  # none of the shards is held any more
    return lost


async def _move_shard(
    database: Database, holding: HeldShard, tally: MoveTally, limit: int, *, full: bool
) -> None:
    async with database.transaction("move") as session:
        held = await session.fetch("move_held", holding.shard, holding.lease_guid)
        if not held:
            return
        start = mark_of(holding, full=full)
        taken, put = await _take_and_put(session, holding.shard, start, limit, least_age=None)
    last: Row | None = taken[-1] if taken else None
    tally.add_shard(holding.shard, len(taken), last[5] if last else None, held[0][0])
    _add_lanes(tally, holding.shard, put)


async def _take_and_put(
    session: Session, shard: int, start: datetime, limit: int, *, least_age: timedelta | None
) -> tuple[Sequence[Row], Sequence[Row]]:
    """From the one queue into the other: the rows taken, and those of them that were put."""
    taken = await session.fetch("move_take", shard, start, limit, MARK_SLACK, least_age)
    current = [row for row in taken if row[4] is not None]
    if not current:
        return taken, []
    columns = [[row[column] for row in current] for column in range(5)]
    put = {row[0] for row in await session.fetch("move_put", shard, *columns)}
    return taken, [row for row in current if row[0] in put]


def _add_lanes(tally: MoveTally, shard: int, put: Sequence[Row]) -> None:
    for row in put:
        tally.add_lane(Lane(shard, row[1], row[2]), row[3], 1)


async def move_silent(
    database: Database, shards: Sequence[int], *, limit: int, silent: timedelta
) -> MoveResult:
    tally = MoveTally([HeldShard(shard=shard, lease_guid=NOBODY) for shard in shards], limit)
    if database.many_shards and shards:
        nothing = [None] * len(shards)
        rows = await database.fetch("move", shards, nothing, nothing, limit, MARK_SLACK, silent)
        now = await _added_up(database, rows, tally)
    else:
        for shard in shards:
            await _move_unheld(database, shard, tally, limit, silent)
        now = (await database.fetch("now"))[0][0]
    return msgspec.structs.replace(tally.moved(now), marks={})


async def _move_unheld(
    database: Database, shard: int, tally: MoveTally, limit: int, silent: timedelta
) -> None:
    async with database.transaction("move") as session:
        unheld = await session.fetch("move_unheld", shard, silent)
        if not unheld:
            return
        ((now, mark),) = unheld
        start = mark or LONG_AGO
        taken, put = await _take_and_put(session, shard, start, limit, least_age=LEAST_AGE)
    tally.add_shard(shard, len(taken), taken[-1][5] if taken else None, now)
    _add_lanes(tally, shard, put)


async def arrive(
    database: Database,
    decoder: Decoder,
    holdings: Sequence[HeldShard],
    room: Mapping[str, int],
    terms: BeginParameters,
    *,
    limit: int,
) -> ArrivalResult:
    if not database.many_shards or not holdings:
        return await _move_then_begin(database, decoder, holdings, room, terms, limit=limit)
    rows = await database.fetch(
        "move_and_begin",
        [holding.shard for holding in holdings],
        [holding.lease_guid for holding in holdings],
        [mark_of(holding) for holding in holdings],
        limit,
        list(room),
        list(room.values()),
        *terms[:4],
        MARK_SLACK,
    )
    if not rows:
        now: datetime = (await database.fetch("now"))[0][0]
        return ArrivalResult(moved=MoveTally(holdings, limit).moved(now), begun=[])
    begun: Sequence[BegunAttempt] = [decoder.begun_of(row) for row in rows if row[22]]
    if sum(row[9] is not None for row in rows) != rows[0][24]:
        begun = await _really_begun(database, decoder, begun, terms.batch)
    return ArrivalResult(moved=_tally_of(rows, holdings, limit), begun=begun)


def _tally_of(rows: Sequence[Row], holdings: Sequence[HeldShard], limit: int) -> MoveResult:
    tally = MoveTally(holdings, limit)
    now: datetime = rows[0][6]
    taken: dict[int, list[datetime]] = {}
    for row in rows:
        taken.setdefault(row[0], []).append(row[23])
        if not row[22] and row[9] is not None:
            tally.add_lane(Lane(row[0], row[20], row[21]), row[5], 1)
        elif row[22]:
            tally.count += 1
    for shard, times in taken.items():
        tally.add_shard(shard, len(times), max(times), now)
    return tally.moved(now)


async def _really_begun(
    database: Database, decoder: Decoder, begun: Sequence[BegunAttempt], batch: UUID
) -> Sequence[BegunAttempt]:
    """Some rows were in the processing queue already: ask which ones bear this batch's attempts."""
    lanes = {Lane(each.shard, each.spec.queue, each.spec.priority) for each in begun}
    demands = [BeginRequest(lane=lane, lease_guid=None, limit=0) for lane in sorted(lanes)]
    return await recall(database, decoder, demands, batch)


async def _move_then_begin(
    database: Database,
    decoder: Decoder,
    holdings: Sequence[HeldShard],
    room: Mapping[str, int],
    terms: BeginParameters,
    *,
    limit: int,
) -> ArrivalResult:
    """Where one statement may touch one shard only, the short way is no shorter."""
    moved = await move(database, holdings, limit=limit, full=False)
    leases = {holding.shard: holding.lease_guid for holding in holdings}
    left = dict(room)
    begun: list[BegunAttempt] = []
    for lane, earliest in sorted(moved.lanes.items(), key=lambda item: item[0].priority):
        if earliest <= moved.now and left.get(lane.queue, 0) > 0:
            demand = BeginRequest(lane=lane, lease_guid=leases[lane.shard], limit=left[lane.queue])
            result = await begin(database, decoder, [demand], terms)
            begun += result.begun
            left[lane.queue] -= len(result.begun)
    return ArrivalResult(moved=moved, begun=begun)
