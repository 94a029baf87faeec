"""The history of attempts: how long it is kept how finely, and how rows are put together."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from gnomon.model.history import add_counts, new_counts

# A worker that was cut off from its store may still write a minute of before: see `AttemptTally`.
TOGETHER_AFTER = timedelta(minutes=15)
MINUTES_KEPT_FOR = timedelta(days=2)
HOURS_KEPT_FOR = timedelta(days=30)
MINUTE_S = 60
HOUR_S = 3_600
OF_WORKER = 0  # the span of a minute as one worker has counted it

_COUNTS = msgspec.json.Decoder(list[int])


class Thinning(NamedTuple):
    """Rows of one span become rows of another when they are old enough."""

    span: int
    older_than: timedelta
    into: int | None  # None: they go


def thinnings() -> tuple[Thinning, ...]:
    """In the order in which they are done."""
    return (
        Thinning(OF_WORKER, TOGETHER_AFTER, MINUTE_S),
        Thinning(MINUTE_S, MINUTES_KEPT_FOR, HOUR_S),
        Thinning(HOUR_S, HOURS_KEPT_FOR, None),
    )


class CountedRow(NamedTuple):
    """A row: what was counted of a queue from a time on."""

    queue: str
    at: datetime
    counts: list[int]


def write_counts(counts: Iterable[int]) -> str:
    """As they are stored."""
    return msgspec.json.encode(list(counts)).decode()


def read_counts(text: str) -> list[int]:
    """The other way; what a hand has spoilt counts as nothing."""
    counts = new_counts()
    try:
        add_counts(counts, _COUNTS.decode(text))
    except msgspec.MsgspecError:
        return new_counts()
    return counts


def span_shown(span: int) -> timedelta:
    """How long the time of a row is."""
    return timedelta(seconds=span or MINUTE_S)


def put_together(rows: Iterable[CountedRow], *, into: int) -> list[CountedRow]:
    """One row a queue and time."""
    sums: dict[tuple[str, datetime], list[int]] = {}
    for row in rows:
        at = row.at.replace(second=0, microsecond=0)
        if into == HOUR_S:
            at = at.replace(minute=0)
        add_counts(sums.setdefault((row.queue, at), new_counts()), row.counts)
    return [CountedRow(queue, at, counts) for (queue, at), counts in sums.items()]
