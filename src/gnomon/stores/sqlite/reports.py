"""Reports in SQLite: why an action waits, what failed."""

from __future__ import annotations

from gnomon.contracts.store import FailedAction, FailedActions, WaitFacts
from gnomon.contracts.store.reports import BEHIND_MAX
from gnomon.model.action import Action
from gnomon.stores._failures import QUEUES_MAX, failed_action, part_of
from gnomon.stores._limit_shares import SHOWN_FOR, use_of
from gnomon.stores.sqlite.actions import find_action
from gnomon.stores.sqlite.history import SqliteHistory
from gnomon.stores.sqlite.leases import lock_of, worker_of
from gnomon.stores.sqlite.load import SqliteLoad
from gnomon.stores.sqlite.queries import fetch, fetch_one
from gnomon.stores.sqlite.rows import micros, moment
from gnomon.stores.sqlite.verbs import Connection, read


class SqliteReports(SqliteHistory, SqliteLoad):
    """The `ReportStore` of this engine."""

    @read
    def why(self, connection: Connection, id: str) -> WaitFacts | None:
        now = self._clock.now()
        action = find_action(connection, id, micros(now))
        if action is None:
            return None
        (lock,) = fetch(connection, "why_lock", {"shard": action.meta.shard})
        shown = {"asked_since": micros(now - SHOWN_FOR)}
        return WaitFacts(
            now=now,
            action=action,
            lock=lock_of(lock, now),
            workers=[worker_of(row, now) for row in fetch(connection, "list_workers")],
            limits=[use_of(row) for row in fetch(connection, "list_limits", shown)],
            behind=_behind(connection, action, micros(now)),
        )

    @read
    def failures(self, connection: Connection, *, queue: str | None, limit: int) -> FailedActions:
        now = self._clock.now()
        queues = [queue] if queue is not None else _dead_queues(connection)
        most = part_of(limit, queues)
        actions: list[FailedAction] = []
        partial = False
        for name in queues:
            bounds = {"queue": name, "now": micros(now), "limit": most}
            rows = fetch(connection, "failures_dead", bounds)
            partial |= len(rows) >= most
            last = [row for row in rows if not row["is_replaced"]]
            actions += [failed_action(row, is_dead=True, moment=moment) for row in last]
        rows = fetch(connection, "failures_retrying", {"limit": limit})
        partial |= len(rows) >= limit or len(queues) >= QUEUES_MAX
        retrying = (failed_action(row, is_dead=False, moment=moment) for row in rows)
        actions += [action for action in retrying if queue in (None, action.queue)]
        return FailedActions(at=now, actions=actions, partial=partial)


def _dead_queues(connection: Connection) -> list[str]:
    queues: list[str] = []
    while len(queues) < QUEUES_MAX:
        last = {"queue": queues[-1] if queues else ""}
        row = fetch_one(connection, "failures_queue_after", last)
        if row is None:
            break
        queues.append(row["queue"])
    return queues


def _behind(connection: Connection, action: Action, now_us: int) -> int:
    """First priorities first; counted until the bound is reached."""
    status, spec = action.status, action.spec
    if status.scheduled_at is None or status.state.is_terminal:
        return 0
    lane = {"shard": action.meta.shard, "queue": spec.queue, "need": status.need or ""}
    behind = 0
    for priority in range(spec.priority + 1):
        before = now_us if priority < spec.priority else micros(status.scheduled_at)
        bounds = {"priority": priority, "before": before, "limit": BEHIND_MAX - behind}
        (row,) = fetch(connection, "why_behind", lane | bounds)
        behind += row["behind"]
    return behind
