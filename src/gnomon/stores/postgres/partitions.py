"""Days as partitions: room for tomorrow is made ahead, and a day that is over goes as a whole.

A partition is made and dropped under an exclusive lock of its table, and behind whoever waits for
that lock everybody else waits. So nobody here waits for longer than a blink: it is tried again a
moment later, and what stays in use until the next time. (`DETACH … CONCURRENTLY` would wait for
nobody, but not beside a default partition, and without that one a result whose day has no
partition could not be recorded.)
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple

from gnomon.contracts.clock import Entropy
from gnomon.model.errors import BugError, StoreUnavailable
from gnomon.queries import in_schema
from gnomon.stores._upkeep import PROGRESS_KEPT_FOR, WORKERS_KEPT_FOR
from gnomon.stores.config import ATTEMPTS_KEPT_FOR, AUDIT_KEPT_FOR
from gnomon.stores.postgres.connection import Database, Session

BLINK_MS = 50  # for a lock that others need meanwhile
TRIES_MAX = 10
TRY_AGAIN_S = 0.2
PATIENCE = timedelta(seconds=5)  # for the rest of it, once the lock is had
LOOK = timedelta(seconds=30)
DAYS_AHEAD = 3  # today, tomorrow, and the day after: a janitor may miss a day
SAVED_MAX = 5_000  # rows of a day that is over which may be carried out of it
SAVED_SHARE = 10  # a tenth of its rows at most
FINISHED = "finished_action"
ATTEMPTS = "attempt_log"
AUDIT = "audit"
DAY = timedelta(days=1)

_DAY_OF_NAME = re.compile(r"_p(\d{4})(\d{2})(\d{2})$")


class PartitionLeft(NamedTuple):
    """What a day that is over still holds, as far as it was counted."""

    kept: int
    rows: int

    @property
    def is_little(self) -> bool:
        return self.kept <= SAVED_MAX and self.kept * SAVED_SHARE <= self.rows


class PartitionJanitor:
    """Makes and drops partitions, and deletes what found none."""

    def __init__(
        self,
        database: Database,
        *,
        entropy: Entropy,
        attempts_kept_for: timedelta = ATTEMPTS_KEPT_FOR,
        audit_kept_for: timedelta = AUDIT_KEPT_FOR,
    ) -> None:
        self._database = database
        self._entropy = entropy
        self._attempts_kept_for = attempts_kept_for
        self._audit_kept_for = audit_kept_for
        self._elsewhere: bool | None = None  # not known yet

    async def make_room(self) -> None:
        """Partitions for today and the days to come."""
        today = (await self._present()).date()
        for table in (FINISHED, ATTEMPTS, AUDIT):
            there = set(await self._partitions(table))
            for ahead in range(DAYS_AHEAD):
                day = today + ahead * DAY
                if partition_name(table, day) not in there:
                    await self._make(table, day)

    async def purge(self, limit: int) -> int:
        await self.make_room()
        gone = await self._drop_finished()
        gone += await self._drop_before(ATTEMPTS, self._attempts_kept_for)
        gone += await self._drop_before(AUDIT, self._audit_kept_for)
        for query, *kept_for in (
            ("purge_finished",),
            ("purge_attempts", self._attempts_kept_for),
            ("purge_audit", self._audit_kept_for),
            ("purge_effects",),
        ):
            gone += len(await self._database.fetch_wide(query, *kept_for, limit))
        await self._database.fetch_wide("purge_workers", WORKERS_KEPT_FOR)
        await self._database.fetch_wide("purge_progress", PROGRESS_KEPT_FOR)
        return gone

    async def _drop_finished(self) -> int:
        """Days of which nothing is kept, and those of which next to nothing is: that is carried to
        where rows without a day are, or one row a day would keep everything for good."""
        today = (await self._present()).date()
        gone = 0
        for name in await self._partitions(FINISHED):
            day = day_of(name)
            if day is None or day >= today:
                continue
            left = await self._left(name)
            if left.is_little:
                way = "purge_save_and_drop_partition" if left.kept else "purge_drop_partition"
                gone += await self._try(self._filled(way, table=FINISHED, partition=name))
        return gone

    async def _drop_before(self, table: str, kept_for: timedelta) -> int:
        oldest = (await self._present() - kept_for).date()
        gone = 0
        for name in await self._partitions(table):
            day = day_of(name)
            if day is not None and day < oldest:
                gone += await self._try(self._filled("purge_drop_partition", partition=name))
        return gone

    async def _left(self, name: str) -> PartitionLeft:
        async with self._database.transaction("purge", wide=True, patience=LOOK) as session:
            sql = self._filled("purge_partition_left", partition=name)
            rows = await session.connection.fetch(sql, SAVED_MAX + 1, SAVED_MAX * SAVED_SHARE)
            return PartitionLeft(*rows[0])

    async def _make(self, table: str, day: date) -> None:
        begins = datetime.combine(day, time(), UTC)
        await self._try(
            self._filled(
                "purge_make_partition",
                table=table,
                partition=partition_name(table, day),
                **{"from": begins.isoformat(), "to": (begins + DAY).isoformat()},
            )
        )

    async def _try(self, sql: str) -> bool:
        """Perform DDL if it can be done now. Another process may have been first, the table may be
        in use, or the default partition may hold rows of that day: all of it can wait."""
        for left in reversed(range(TRIES_MAX)):
            try:
                await self._perform(sql)
            except BugError as exc:
                return self._postponed(exc)
            except StoreUnavailable as exc:
                if not left:
                    return self._postponed(exc)
            else:
                return True
            await asyncio.sleep(TRY_AGAIN_S * (0.5 + self._entropy.fraction()))
        return False

    async def _perform(self, sql: str) -> None:
        async with self._database.transaction("purge", wide=True, patience=PATIENCE) as session:
            if await self._is_elsewhere(session):
                blink = f"PERFORM set_config('lock_timeout', '{BLINK_MS}', true)"
                script = f"BEGIN {blink}; {sql.rstrip().removesuffix(';')}; END"
                (told,) = await session.fetch("cluster_perform", f"DO $script${script}$script$")
                if not told["success"]:
                    raise StoreUnavailable(f"purge: the coordinator says {told['result']}")
                return
            await session.fetch("limit_lock", str(BLINK_MS))
            await session.execute(sql)

    async def _is_elsewhere(self, session: Session) -> bool:
        """Whether tables are changed on another node than the one we speak to."""
        if self._elsewhere is None:
            is_citus = (await session.fetch("has_citus"))[0]["found"]
            here = not is_citus or (await session.fetch("cluster_entry"))[0]["is_coordinator"]
            self._elsewhere = not here
        return self._elsewhere

    def _postponed(self, exc: Exception) -> bool:
        self._database.observer.event("store_partition_postponed", cause=str(exc))
        return False

    async def _partitions(self, table: str) -> Sequence[str]:
        rows = await self._database.fetch_wide("purge_partitions", self._database.schema, table)
        return [row["relname"] for row in rows]

    async def _present(self) -> datetime:
        now: datetime = (await self._database.fetch_wide("now"))[0]["now"]
        return now

    def _filled(self, query: str, **marks: str) -> str:
        sql = self._database.queries[query]
        for mark, value in marks.items():
            sql = sql.replace(f"/*{mark}*/", value)
        return in_schema(sql, self._database.schema)


def partition_name(table: str, day: date) -> str:
    return f"{table}_p{day:%Y%m%d}"


def day_of(partition: str) -> date | None:
    """The day a partition is for; None for the default one."""
    match = _DAY_OF_NAME.search(partition)
    return None if match is None else date(*map(int, match.groups()))
