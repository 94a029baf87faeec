"""Reports in PostgreSQL: why an action waits, what failed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from operator import itemgetter
from uuid import UUID

from gnomon.contracts.store import FailedAction, FailedActions, WaitFacts
from gnomon.contracts.store.reports import BEHIND_MAX
from gnomon.model.action import Action
from gnomon.model.ids import shard_of
from gnomon.stores._failures import QUEUES_MAX, failed_action, part_of
from gnomon.stores._limit_shares import SHOWN_FOR, use_of
from gnomon.stores.postgres.connection import Database, PoolSession, Row, read_now
from gnomon.stores.postgres.history import PostgresHistory
from gnomon.stores.postgres.leases import lock_of, worker_of
from gnomon.stores.postgres.load import PostgresLoad
from gnomon.stores.postgres.parts import Only
from gnomon.stores.postgres.rows import Decoder


class PostgresReports(PostgresHistory, PostgresLoad):
    """The `ReportStore` of this engine."""

    def __init__(self, database: Database, decoder: Decoder) -> None:
        super().__init__(database)
        self._decoder = decoder

    async def why(self, id: str) -> WaitFacts | None:
        shard = shard_of(id, await self._database.shard_count())
        only = self._database.only(shard)
        async with self._database.transaction("why") as session:
            action = await self._find(session, id, shard, only)
            if action is None:
                return None
            (lock,) = await session.fetch("why_lock", shard)
            workers = await session.fetch("list_workers")
            limits = await session.fetch("list_limits", SHOWN_FOR)
            return WaitFacts(
                now=await read_now(session),
                action=action,
                lock=lock_of(lock),
                workers=[worker_of(row) for row in workers],
                limits=[use_of(row) for row in limits],
                behind=await _behind(session, action),
            )

    async def failures(self, *, queue: str | None, limit: int) -> FailedActions:
        actions: list[FailedAction] = []
        partial = False
        async with self._database.transaction("failures") as session:
            queues = [queue] if queue is not None else await _dead_queues(session)
            most = part_of(limit, queues)
            for name in queues:
                rows = await session.fetch("failures_dead", name, most)
                partial |= len(rows) >= most
                replaced = await self._replaced(session, rows)
                actions += [
                    failed_action(row, is_dead=True, moment=_as_it_is)
                    for row in rows
                    if row["guid"] not in replaced
                ]
            rows = await session.fetch("failures_retrying", limit)
            partial |= len(rows) >= limit or len(queues) >= QUEUES_MAX
            retrying = (failed_action(row, is_dead=False, moment=_as_it_is) for row in rows)
            actions += [action for action in retrying if queue in (None, action.queue)]
            return FailedActions(at=await read_now(session), actions=actions, partial=partial)

    async def _replaced(self, session: PoolSession, rows: Sequence[Row]) -> set[UUID]:
        guids: set[UUID] = set()
        for some, only in self._database.split(rows, itemgetter("shard_id")):
            columns = [[row[name] for row in some] for name in ("shard_id", "id", "guid", "at")]
            replaced = await session.fetch("failures_replaced", *columns, *only)
            guids |= {row["guid"] for row in replaced}
        return guids

    async def _find(self, session: PoolSession, id: str, shard: int, only: Only) -> Action | None:
        for query in ("get_live", "get_finished"):
            rows = await session.fetch(query, [shard], [id], *only)
            if rows:
                return self._decoder.action_of(rows[0])
        return None


async def _dead_queues(session: PoolSession) -> list[str]:
    queues: list[str] = []
    while len(queues) < QUEUES_MAX:
        rows = await session.fetch("failures_queue_after", queues[-1] if queues else "")
        if not rows:
            break
        queues.append(rows[0]["queue"])
    return queues


def _as_it_is(at: datetime) -> datetime:
    return at


async def _behind(session: PoolSession, action: Action) -> int:
    status, spec = action.status, action.spec
    if status.scheduled_at is None or status.state.is_terminal:
        return 0
    (row,) = await session.fetch(
        "why_behind",
        action.meta.shard,
        spec.queue,
        spec.priority,
        status.need or "",
        status.scheduled_at,
        BEHIND_MAX,
    )
    count: int = row["behind"]
    return count
