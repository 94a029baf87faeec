"""Entities and their stages in SQLite.

Every verb is one write transaction, so what it read stays true until it has written: fences are
compared in Python, and rows are written one by one.
"""

from __future__ import annotations

from gnomon.stores.sqlite.entities.backfill import SqliteBackfill
from gnomon.stores.sqlite.entities.commits import SqliteCommits
from gnomon.stores.sqlite.entities.owner import SqliteOwner
from gnomon.stores.sqlite.entities.parked import SqliteParked
from gnomon.stores.sqlite.entities.register import SqliteRegister
from gnomon.stores.sqlite.entities.writes import SqliteWrites as SqliteEntities

__all__ = ["SqliteEntities", "SqliteQueues", "SqliteRegister"]


class SqliteQueues(SqliteParked, SqliteOwner, SqliteCommits, SqliteBackfill):
    """The `QueueStore` of this engine."""
