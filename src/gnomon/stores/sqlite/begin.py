"""Beginning attempts in SQLite, inside a write transaction: what was read stays true until it is
written. The fences are in the queries all the same: `begin_due`, `begin_stamp`."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import msgspec

from gnomon.contracts.store import (
    BeginRequest,
    BeginResult,
    BegunAttempt,
    ConfirmResult,
    Lane,
)
from gnomon.model.action import Status
from gnomon.model.codec import read_attempt
from gnomon.model.errors import check
from gnomon.stores._attempts import confirmed, first_half
from gnomon.stores._specs import SpecCache
from gnomon.stores.sqlite.move import OVERDUE_US
from gnomon.stores.sqlite.queries import SQL, fetch_one
from gnomon.stores.sqlite.results import Parameters
from gnomon.stores.sqlite.rows import (
    duration_us,
    micros,
    moment,
    moment_or_none,
)

Connection = sqlite3.Connection

ALWAYS_US = -(2**63)
LOOKED_AT = 50  # rows of a lane that may be looked at in vain, each time it is asked in haste
CLOSELY_LOOKED_AT = 250  # the same for a look at what was passed over before

OLDEST = SQL["begin_due"]
NEWEST = OLDEST.replace("/*order*/", "DESC")


class DueRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A row that may be begun, in the order of the queries."""

    guid: UUID
    scheduled_at: int
    attempts: int
    id: str
    timeout_us: int
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
    need: str = ""  # of the same; else it is that of the lane


_DUE_ROWS = msgspec.json.Decoder(list[DueRow])
SPECS = SpecCache()


class BeginTerms(NamedTuple):
    """What all attempts of one `begin` share."""

    first_half: str  # of the attempt ids
    owner: str
    now: datetime
    now_us: int
    window_us: int
    grace_us: int
    silent_us: int
    until_us: int  # what is due by then is begun ahead


def begin_terms(
    batch: UUID,
    owner: str,
    now: datetime,
    *,
    grace: timedelta,
    window: timedelta,
    silent: timedelta = timedelta(0),
    until: datetime | None = None,
) -> BeginTerms:
    return BeginTerms(
        first_half(batch), owner, now, micros(now), duration_us(window), duration_us(grace),
        duration_us(silent), micros(now if until is None else max(now, until)),
    )  # fmt: skip


def begin_lanes(
    connection: Connection, demands: Sequence[BeginRequest], terms: BeginTerms
) -> BeginResult:
    due: list[tuple[Lane, DueRow]] = []
    short: set[Lane] = set()  # gave less than was asked
    for demand in demands:
        rows = _due(connection, demand, terms, OLDEST)
        due += [(demand.lane, row) for row in rows]
        if len(rows) < demand.limit:
            short.add(demand.lane)
    begun = _stamp(connection, due, terms) if due else []
    next_due = {demand.lane: _next_due(connection, demand.lane) for demand in demands}
    refused: dict[Lane, datetime] = {}
    for lane in short:
        first = next_due[lane]
        if first is not None and first <= terms.now:
            refused[lane] = first
            next_due[lane] = _next_due(connection, lane, after=terms.now_us)
    result = BeginResult(begun=begun, next_due=next_due, now=terms.now, refused=refused)
    return _begin_behind(connection, result, demands, terms) if refused else result


def _begin_behind(
    connection: Connection,
    begin: BeginResult,
    demands: Sequence[BeginRequest],
    terms: BeginTerms,
) -> BeginResult:
    """What has just come due in lanes whose head cannot be begun must not wait for that. A lane
    that gives all that was asked may have more at once."""
    given = Counter(attempt.lane for attempt in begin.begun)
    next_due = dict(begin.next_due)
    reached: dict[Lane, datetime] = {}
    due: list[tuple[Lane, DueRow]] = []
    for demand in demands:
        lane, left = demand.lane, demand.limit - given[demand.lane]
        if lane not in begin.refused:
            continue
        rest = msgspec.structs.replace(demand, limit=left)
        rows = _due(connection, rest, terms, NEWEST)
        due += [(lane, row) for row in rows]
        if len(rows) >= left:
            next_due[lane] = begin.refused[lane]
        place = _reached(connection, demand, begin.refused[lane], terms)
        if place is not None:
            reached[lane] = place
    begun = [*begin.begun, *(_stamp(connection, due, terms) if due else [])]
    return msgspec.structs.replace(begin, begun=begun, next_due=next_due, reached=reached)


def _reached(
    connection: Connection, demand: BeginRequest, first: datetime, terms: BeginTerms
) -> datetime | None:
    """Where the next look goes on; behind rows of one moment, if they are all it looked at."""
    since = _since_us(demand)
    wanted = lane_row(demand.lane) | {"since": since, "now": terms.now_us}
    wanted["looked_at"] = demand.limit + _looked_at(demand)
    row = fetch_one(connection, "begin_reached", wanted)
    if row is None:
        return None
    return moment(max(row["scheduled_at"], max(since, micros(first)) + 1))


