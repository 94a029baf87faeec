"""The load ahead: what is due in each bucket, what will come again by then, and herds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from gnomon.contracts.store import DueLoad, RecurringAction, ReportStore
from gnomon.model.errors import GnomonError
from gnomon.model.load import LoadUnit, bucket_times, firings_between

LOOKS_MAX = 50_000  # lanes times buckets: each is one step in an index
ROWS_MAX = 100_000  # of all buckets together
IN_BUCKET_MIN = 500  # counted at least, however many buckets there are
RECURRING_MAX = 2_000  # actions that are unrolled
FIRINGS_MAX = 50_000  # of all of them
HERD_MIN = 50  # in one second: fewer are nothing to speak of
HERDS_MAX = 20
IDS_MAX = 20


class LoadBucket(msgspec.Struct, frozen=True, kw_only=True):
    """What will be due from this time on, for one unit."""

    at: datetime
    due: int  # waits in the queues
    recurring: int  # further firings of actions that come again

    @property
    def count(self) -> int:
        return self.due + self.recurring


class Herd(msgspec.Struct, frozen=True, kw_only=True):
    """Very many in one second. An action's `jitter` spreads it."""

    at: datetime
    count: int
    ids: Sequence[str]  # some of them


class LoadReport(msgspec.Struct, frozen=True, kw_only=True):
    """What will be due, as far as it is known now."""

    at: datetime
    unit: LoadUnit
    limit: int  # a `due` of so many means: or more
    buckets: Sequence[LoadBucket]
    herds: Sequence[Herd]  # the largest first
    estimated: bool  # there was more to look at than may be looked at: counts are too low


class Unrolled(msgspec.Struct):
    """The further firings of recurring actions, by bucket and by second."""

    counts: list[int]
    seconds: dict[datetime, list[str]]
    is_cut: bool = False


async def read_load(store: ReportStore, since: datetime, unit: LoadUnit, count: int) -> LoadReport:
    """Errors: InvalidRequest."""
    times = bucket_times(since, unit, count)
    limit = max(IN_BUCKET_MIN, ROWS_MAX // count)
    lanes = max(1, LOOKS_MAX // count)
    load = await store.load(times, lanes=lanes, limit=limit)
    recurring = await store.list_recurring(limit=RECURRING_MAX)
    unrolled = unroll(recurring, times, unit, now=load.at)
    herds = [
        Herd(at=at, count=size, ids=await _ids(store, at, lanes, unrolled))
        for at, size in herds_of(load, unrolled)
    ]
    return LoadReport(
        at=load.at,
        unit=unit,
        limit=limit,
        buckets=[
            LoadBucket(at=at, due=bucket.count, recurring=more)
            for at, bucket, more in zip(times[:-1], load.buckets, unrolled.counts, strict=True)
        ],
        herds=herds,
        estimated=load.partial or unrolled.is_cut,
    )


async def _ids(store: ReportStore, at: datetime, lanes: int, unrolled: Unrolled) -> list[str]:
    until = at + LoadUnit.SECOND.length
    ids = [*await store.herd(at, until, lanes=lanes, limit=IDS_MAX), *unrolled.seconds.get(at, ())]
    return list(dict.fromkeys(ids))[:IDS_MAX]


def unroll(
    recurring: Sequence[RecurringAction],
    times: Sequence[datetime],
    unit: LoadUnit,
    *,
    now: datetime,
) -> Unrolled:
    """Beyond the occurrence that stands in a queue; by the rules that fire them, and in bounded
    number: what fires every second is not followed for a year."""
    unrolled = Unrolled([0] * (len(times) - 1), {}, len(recurring) >= RECURRING_MAX)
    part = max(1, FIRINGS_MAX // max(1, len(recurring)))
    for action in recurring:
        after = max(action.occurrence_at, now)
        firings = 0
        try:
            for at in firings_between(action.spec, after, times[0], times[-1], most=part):
                firings += 1
                unrolled.counts[(at - times[0]) // unit.length] += 1
                unrolled.seconds.setdefault(at.replace(microsecond=0), []).append(action.id)
        except GnomonError:
            continue  # a zone that this machine does not know: its worker will say so
        unrolled.is_cut |= firings >= part
    return unrolled


def herds_of(load: DueLoad, unrolled: Unrolled) -> list[tuple[datetime, int]]:
    """The fullest seconds, the largest first."""
    seconds = {at: len(ids) for at, ids in unrolled.seconds.items()}
    for bucket in load.buckets:
        if bucket.herd_at is not None:
            seconds[bucket.herd_at] = seconds.get(bucket.herd_at, 0) + bucket.herd_count
    herds = [(at, count) for at, count in seconds.items() if count >= HERD_MIN]
    herds.sort(key=lambda herd: (-herd[1], herd[0]))
    return herds[:HERDS_MAX]
