"""Listings: the one place where SQL is put together, out of fixed fragments.

On plain PostgreSQL each shard gives its first rows in order of the id by its own index, and these
are merged; Citus does that by itself and is asked the plain question. An id is shown once: a
finished action is left out while its id lives, or if a later generation of it has finished.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from gnomon.contracts.store import ActionPage, SelectedCount, Selection
from gnomon.model.action import Action
from gnomon.model.arguments import ArgumentFilter, Path
from gnomon.queries import in_schema
from gnomon.stores._pages import (
    DUE_LANES_MAX,
    DUE_MAX,
    LAST_CHAR,
    LOOKED_AT_MAX,
    RECURRING_POLICIES,
    ListPart,
    filters_of,
    is_sought,
    nearest,
    plain_text,
    read_cursor,
    wants_finished,
    wants_live,
    wants_paused,
    wants_trouble,
    write_cursor,
)
from gnomon.stores.postgres.connection import Database, Row
from gnomon.stores.postgres.in_place import IN_PLACE
from gnomon.stores.postgres.rows import Decoder

FEW = 4  # of a shard at least, and so many times its even part

_LIVE_COLUMNS = """
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
"""
_LIVE = (
    _LIVE_COLUMNS
    + """
FROM /*schema*/scheduled_action AS a
LEFT JOIN /*schema*/processing_queue AS q ON q.shard_id = a.shard_id AND q.guid = a.guid
LEFT JOIN /*schema*/incoming_queue AS i ON i.shard_id = a.shard_id AND i.created_at = a.updated_at
    AND i.guid = a.guid AND i.attempt_id IS NOT NULL
WHERE a.id > $1::text {conditions}
{order}
LIMIT least($2::int, $3::int)
"""
)
# The rows of a page are picked first, and only these are looked up in the queues. No plan may be
# chosen there: see work.sql.
_PICKED = """
SELECT a.*
FROM /*schema*/scheduled_action AS a
WHERE a.id > $1::text {conditions}
{order}
LIMIT least($2::int, $3::int)
"""
_QUEUED = """
FROM ({picked}) AS a
LEFT JOIN LATERAL (
    SELECT p.* FROM /*schema*/processing_queue AS p
    WHERE p.guid = a.guid AND p.shard_id = a.shard_id
    LIMIT 1
) AS q ON true
LEFT JOIN LATERAL (
    SELECT n.* FROM /*schema*/incoming_queue AS n
    WHERE n.shard_id = a.shard_id AND n.created_at = a.updated_at AND n.guid = a.guid
      AND n.attempt_id IS NOT NULL
    LIMIT 1
) AS i ON true
ORDER BY a.id
"""
_PICKED_QUEUED = _LIVE_COLUMNS + _QUEUED
_FINISHED = """
SELECT
    a.shard_id, a.id, a.guid, a.spec, a.state, a.created_at, a.updated_at,
    a.occurrence_no, a.occurrence_at, a.attempts, a.succeeded, a.failed, a.interrupted,
    a.consecutive_failures, a.consecutive_interruptions, a.occurrence_failures, a.last_attempt,
    a.attempt_id, a.began_at, a.reason, a.finished_at
FROM /*schema*/finished_action AS a
WHERE a.id > $1::text AND a.purge_at > statement_timestamp()
  AND NOT EXISTS (
      SELECT 1 FROM /*schema*/scheduled_action AS s WHERE s.shard_id = a.shard_id AND s.id = a.id
  )
  AND NOT EXISTS (
      SELECT 1 FROM /*schema*/finished_action AS f
      WHERE f.shard_id = a.shard_id AND f.id = a.id AND f.purge_at > statement_timestamp()
        AND (f.finished_at, f.guid) > (a.finished_at, a.guid)
  )
  {conditions}
{order}
LIMIT least($2::int, $3::int)
"""
# $1 after, $2 rows in all, $3 rows of each shard
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
_COUNTED_SHARDS = """
SELECT count(*)
FROM (
    SELECT 1
    FROM /*schema*/shard_lock AS l
    CROSS JOIN LATERAL ({listed}) AS found
    LIMIT $2::int
) AS counted
"""
_ORDER = "ORDER BY a.id"
_OF_SHARD = "AND a.shard_id = l.shard_id"
_DUE = (
    "AND a.state = 'active' "
    "AND coalesce(q.scheduled_at, i.reserved_until, a.scheduled_at) < ${place}::timestamptz"
)
_PICKED_DUE = """AND a.state = 'active' AND coalesce(
    (SELECT q.scheduled_at FROM /*schema*/processing_queue AS q
     WHERE q.guid = a.guid AND q.shard_id = a.shard_id LIMIT 1),
    (SELECT i.reserved_until FROM /*schema*/incoming_queue AS i
     WHERE i.shard_id = a.shard_id AND i.created_at = a.updated_at AND i.guid = a.guid
       AND i.attempt_id IS NOT NULL LIMIT 1),
    a.scheduled_at
) < ${place}::timestamptz"""
_FUNCTION = "AND /*schema*/spec_json(a.spec) #>> '{{action,function}}' = ${place}::text"
_ERROR = "AND strpos(/*schema*/spec_json(a.last_attempt) ->> 'error', ${place}::text) > 0"
# Cheaper than reading JSON, and so looked at before.
_HAS_IN_SPEC = "AND strpos(a.spec, ${place}::text) > 0"
_HAS_IN_ATTEMPT = "AND strpos(a.last_attempt, ${place}::text) > 0"
_POLICY = "AND /*schema*/spec_json(a.spec) #>> '{{policy,type}}' = ANY (${place}::text[])"
_SEARCH = (
    "AND strpos(lower(concat_ws(chr(10), a.id, a.queue, "
    "/*schema*/spec_json(a.spec) #>> '{{action,function}}')), ${place}::text) > 0"
)
_ARGUMENT = "AND jsonb_path_exists(/*schema*/spec_json(a.spec), ${place}::text::jsonpath,"
_HAS_WORD = "AND strpos(lower(a.id || a.queue || a.spec), ${place}::text) > 0"
# Say in words what the partial indexes want to hear.
_TROUBLE = "AND a.state <> 'done'"
_PAUSED = "AND a.state = 'paused'"
_RECURRING = """AND position('"policy":{{' IN a.spec) > 0"""


class Condition(NamedTuple):
    """A fragment with `{place}` for its parameter's number, and the value."""

    fragment: str
    value: object


