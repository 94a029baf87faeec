"""Listings: the one place where SQL is put together, out of fixed fragments.

On plain PostgreSQL each shard gives its first rows in order of the id by its own index, and these
are merged; Citus does that by itself and is asked the plain question. An id is shown once: a
finished action is left out while its id lives, or if a later generation of it has finished.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from gnomon.contracts.store import ActionPage, Selection
from gnomon.model.action import Action, State
from gnomon.model.arguments import ArgumentFilter, Path
from gnomon.queries import in_schema
from gnomon.stores._pages import (
    LAST_CHAR,
    LOOKED_AT_MAX,
    RECURRING_POLICIES,
    filters_of,
    is_sought,
    nearest,
    read_cursor,
    wants_finished,
    wants_live,
    wants_paused,
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
    coalesce(q.deadline_at, i.deadline_at) AS deadline_at, coalesce(q.owner, i.owner) AS owner,
    q.need, a.reason, a.paused_until
FROM /*schema*/scheduled_action AS a
LEFT JOIN /*schema*/processing_queue AS q ON q.shard_id = a.shard_id AND q.guid = a.guid
LEFT JOIN /*schema*/incoming_queue AS i ON i.shard_id = a.shard_id AND i.created_at = a.updated_at
    AND i.guid = a.guid AND i.attempt_id IS NOT NULL
WHERE a.id > $1::text {conditions}
{order}
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
{order}
LIMIT $2::int
"""
_PER_SHARD = """
SELECT found.*
FROM /*schema*/shard_lock AS l
CROSS JOIN LATERAL ({part}) AS found
ORDER BY found.id
LIMIT $2::int
"""
# Where looking ends: behind an equal number of rows of every shard, and before the first that ends.
_END = """
SELECT a.id
FROM /*schema*/{table} AS a
WHERE a.id > $1::text {conditions}
ORDER BY a.id
OFFSET $2::int
LIMIT 1
"""
_END_OF_SHARDS = """
SELECT min(found.id) AS id
FROM /*schema*/shard_lock AS l
CROSS JOIN LATERAL ({part}) AS found
"""
_COUNTED = "SELECT count(*) FROM ({listed}) AS listed"
_ORDER = "ORDER BY a.id"
_OF_SHARD = "AND a.shard_id = l.shard_id"
_DUE = (
    "AND a.state = 'active' "
    "AND coalesce(q.scheduled_at, i.reserved_until, a.scheduled_at) < ${place}::timestamptz"
)
_FUNCTION = "AND /*schema*/spec_json(a.spec) #>> '{{action,function}}' = ${place}::text"
_POLICY = "AND /*schema*/spec_json(a.spec) #>> '{{policy,type}}' = ANY (${place}::text[])"
_SEARCH = (
    "AND strpos(lower(concat_ws(chr(10), a.id, a.queue, "
    "/*schema*/spec_json(a.spec) #>> '{{action,function}}')), ${place}::text) > 0"
)
_ERROR = "AND strpos(/*schema*/spec_json(a.last_attempt) ->> 'error', ${place}::text) > 0"
_ARGUMENT = "AND jsonb_path_exists(/*schema*/spec_json(a.spec), ${place}::text::jsonpath,"
# Says in words what the partial index wants to hear.
_TROUBLE = "AND a.state <> 'done'"
_PAUSED = "AND a.state = 'paused'"
_RECURRING = "AND position('\"policy\":{' IN a.spec) > 0"


class Condition(NamedTuple):
    """A fragment with `{place}` for its parameter's number, and the value."""

    fragment: str
    value: object


async def list_page(
    database: Database, decoder: Decoder, selection: Selection, *, after: str | None, limit: int
) -> ActionPage:
    """One page; one row more is read than shown, to know whether there is a next one."""
    begin = read_cursor(after)
    end = await _end(database, selection, begin) if is_sought(selection) else None
    conditions = _conditions(selection)
    if end is not None:
        conditions.append(Condition("AND a.id <= ${place}::text", end))
    values = [begin, limit + 1, *(condition.value for condition in conditions)]
    actions: dict[str, Action] = {}
    for template, extra in _parts(selection):
        sql = _statement(database, template, conditions, extra)
        for row in await database.fetch_text("list", sql, *values):
            actions.setdefault(row["id"], decoder.action_of(row))
    shown = [actions[name] for name in sorted(actions)[:limit]]
    last = shown[-1].meta.id if len(actions) > limit else end
    return ActionPage(
        actions=shown,
        next=None if last is None else write_cursor(last),
        looked_at=None if end is None or len(actions) > limit else LOOKED_AT_MAX,
    )


