"""Puts the status of an installation together, out of what the store and the task tables tell."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from gnomon.contracts.status import (
    InstallationStatus,
    TaskTableStatus,
    UnservedStatus,
    WorkerStatus,
)
from gnomon.contracts.store import Installation, Store
from gnomon.contracts.store.figures import COUNT_MAX
from gnomon.contracts.task_rows import TaskRows
from gnomon.model.errors import GnomonError
from gnomon.worker.unserved import ALIVE_FOR, find_unserved

TASKS_MAX = 500  # looked at in each table
TASKS_WITHIN_S = 3.0
NOTHING = timedelta(0)


async def look_over(
    store: Store, installation: Installation, task_tables: Mapping[str, TaskRows]
) -> InstallationStatus:
    """How the installation is now. Errors: StoreUnavailable; a task table that does not answer has
    its own problem."""
    figures = await store.installation.figures(limit=COUNT_MAX, alive_for=ALIVE_FOR)
    tables = table_statuses(task_tables, figures.at)
    unserved = await find_unserved(store, range(installation.shard_count))
    status = InstallationStatus(
        installation=installation.id,
        engine=installation.engine,
        durability=installation.durability,
        at=figures.at,
        limit=figures.limit,
        queues=figures.queues,
        stages=figures.stages,
        workers=await _workers(store),
        shards=figures.shards,
        shards_unowned=figures.shards_unowned,
        unserved=[
            UnservedStatus(need=one.need, count=one.count, since=one.since) for one in unserved
        ],
        task_tables=await tables,
        partial=figures.partial,
    )
    return msgspec.structs.replace(status, problems=status.find_problems())


async def _workers(store: Store) -> Sequence[WorkerStatus]:
    """Those that live, and those that did not say goodbye."""
    held = Counter(lock.owner for lock in await store.leases.list_locks())
    rows = sorted(await store.leases.list_workers(), key=lambda row: row.owner)
    return [
        WorkerStatus(
            owner=row.owner,
            silent_for=max(NOTHING, row.silent_for),
            is_alive=row.silent_for < ALIVE_FOR,
            shards=held[row.owner],
            only_queues=row.offer.only,
            never_queues=row.offer.never,
        )
        for row in rows
    ]


async def table_statuses(
    tables: Mapping[str, TaskRows], now: datetime
) -> Sequence[TaskTableStatus]:
    """Of each in order of its name, at the same time."""
    asked = [_table_status(name, rows, now) for name, rows in sorted(tables.items())]
    return await asyncio.gather(*asked)


async def _table_status(name: str, rows: TaskRows, now: datetime) -> TaskTableStatus:
    try:
        async with asyncio.timeout(TASKS_WITHIN_S):
            return await _counted(name, rows, now)
    except TimeoutError:
        problem = f"it did not answer within {TASKS_WITHIN_S:g} s"
    except GnomonError as exc:
        problem = str(exc)
    return TaskTableStatus(table=name, limit=TASKS_MAX, problem=problem)


async def _counted(name: str, rows: TaskRows, now: datetime) -> TaskTableStatus:
    planned = await rows.page(states=("PLAN",), group=None, after=0, limit=TASKS_MAX)
    running = await rows.page(states=("TAKE", "WORK"), group=None, after=0, limit=TASKS_MAX)
    failed = await rows.page(states=("FAIL",), group=None, after=0, limit=TASKS_MAX)
    overdue = [task.plan for task in planned if task.plan <= now]
    return TaskTableStatus(
        table=name,
        limit=TASKS_MAX,
        waiting=len(planned) - len(overdue),
        overdue=len(overdue),
        running=len(running),
        failed=len(failed),
        overdue_for=now - min(overdue, default=now),
    )
