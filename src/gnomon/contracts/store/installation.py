"""The installation: its schema, its identity, its upkeep; and hints between processes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from gnomon.contracts.store.figures import InstallationFigures
from gnomon.contracts.store.measures import StoreMeasures
from gnomon.contracts.store.value import Value


class Installation(Value, frozen=True):
    """What was fixed when the store was installed."""

    id: UUID
    shard_count: int
    schema_version: int
    durability: str  # replicated, local, none: what a commit survives
    engine: str


class Finding(Value, frozen=True):
    """Something the doctor found: which rule is broken, by which action, and how."""

    rule: str
    subject: str
    detail: str


class InstallationStore(Protocol):
    """The schema and its upkeep."""

    async def migrate(self, *, shard_count: int) -> Sequence[str]:
        """Bring the schema to this program's version, or create it; the names of what was applied.

        Safe to repeat and to call from several processes at once. `shard_count` counts at the
        first time only. Errors: SchemaMismatch if the schema is newer than the program;
        InvalidRequest if a part of its tables is distributed over several machines and a part not.
        """
        ...

    async def placement(self) -> str | None:
        """How the tables are spread over several machines, in words; None: there is one."""
        ...

    async def open(self) -> Installation:
        """Check version and floor, read the installation. Errors: SchemaMismatch."""
        ...

    async def verify_identity(self) -> str | None:
        """None if this is the database that was installed, else in what it differs (a copy, a
        restore, a fail-over). Nothing may be begun until it was adopted."""
        ...

    async def adopt(self, *, past_due: str) -> int:
        """Accept the present database as the installation. `past_due`: `run` keeps what came due,
        `skip` ends overdue one-shots as expired and moves periodic ones on. How many were skipped.
        """
        ...

    async def now(self) -> datetime:
        """The database's present."""
        ...

    async def doctor(self, shards: Sequence[int] | None = None) -> Sequence[Finding]:
        """Check the invariants of what is stored; empty when all is well. Read-only.

        Of some shards only, so that it takes the less time; an engine that finds no shard's rows by
        themselves checks everything with shard 0, and nothing with the others.
        """
        ...

    async def figures(self, *, limit: int, alive_for: timedelta) -> InstallationFigures:
        """What waits, is overdue, runs and has died, by queue and by stage; and who is there.

        Cheap with millions of rows: found by steps from lane to lane in the indexes, and each count
        ends at `limit`, or sooner if there are many queues (`figures.limit_for`). Of arrivals that
        nobody has moved yet the oldest of each shard are looked at only. Who gave no sign of life
        for `alive_for` counts as gone. Read-only; the counts are of about the same moment. Paused
        actions are not counted, nor timers of stages.
        """
        ...

    async def measure(self) -> StoreMeasures:
        """How large the database and its tables are, and who holds back their cleaning.

        Cheap however large they are: by what the engine has counted already. Read-only.
        """
        ...

    async def purge(self, *, limit: int) -> int:
        """Remove finished actions, attempts and audit entries whose retention is over, up to
        `limit` rows of each; how many rows or partitions went. If that is `limit` or more, more may
        be left. Also makes room for tomorrow. Never waits long for a lock, nor lets others wait."""
        ...


class Wakeups(Protocol):
    """Hints that something arrived. All of them may be lost without harm."""

    def hint(self, shards: Collection[int]) -> None:
        """Tell the owners of these shards, soon, at most a few times a second per process."""
        ...

    async def listen(self, callback: Callable[[frozenset[int]], None]) -> None:
        """Call back with the shards of every hint until cancelled. Never raises for a lost
        connection: it reconnects, and calls back with an empty set (anything may have come)."""
        ...
