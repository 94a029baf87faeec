"""The measures of a database: how large it is, and who holds back its cleaning. For people."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from gnomon.contracts.store.value import Value


class TableMeasure(Value, frozen=True):
    """A table with its indexes and partitions. Rows are the engine's estimates."""

    table: str
    bytes: int
    rows: int
    dead_rows: int  # left behind by changes, until they are cleaned up
    cleaned_at: datetime | None  # the last vacuum, if the engine tells


class HeldCleanup(Value, frozen=True):
    """Whoever keeps dead rows from being cleaned up: an old snapshot, a slot, a prepared commit."""

    kind: str  # session, slot, prepared
    name: str  # who it is: a process, a user, a program
    state: str
    since: datetime | None
    transactions: int  # how many have begun since its snapshot


class StoreMeasures(Value, frozen=True):
    """A database as it is now. What an engine does not know is empty, or None."""

    engine: str
    at: datetime
    bytes: int
    free_bytes: int | None = None  # within the file, to be used again
    log_bytes: int | None = None  # of the write-ahead log beside the file
    tables: Sequence[TableMeasure] = ()  # the largest first
    holders: Sequence[HeldCleanup] = ()  # the oldest first
