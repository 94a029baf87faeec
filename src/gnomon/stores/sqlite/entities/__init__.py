"""Entities and their stages in SQLite.

Every verb is one write transaction, so what it read stays true until it has written: fences are
compared in Python, and rows are written one by one.
"""

from __future__ import annotations

from gnomon.stores.sqlite.entities.backfill import SqliteBackfill
from gnomon.stores.sqlite.entities.commits import SqliteCommits
from gnomon.stores.sqlite.entities.owner import SqliteOwner
from gnomon.stores.sqlite.entities.register import SqliteRegister
from gnomon.stores.sqlite.entities.writes import SqliteWrites

__all__ = ["SqliteEntities"]


class SqliteEntities(SqliteWrites, SqliteRegister, SqliteOwner, SqliteCommits, SqliteBackfill):
    """The `EntityStore` of this engine."""