def _due(
    connection: Connection,
    demand: BeginRequest,
    terms: BeginTerms,
    query: str,
) -> list[DueRow]:
    """The rows that the fence lets through."""
    wanted = lane_row(demand.lane)
    wanted["now"] = terms.now_us
    wanted["limit"] = demand.limit
    wanted["looked_at"] = _looked_at(demand)
    wanted["since"] = ALWAYS_US if query is NEWEST else _since_us(demand)
    wanted["silent_since"] = terms.now_us - terms.silent_us
    wanted["is_guest"] = demand.is_guest
    wanted["lease_guid"] = None if demand.lease_guid is None else demand.lease_guid.bytes
    is_helper = demand.lease_guid is None and not demand.is_guest
    wanted["due_until"] = terms.until_us - (OVERDUE_US + 1 if is_helper else 0)
    return _due_rows(connection, query, wanted)


def _stamp(
    connection: Connection, due: Sequence[tuple[Lane, DueRow]], terms: BeginTerms
) -> list[BegunAttempt]:
    """Give each row its attempt and its reservation."""
    attempt_ids, packed = derive_attempt_ids(terms.first_half, [row.guid for _, row in due])
    begun = [
        begun_of(
            lane.shard,
            row,
            attempt_id,
            terms.now if row.scheduled_at <= terms.now_us else moment(row.scheduled_at),
            lane.need,
        )
        for (lane, row), attempt_id in zip(due, attempt_ids, strict=True)
    ]
    stamp = {
        "seen": json.dumps([row.scheduled_at for _, row in due]),
        "packed": packed,
        "now": terms.now_us,
        "window_us": terms.window_us,
        "grace_us": terms.grace_us,
        "owner": terms.owner,
    }
    stamped = connection.execute(SQL["begin_stamp"], stamp).rowcount
    check(stamped == len(due), "begin did not stamp what it had read", stamped=stamped)
    return begun


def _next_due(connection: Connection, lane: Lane, *, after: int = ALWAYS_US) -> datetime | None:
    row = fetch_one(connection, "begin_next_due", lane_row(lane) | {"after": after})
    return None if row is None else moment(row["scheduled_at"])


def derive_attempt_ids(first: str, guids: Sequence[UUID]) -> tuple[list[UUID], bytes]:
    """The id of each; who knows the batch finds it. And guids and ids in turn, 16 bytes and 16
    bytes."""
    first_bytes = bytes.fromhex(first.replace("-", ""))
    packed, ids = list[bytes](), list[str]()
    for guid in guids:
        one = guid.bytes
        other = first_bytes + one[8:]
        packed += one, other
        ids.append(other.hex())
    # `UUID(bytes=…)` is in Python, and several times slower.
    return msgspec.convert(ids, list[UUID]), b"".join(packed)


def lane_row(lane: Lane) -> Parameters:
    shard, queue, priority, need = lane
    return {"shard": shard, "queue": queue, "priority": priority, "need": need}


def begun_of(
    shard: int, row: DueRow, attempt_id: UUID, began_at: datetime, need: str
) -> BegunAttempt:
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
        spec=SPECS.read(row.spec),
        status=status,
        scheduled_at=due,
        began_at=began_at,
        deadline=began_at + timedelta(0, 0, row.timeout_us),
        series=row.series,
        need=need,
    )


def confirm_attempts(
    connection: Connection, attempts: Sequence[BegunAttempt], now: datetime
) -> ConfirmResult:
    """Which armed attempts must not be performed now."""
    wanted = {
        "shards": json.dumps([attempt.shard for attempt in attempts]),
        "packed": b"".join(attempt.guid.bytes + attempt.attempt_id.bytes for attempt in attempts),
        "now": micros(now),
    }
    gone, expired = set[UUID](), set[UUID]()
    for place, is_gone in connection.execute(SQL["confirm"], wanted):
        (gone if is_gone else expired).add(attempts[place].attempt_id)
    return confirmed(attempts, now, gone=gone, expired=expired)


def find_begun_in(connection: Connection, shard: int, first: str) -> Iterator[BegunAttempt]:
    """The due time is gone by now; such attempts are shown as begun on time."""
    rows = _due_rows(connection, SQL["find_begun"], {"shard": shard})
    attempt_ids, _ = derive_attempt_ids(first, [row.guid for row in rows])
    for row, attempt_id in zip(rows, attempt_ids, strict=True):
        if row.attempt_id == attempt_id:
            yield begun_of(shard, row, attempt_id, moment(row.scheduled_at), row.need)


def _due_rows(connection: Connection, sql: str, wanted: Parameters) -> list[DueRow]:
    (text,) = connection.execute(sql, wanted).fetchone()
    return _DUE_ROWS.decode(text)


def _looked_at(demand: BeginRequest) -> int:
    return LOOKED_AT if demand.hasty else CLOSELY_LOOKED_AT


def _since_us(demand: BeginRequest) -> int:
    """Only where rows were passed over: the head of a lane costs nothing here."""
    return ALWAYS_US if demand.hasty or demand.since is None else micros(demand.since)