async def list_page(
    database: Database, decoder: Decoder, selection: Selection, *, after: str | None, limit: int
) -> ActionPage:
    """One page; one row more is read than shown, to know whether there is a next one."""
    begin = read_cursor(after)
    conditions = _conditions(selection, database)
    parts = _parts(selection, database)
    end = None
    if is_sought(selection):
        due = await _due_ids(database, selection)
        if due is not None:
            conditions.append(Condition("AND a.id = ANY (${place}::text[])", due))
        else:
            end = await _end(database, parts, selection.id_prefix, begin)
    return await _page(database, decoder, parts, conditions, begin=begin, end=end, limit=limit)


async def _page(
    database: Database,
    decoder: Decoder,
    parts: Sequence[ListPart],
    conditions: list[Condition],
    *,
    begin: str,
    end: str | None,
    limit: int,
) -> ActionPage:
    """Actions out of all parts (live, finished) by id; what is in two parts counts in the first."""
    conditions = _until(conditions, end)
    actions: dict[str, Action] = {}
    for part in parts:
        for row in await _rows(database, part, conditions, begin, limit + 1):
            actions.setdefault(row["id"], decoder.action_of(row))
    shown = [actions[name] for name in sorted(actions)[:limit]]
    last = shown[-1].meta.id if len(actions) > limit else end
    return ActionPage(
        actions=shown,
        next=None if last is None else write_cursor(last),
        looked_at=None if end is None or len(actions) > limit else LOOKED_AT_MAX,
    )


