"""Listings: the one place where SQL is put together, out of fixed fragments.

On plain PostgreSQL each shard gives its first rows in order of the id by its own index, and these
are merged; Citus does that by itself and is asked the plain question. An id is shown once: a
finished action is left out while its id lives, or if a later generation of it has finished.
"""

from __future__ import annotations

from typing import NamedTuple

from gnomon.contracts.store import ActionPage, Selection
from gnomon.model.action import Action, State
from gnomon.queries import in_schema
from gnomon.stores._pages import (
    LAST_CHAR,
    read_cursor,
    wants_finished,
    wants_live,
    write_cursor,
)
from gnomon.stores.postgres.connection import Database
from gnomon.stores.postgres.rows import Decoder

_LIVE = """
SELECT
    a.shard_id, a.id, a.guid, a.spec, a.state, a.created_at, a.updated_at,
    a.occurrence_no, a.occurrence_at, a.attempts, a.succeeded, a.failed, a.interrupted,
    a.consecutive_failures, a.consecutive_interruptions, a.occurrence_failures, a.last_attempt,
    a.scheduled_at, a.expires_at, coalesce(q.scheduled_at, i.reserved_until) AS due_at,
    coalesce(q.attempts, CASE WHEN i.guid IS NOT NULL THEN 1 END) AS begun,
    coalesce(q.running, i.guid IS NOT NULL) AS running,
    coalesce(q.attempt_id, i.attempt_id) AS attempt_id,
    coalesce(q.began_at, i.began_at) AS began_at,
    coalesce(q.deadline_at, i.deadline_at) AS deadline_at, coalesce(q.owner, i.owner) AS owner
FROM /*schema*/scheduled_action AS a
LEFT JOIN /*schema*/processing_queue AS q ON q.shard_id = a.shard_id AND q.guid = a.guid
LEFT JOIN /*schema*/incoming_queue AS i ON i.shard_id = a.shard_id AND i.created_at = a.updated_at
    AND i.guid = a.guid AND i.attempt_id IS NOT NULL
WHERE a.id > $1::text {conditions}
ORDER BY a.id
LIMIT $2::int
"""
_FINISHED = """
SELECT
    a.shard_id, a.id, a.guid, a.spec, a.state, a.created_at, a.updated_at,
    a.occurrence_no, a.occurrence_at, a.attempts, a.succeeded, a.failed, a.interrupted,
    a.consecutive_failures, a.consecutive_interruptions, a.occurrence_failures, a.last_attempt,
    a.attempt_id, a.began_at, a.reason, a.finished_at
FROM /*schema*/finished_action AS a
WHERE a.id > $1::text AND a.purge_at > statement_timestamp()
  AND NOT EXISTS (
      SELECT FROM /*schema*/scheduled_action AS s WHERE s.shard_id = a.shard_id AND s.id = a.id
  )
  AND NOT EXISTS (
      SELECT FROM /*schema*/finished_action AS f
      WHERE f.shard_id = a.shard_id AND f.id = a.id AND f.purge_at > statement_timestamp()
        AND (f.finished_at, f.guid) > (a.finished_at, a.guid)
  )
  {conditions}
ORDER BY a.id
LIMIT $2::int
"""
_PER_SHARD = """
SELECT found.*
FROM /*schema*/shard_lock AS l
CROSS JOIN LATERAL ({part}) AS found
ORDER BY found.id
LIMIT $2::int
"""
_OF_SHARD = "AND a.shard_id = l.shard_id"
_DUE = (
    "AND a.state = 'active' "
    "AND coalesce(q.scheduled_at, i.reserved_until, a.scheduled_at) < ${place}::timestamptz"
)
# Says in words what the partial index wants to hear.
_TROUBLE = "AND a.state <> 'done'"


class Condition(NamedTuple):
    """A fragment with `{place}` for its parameter's number, and the value."""

    fragment: str
    value: object


async def list_page(
    database: Database, decoder: Decoder, selection: Selection, *, after: str | None, limit: int
) -> ActionPage:
    """One page; one row more is read than shown, to know whether there is a next one."""
    conditions = _conditions(selection)
    parts = []
    if wants_live(selection):
        parts.append((_LIVE, ""))
    if wants_finished(selection):
        parts.append((_FINISHED, "" if State.DONE in (selection.states or State) else _TROUBLE))
    values = [read_cursor(after), limit + 1, *(condition.value for condition in conditions)]
    actions: dict[str, Action] = {}
    for template, extra in parts:  # live ones first: what ends meanwhile is shown as it was
        sql = _statement(database, template, conditions, extra)
        for row in await database.fetch_text("list", sql, *values):
            actions.setdefault(row["id"], decoder.action_of(row))
    shown = [actions[name] for name in sorted(actions)[:limit]]
    return ActionPage(
        actions=shown, next=write_cursor(shown[-1].meta.id) if len(actions) > limit else None
    )


def _statement(database: Database, template: str, conditions: list[Condition], extra: str) -> str:
    fragments = [
        condition.fragment.format(place=number)
        for number, condition in enumerate(conditions, start=3)
    ]
    if database.many_shards:
        fragments.insert(0, _OF_SHARD)
    sql = template.format(conditions=" ".join((*fragments, extra)))
    if database.many_shards:
        sql = _PER_SHARD.format(part=sql)
    return in_schema(sql, database.schema)


def _conditions(selection: Selection) -> list[Condition]:
    conditions = []
    if selection.states:
        states = [str(state) for state in selection.states]
        conditions.append(Condition("AND a.state = ANY (${place}::text[])", states))
    if selection.queue is not None:
        conditions.append(Condition("AND a.queue = ${place}::text", selection.queue))
    if selection.id_prefix:
        conditions.append(Condition("AND a.id >= ${place}::text", selection.id_prefix))
        conditions.append(Condition("AND a.id < ${place}::text", selection.id_prefix + LAST_CHAR))
    if selection.due_before is not None:
        conditions.append(Condition(_DUE, selection.due_before))
    for name, value in selection.labels.items():
        path = ["labels", name]
        conditions.append(Condition("AND /*schema*/spec_json(a.spec) #>> ${place}::text[]", path))
        conditions.append(Condition("= ${place}::text", value))
    return conditions
