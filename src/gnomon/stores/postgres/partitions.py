"""Days as partitions: room for tomorrow is made ahead, and a day that is over goes as a whole.

Nothing here waits long: a partition that is in use now is tried again the next time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta

from gnomon.model.errors import BugError, StoreUnavailable
from gnomon.queries import in_schema
from gnomon.stores.config import AUDIT_KEPT_FOR
from gnomon.stores.postgres.connection import Database

PATIENCE_MS = 1_000
LOOK_MS = 30_000
DAYS_AHEAD = 3  # today, tomorrow, and the day after: a janitor may miss a day
ATTEMPTS_KEPT_FOR = timedelta(days=7)
WORKERS_KEPT_FOR = timedelta(days=1)
FINISHED = "finished_action"
ATTEMPTS = "attempt_log"
DAY = timedelta(days=1)

_DAY_OF_NAME = re.compile(r"_p(\d{4})(\d{2})(\d{2})$")


class Janitor:
    """Makes and drops partitions, and deletes what found none."""

    def __init__(
        self,
        database: Database,
        *,
        attempts_kept_for: timedelta = ATTEMPTS_KEPT_FOR,
        audit_kept_for: timedelta = AUDIT_KEPT_FOR,
    ) -> None:
        self._database = database
        self._attempts_kept_for = attempts_kept_for
        self._audit_kept_for = audit_kept_for

    async def make_room(self) -> None:
        """Partitions for today and the days to come."""
        today = (await self._present()).date()
        for table in (FINISHED, ATTEMPTS):
            there = set(await self._partitions(table))
            for ahead in range(DAYS_AHEAD):
                day = today + ahead * DAY
                if partition_name(table, day) not in there:
                    await self._make(table, day)

    async def purge(self, limit: int) -> int:
        await self.make_room()
        gone = await self._drop_finished()
        gone += await self._drop_attempts()
        await self._database.fetch_wide("purge_workers", WORKERS_KEPT_FOR)
        await self._database.fetch_wide("purge_effects")
        gone += len(await self._database.fetch_wide("purge_finished", limit))
        gone += len(
            await self._database.fetch_wide("purge_attempts", self._attempts_kept_for, limit)
        )
        gone += len(await self._database.fetch_wide("purge_audit", self._audit_kept_for, limit))
        return gone

    async def _drop_finished(self) -> int:
        today = (await self._present()).date()
        gone = 0
        for name in await self._partitions(FINISHED):
            day = day_of(name)
            if day is not None and day < today and not await self._has_kept_rows(name):
                gone += await self._drop(name)
        return gone

    async def _drop_attempts(self) -> int:
        oldest = (await self._present() - self._attempts_kept_for).date()
        gone = 0
        for name in await self._partitions(ATTEMPTS):
            day = day_of(name)
            if day is not None and day < oldest:
                gone += await self._drop(name)
        return gone

    async def _has_kept_rows(self, name: str) -> bool:
        async with self._database.transaction("purge", wide=True) as session:
            await session.fetch("limit_statement", str(LOOK_MS))
            sql = self._filled("has_kept_rows", partition=name)
            return bool(await session.connection.fetchval(sql))

    async def _make(self, table: str, day: date) -> None:
        begins = datetime.combine(day, time(), UTC)
        await self._try(
            self._filled(
                "make_partition",
                table=table,
                partition=partition_name(table, day),
                **{"from": begins.isoformat(), "to": (begins + DAY).isoformat()},
            )
        )

    async def _drop(self, name: str) -> int:
        return int(await self._try(self._filled("drop_partition", partition=name)))

    async def _try(self, sql: str) -> bool:
        """Perform DDL if it can be done now. Another process may have been first, the table may be
        in use, or the default partition may hold rows of that day: all of it can wait."""
        try:
            async with self._database.transaction("purge", wide=True) as session:
                await session.fetch("limit_statement", str(PATIENCE_MS))
                await session.execute(sql)
        except (StoreUnavailable, BugError) as exc:
            self._database.observer.event("store_partition_postponed", cause=str(exc))
            return False
        return True

    async def _partitions(self, table: str) -> Sequence[str]:
        rows = await self._database.fetch_wide("partitions", self._database.schema, table)
        return [row[0] for row in rows]

    async def _present(self) -> datetime:
        found: datetime = (await self._database.fetch_wide("now"))[0][0]
        return found

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