async def _rows(
    database: Database, part: ListPart, conditions: list[Condition], begin: str, limit: int
) -> Sequence[Row]:
    """The first rows. Ids are spread over the shards evenly, so that a few of each are enough; if
    a shard has given all that it may, they are asked for more."""
    shards = await database.shard_count() if database.many_shards else 1
    sql = _statement(database, part, conditions)
    values = [condition.value for condition in conditions]
    few = min(limit, FEW + FEW * -(-limit // shards))
    rows = await database.fetch_text("list", sql, begin, limit, few, *values)
    if few < limit and max(Counter(row["shard_id"] for row in rows).values(), default=0) >= few:
        rows = await database.fetch_text("list", sql, begin, limit, limit, *values)
    return rows


async def _end(
    database: Database, parts: Sequence[ListPart], id_prefix: str | None, begin: str
) -> str | None:
    """The id up to which rows are looked at; None if that is all of them."""
    prefix = _conditions(Selection(id_prefix=id_prefix), database)
    shards = await database.shard_count() if database.many_shards else 1
    values = [begin, max(1, LOOKED_AT_MAX // shards), *(condition.value for condition in prefix)]
    ends = []
    for part in parts:
        of_shard = _OF_SHARD if database.many_shards else ""
        said = _text(prefix, part.extra, first=3)
        sql = _END.format(table=part.table, conditions=f"{of_shard} {said}")
        if database.many_shards:
            sql = _END_OF_SHARDS.format(part=sql)
        rows = await database.fetch_text("list", in_schema(sql, database.schema), *values)
        ends += [row["id"] for row in rows]
    return nearest(*ends)


async def _due_ids(database: Database, selection: Selection) -> list[str] | None:
    """All that is due before the moment that is asked for, if it is not too much: then nothing has
    to be looked for in order of the id."""
    if selection.due_before is None:
        return None
    shards = range(await database.shard_count())
    ids: list[str] = []
    for some, only in database.split(shards, lambda shard: shard):
        rows = await database.fetch(
            "list_due", some, DUE_LANES_MAX, selection.due_before, DUE_MAX + 1, *only
        )
        ids += [row["id"] for row in rows]
        if len(ids) > DUE_MAX or (rows and rows[0]["lanes"] >= DUE_LANES_MAX):
            return None
        arrived = max(1, DUE_MAX // len(some))
        rows = await database.fetch("list_due_arrived", some, arrived, IN_PLACE, *only)
        if any(row["place"] >= arrived for row in rows):
            return None
        ids += [row["id"] for row in rows]
    return ids


async def count_selected(
    database: Database, selection: Selection, *, after: str | None, limit: int
) -> SelectedCount:
    """How many there are among the next rows, up to the limit."""
    begin = read_cursor(after)
    parts = _parts(selection, database)
    end = await _end(database, parts, selection.id_prefix, begin)
    conditions = _until(_conditions(selection, database), end)
    values = [begin, limit, limit, *(condition.value for condition in conditions)]
    count = 0
    for part in parts:
        of_shard = _OF_SHARD if database.many_shards else ""
        said = f"{of_shard} {_text(conditions, part.extra)}"
        listed = part.template.format(order=_ORDER if of_shard else "", conditions=said)
        counted = _COUNTED_SHARDS if of_shard else _COUNTED
        sql = in_schema(counted.format(listed=listed), database.schema)
        (row,) = await database.fetch_text("count_selected", sql, *values)
        count += row["count"]
    following = None if end is None or count >= limit else write_cursor(end)
    return SelectedCount(count=min(count, limit), next=following)


def _parts(selection: Selection, database: Database) -> list[ListPart]:
    """Live ones first: what ends meanwhile is shown as it was."""
    parts = []
    if wants_live(selection):
        paused = _PAUSED if wants_paused(selection) else ""
        recurring = _RECURRING if selection.recurring else ""
        live = _PICKED if database.many_shards else _LIVE
        parts.append(ListPart(live, f"{paused} {recurring}", "scheduled_action"))
    if wants_finished(selection):
        extra = _TROUBLE if wants_trouble(selection) else ""
        parts.append(ListPart(_FINISHED, extra, "finished_action"))
    return parts


def _statement(database: Database, part: ListPart, conditions: list[Condition]) -> str:
    of_shard = _OF_SHARD if database.many_shards else ""
    said = f"{of_shard} {_text(conditions, part.extra)}"
    sql = part.template.format(order=_ORDER, conditions=said)
    if database.many_shards:
        sql = _PER_SHARD.format(part=sql)
    if part.template is _PICKED:
        sql = _PICKED_QUEUED.format(picked=sql)
    return in_schema(sql, database.schema)


def _text(conditions: list[Condition], extra: str, first: int = 4) -> str:
    fragments = [
        condition.fragment.format(place=number)
        for number, condition in enumerate(conditions, start=first)
    ]
    return " ".join((*fragments, extra.format()))


def _until(conditions: list[Condition], end: str | None) -> list[Condition]:
    if end is None:
        return conditions
    return [*conditions, Condition("AND a.id <= ${place}::text", end)]


def _conditions(selection: Selection, database: Database) -> list[Condition]:
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
        due = _PICKED_DUE if database.many_shards else _DUE
        conditions.append(Condition(due, selection.due_before))
    if selection.function is not None:
        conditions += _has(_HAS_IN_SPEC, selection.function)
        conditions.append(Condition(_FUNCTION, selection.function))
    if selection.error_contains:
        conditions += _has(_HAS_IN_ATTEMPT, selection.error_contains)
        conditions.append(Condition(_ERROR, selection.error_contains))
    if selection.search:
        word = selection.search.lower()
        conditions += [*_has(_HAS_WORD, word), Condition(_SEARCH, word)]
    if selection.recurring:
        conditions.append(Condition(_POLICY, list(RECURRING_POLICIES)))
    if selection.paused_for is not None:
        conditions.append(Condition("AND a.reason = ${place}::text", selection.paused_for))
    for name, value in selection.labels.items():
        path = ["labels", name]
        conditions += _has(_HAS_IN_SPEC, value)
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
        *_named(match),
        Condition(_ARGUMENT, f"strict $.action ? ({' || '.join(places)})"),
        Condition("${place}::text::jsonb, true)", msgspec.json.encode(values).decode()),
    ]


def _named(match: ArgumentFilter) -> list[Condition]:
    """A spec without the name need not be read as JSON; but an argument by place has none."""
    names = {path[-1] for path in match.paths}
    name = names.pop() if len(names) == 1 and not match.paths_by_function else 0
    return _has(_HAS_IN_SPEC, name, '"{}"') if isinstance(name, str) else []


def _steps(path: Path) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f'."{part}"' for part in path)


def _has(fragment: str, text: str, form: str = "{}") -> list[Condition]:
    plain = plain_text(text)
    return [] if plain is None else [Condition(fragment, form.format(plain))]
