"""The load ahead: what is due in each bucket, what will come again by then, and herds."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from datetime import UTC, datetime
from itertools import chain, islice

import msgspec

from gnomon.contracts.store import DueLoad, RecurringAction, ReportStore
from gnomon.model.errors import GnomonError
from gnomon.model.load import LoadUnit, bucket_times, firings_between
from gnomon.model.spec import Periodic, Spec

LANES_MAX = 2_000  # looked at: each is a step in an index
RECURRING_MAX = 1_000  # actions that are unrolled
FIRINGS_MAX = 10_000  # of all rules
HERD_MIN = 50  # in one second: fewer are nothing to speak of
HERDS_MAX = 20
IDS_MAX = 20
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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
    buckets: Sequence[LoadBucket]
    herds: Sequence[Herd]  # the largest first
    estimated: bool  # there was more than may be looked at: a part stands for all


class Firings(msgspec.Struct):
    """What fires within a second: of each rule the first so many of its actions."""

    count: int = 0
    parts: list[tuple[Sequence[tuple[datetime, str]], int]] = msgspec.field(default_factory=list)

    def ids(self) -> list[str]:
        """Some of them: most seconds are never asked."""
        firing = (actions[:count] for actions, count in self.parts)
        return [id for _, id in islice(chain.from_iterable(firing), IDS_MAX)]


class Unrolled(msgspec.Struct):
    """The further firings of recurring actions, by bucket and by second."""

    counts: list[int]
    seconds: dict[datetime, Firings]
    is_cut: bool = False


async def read_load(store: ReportStore, since: datetime, unit: LoadUnit, count: int) -> LoadReport:
    """Errors: InvalidRequest."""
    times = bucket_times(since, unit, count)
    load = await store.load(times, lanes=LANES_MAX)
    recurring = await store.list_recurring(limit=RECURRING_MAX)
    unrolled = unroll(recurring, times, unit, now=load.at)
    herds = [
        Herd(at=at, count=size, ids=await _ids(store, at, unrolled))
        for at, size in herds_of(load, unrolled)
    ]
    return LoadReport(
        at=load.at,
        unit=unit,
        buckets=[
            LoadBucket(at=at, due=bucket.count, recurring=more)
            for at, bucket, more in zip(times[:-1], load.buckets, unrolled.counts, strict=True)
        ],
        herds=herds,
        estimated=load.is_estimated or unrolled.is_cut,
    )


async def _ids(store: ReportStore, at: datetime, unrolled: Unrolled) -> list[str]:
    until = at + LoadUnit.SECOND.length
    ids = unrolled.seconds.get(at, Firings()).ids()
    if len(ids) < IDS_MAX:
        ids = [*await store.herd(at, until, lanes=LANES_MAX, limit=IDS_MAX), *ids]
    return list(dict.fromkeys(ids))[:IDS_MAX]


def unroll(
    recurring: Sequence[RecurringAction],
    times: Sequence[datetime],
    unit: LoadUnit,
    *,
    now: datetime,
) -> Unrolled:
    """Beyond the occurrence that stands in a queue; by the rules that fire them, and in bounded
    number: what fires every second is not followed for a year. Actions of one rule are unrolled
    together: thousands have the same, most often."""
    unrolled = Unrolled([0] * (len(times) - 1), {}, len(recurring) >= RECURRING_MAX)
    rules: dict[Hashable, list[RecurringAction]] = {}
    for action in recurring:
        rules.setdefault(rule_of(action.spec), []).append(action)
    part = max(1, FIRINGS_MAX // max(1, len(rules)))
    for actions in rules.values():
        try:
            _unroll_rule(unrolled, actions, times, unit, now=now, most=part)
        except GnomonError:
            continue  # a zone that this machine does not know: its worker will say so
    return unrolled


def rule_of(spec: Spec) -> Hashable:
    """What decides on its times, once it has begun."""
    match spec.policy:
        case Periodic(period=period) if spec.start_at is not None:
            return period, (spec.start_at - _EPOCH) % period
        case policy:
            return policy


def _unroll_rule(
    unrolled: Unrolled,
    actions: list[RecurringAction],
    times: Sequence[datetime],
    unit: LoadUnit,
    *,
    now: datetime,
    most: int,
) -> None:
    """Each counts from behind the occurrence that it has."""
    ordered = sorted((max(action.occurrence_at, now), action.id) for action in actions)
    example = min(actions, key=lambda action: action.occurrence_at)
    first = ordered[0][0]
    firings = list(firings_between(example.spec, first, times[0], times[-1], most=most))
    begun, begins_at, length = 0, times[0], unit.length
    for at in firings:
        while begun < len(ordered) and ordered[begun][0] < at:
            begun += 1
        unrolled.counts[(at - begins_at) // length] += begun
        second = unrolled.seconds.setdefault(at.replace(microsecond=0), Firings())
        second.count += begun
        second.parts.append((ordered, begun))
    unrolled.is_cut |= len(firings) >= most


def herds_of(load: DueLoad, unrolled: Unrolled) -> list[tuple[datetime, int]]:
    """The fullest seconds, the largest first."""
    seconds = {at: firings.count for at, firings in unrolled.seconds.items()}
    for bucket in load.buckets:
        if bucket.herd_at is not None:
            seconds[bucket.herd_at] = seconds.get(bucket.herd_at, 0) + bucket.herd_count
    herds = [(at, count) for at, count in seconds.items() if count >= HERD_MIN]
    herds.sort(key=lambda herd: (-herd[1], herd[0]))
    return herds[:HERDS_MAX]
