"""Pages of what is listed of entities, the same in every engine."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby, islice
from operator import attrgetter

from gnomon.contracts.store.queues import QueueRow

_LAST_CHAR = "\U0010ffff"
_PLACE = attrgetter("entity_key", "stage")


def end_of(prefix: str) -> str:
    """What is after all keys that begin so."""
    return prefix + _LAST_CHAR


def parked_page(rows: Iterable[QueueRow], limit: int) -> list[QueueRow]:
    """In order of (entity, stage), those of the first so many; what is in the queue comes first."""
    places = groupby(sorted(rows, key=_PLACE), key=_PLACE)
    return [row for _, at_place in islice(places, limit) for row in at_place]