async def _end(database: Database, selection: Selection, begin: str) -> str | None:
    """The id up to which rows are looked at; None if that is all of them."""
    prefix = _conditions(Selection(id_prefix=selection.id_prefix))
    shards = await database.shard_count() if database.many_shards else 1
    values = [begin, max(1, LOOKED_AT_MAX // shards), *(condition.value for condition in prefix)]
    ends = []
    for template, extra in _parts(selection):
        table = "scheduled_action" if template is _LIVE else "finished_action"
        of_shard = _OF_SHARD if database.many_shards else ""
        sql = _END.format(table=table, conditions=f"{of_shard} {_text(prefix, extra)}")
        if database.many_shards:
            sql = _END_OF_SHARDS.format(part=sql)
        rows = await database.fetch_text("list", in_schema(sql, database.schema), *values)
        ends += [row["id"] for row in rows]
    return nearest(*ends)


async def count_selected(database: Database, selection: Selection, *, limit: int) -> int:
    """How many there are on all pages, up to the limit."""
    conditions = _conditions(selection)
    values = ["", limit, *(condition.value for condition in conditions)]
    count = 0
    for template, extra in _parts(selection):  # in any order: nothing is sorted
        listed = template.format(order="", conditions=_text(conditions, extra))
        sql = in_schema(_COUNTED.format(listed=listed), database.schema)
        (row,) = await database.fetch_text("count_selected", sql, *values)
        count += row["count"]
    return min(count, limit)


def _parts(selection: Selection) -> Iterator[tuple[str, str]]:
    """Templates, and what else is said in each; live ones first: what ends meanwhile is shown as it
    was."""
    if wants_live(selection):
        paused = _PAUSED if wants_paused(selection) else ""
        yield _LIVE, f"{paused} {_RECURRING}" if selection.recurring else paused
    if wants_finished(selection):
        yield _FINISHED, "" if State.DONE in (selection.states or State) else _TROUBLE


def _statement(database: Database, template: str, conditions: list[Condition], extra: str) -> str:
    of_shard = _OF_SHARD if database.many_shards else ""
    sql = template.format(order=_ORDER, conditions=f"{of_shard} {_text(conditions, extra)}")
    if database.many_shards:
        sql = _PER_SHARD.format(part=sql)
    return in_schema(sql, database.schema)


def _text(conditions: list[Condition], extra: str) -> str:
    fragments = [
        condition.fragment.format(place=number)
        for number, condition in enumerate(conditions, start=3)
    ]
    return " ".join((*fragments, extra))


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
    if selection.function is not None:
        conditions.append(Condition(_FUNCTION, selection.function))
    if selection.error_contains:
        conditions.append(Condition(_ERROR, selection.error_contains))
    if selection.search:
        conditions.append(Condition(_SEARCH, selection.search.lower()))
    if selection.recurring:
        conditions.append(Condition(_POLICY, list(RECURRING_POLICIES)))
    if selection.paused_for is not None:
        conditions.append(Condition("AND a.reason = ${place}::text", selection.paused_for))
    for name, value in selection.labels.items():
        path = ["labels", name]
        conditions.append(Condition("AND /*schema*/spec_json(a.spec) #>> ${place}::text[]", path))
        conditions.append(Condition("= ${place}::text", value))
    for match in filters_of(selection):
        conditions += _argument(match)
    return conditions


def _argument(match: ArgumentFilter) -> list[Condition]:
    """One reading of the spec, whichever effect it has; strict: a list is not looked through."""
    wanted = "@ == $text || @ == $plain" if match.has_plain else "@ == $text"
    places = [f"exists(@{_steps(path)} ? ({wanted}))" for path in match.paths]
    places += [
        f'(@.function == "{name}" && exists(@{_steps(path)} ? ({wanted})))'
        for name, path in match.paths_by_function
    ]
    values = {"text": match.text, "plain": match.plain}
    return [
        Condition(_ARGUMENT, f"strict $.action ? ({' || '.join(places)})"),
        Condition("${place}::text::jsonb, true)", msgspec.json.encode(values).decode()),
    ]


def _steps(path: Path) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f'."{part}"' for part in path)
