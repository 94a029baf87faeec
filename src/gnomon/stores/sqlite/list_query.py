"""Listings: the one place where SQL is put together, out of fixed fragments.

Live and finished actions are read apart, each in order of the id, and merged: an id is in one
of the two only, for a finished action is left out while its id lives.
"""

from __future__ import annotations

import sqlite3
from heapq import merge
from typing import Any

from gnomon.contracts.store import ActionPage, Selection
from gnomon.model.action import Action
from gnomon.model.arguments import ArgumentFilter, Path
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
from gnomon.stores.sqlite.queries import fetch_text
from gnomon.stores.sqlite.rows import finished_action, live_action, micros

_LIVE = """
SELECT a.* FROM live_action AS a WHERE a.id > :after {conditions} ORDER BY a.id LIMIT :limit
"""
_FINISHED = """
SELECT
    a.id, a.shard_id, a.guid, a.state, a.created_at, a.updated_at, a.occurrence_no,
    a.occurrence_at, a.attempts, a.succeeded, a.failed, a.interrupted, a.consecutive_failures,
    a.consecutive_interruptions, a.occurrence_failures, a.attempt_id, a.began_at, a.reason,
    a.finished_at, a.last_attempt, a.spec
FROM finished_action AS a
WHERE a.id > :after AND a.purge_at > :now
    AND NOT EXISTS (SELECT 1 FROM scheduled_action AS s WHERE s.id = a.id)
    AND NOT EXISTS (
        SELECT 1 FROM finished_action AS f
        WHERE f.id = a.id AND (f.finished_at, f.guid) > (a.finished_at, a.guid)
            AND f.purge_at > :now
    )
    {conditions}
ORDER BY a.id
LIMIT :limit
"""
# Where looking ends.
_END = """
SELECT a.id FROM {table} AS a WHERE a.id > :after {conditions}
ORDER BY a.id LIMIT 1 OFFSET :looked_at
"""
_COUNTED = "SELECT count(*) AS count FROM ({listed})"
# A row that others spoilt holds no function and no error.
_FUNCTION = "CASE WHEN json_valid(a.spec) THEN json_extract(a.spec, '$.action.function') END"
_POLICY = "CASE WHEN json_valid(a.spec) THEN json_extract(a.spec, '$.policy.type') END"
_SEARCHED = f"a.id || char(10) || a.queue || char(10) || coalesce({_FUNCTION}, '')"
# Say in words what partial indexes want to hear.
_RECURRING = "instr(a.spec, '\"policy\":{') > 0"
_PAUSED = "a.state = 'paused'"
_ERROR = "CASE WHEN json_valid(a.last_attempt) THEN json_extract(a.last_attempt, '$.error') END"


def list_page(
    connection: sqlite3.Connection,
    selection: Selection,
    *,
    after: str | None,
    limit: int,
    now_us: int,
) -> ActionPage:
    """One page; one row more is read than shown, to know whether there is a next one."""
    conditions, parameters = _conditions(selection)
    parameters |= {"after": read_cursor(after), "limit": limit + 1, "now": now_us}
    end = _end(connection, selection, read_cursor(after)) if is_sought(selection) else None
    if end is not None:
        conditions += " AND a.id <= :end"
        parameters["end"] = end
    live: list[Action] = []
    finished: list[Action] = []
    if wants_live(selection):
        sql = _LIVE.format(conditions=conditions)
        live = [live_action(row) for row in fetch_text(connection, sql, parameters)]
    if wants_finished(selection):
        sql = _FINISHED.format(conditions=conditions)
        finished = [finished_action(row) for row in fetch_text(connection, sql, parameters)]
    actions = list(merge(live, finished, key=lambda action: action.meta.id))
    last = actions[limit - 1].meta.id if len(actions) > limit else end
    return ActionPage(
        actions=actions[:limit],
        next=None if last is None else write_cursor(last),
        looked_at=None if end is None or len(actions) > limit else LOOKED_AT_MAX,
    )


def _end(connection: sqlite3.Connection, selection: Selection, begin: str) -> str | None:
    """The id up to which rows are looked at; None if that is all of them."""
    conditions, parameters = _conditions(Selection(id_prefix=selection.id_prefix))
    parameters |= {"after": begin, "looked_at": LOOKED_AT_MAX}
    tables = {
        "scheduled_action": wants_live(selection), "finished_action": wants_finished(selection)
    }  # fmt: skip
    ends: list[str] = []
    if wants_paused(selection):
        conditions += f" AND {_PAUSED}"
    if selection.recurring:
        conditions += f" AND {_RECURRING}"
    for table in (table for table, is_wanted in tables.items() if is_wanted):
        sql = _END.format(table=table, conditions=conditions)
        ends += [row["id"] for row in fetch_text(connection, sql, parameters)]
    return nearest(*ends)


def count_selected(
    connection: sqlite3.Connection, selection: Selection, *, limit: int, now_us: int
) -> int:
    """How many there are on all pages, up to the limit."""
    conditions, parameters = _conditions(selection)
    parameters |= {"after": "", "limit": limit, "now": now_us}
    wanted = ((_LIVE, wants_live(selection)), (_FINISHED, wants_finished(selection)))
    count = 0
    for template in (template for template, is_wanted in wanted if is_wanted):
        sql = _COUNTED.format(listed=template.format(conditions=conditions))
        count += fetch_text(connection, sql, parameters)[0]["count"]
    return min(count, limit)


def _conditions(selection: Selection) -> tuple[str, dict[str, Any]]:
    """Fragments for the conditions that are given, and their values."""
    parts: list[str] = []
    values: dict[str, Any] = {}
    if selection.states:
        names = [f"state_{number}" for number in range(len(selection.states))]
        values.update(zip(names, (str(state) for state in selection.states), strict=True))
        parts.append("a.state IN (" + ", ".join(f":{name}" for name in names) + ")")
    if selection.queue is not None:
        parts.append("a.queue = :queue")
        values["queue"] = selection.queue
    if selection.id_prefix:
        parts.append("a.id >= :prefix AND a.id < :prefix_end")
        values |= {"prefix": selection.id_prefix, "prefix_end": selection.id_prefix + LAST_CHAR}
    if selection.due_before is not None:
        parts.append("a.scheduled_at < :due_before")
        values["due_before"] = micros(selection.due_before)
    if selection.function is not None:
        parts.append(f"{_FUNCTION} = :function")
        values["function"] = selection.function
    if selection.error_contains:
        parts.append(f"instr({_ERROR}, :error) > 0")
        values["error"] = selection.error_contains
    if selection.search:
        parts.append(f"instr(lower({_SEARCHED}), :search) > 0")
        values["search"] = selection.search.lower()
    parts += _kinds(selection, values)
    for number, (name, value) in enumerate(selection.labels.items()):
        label = f"CASE WHEN json_valid(a.spec) THEN json_extract(a.spec, :label_{number}) END"
        parts.append(f"{label} = :label_value_{number}")
        values |= {f"label_{number}": f'$.labels."{name}"', f"label_value_{number}": value}
    for number, match in enumerate(filters_of(selection)):
        parts.append(_argument(match, f"argument_{number}", values))
    return "".join(f" AND {part}" for part in parts), values


def _kinds(selection: Selection, values: dict[str, Any]) -> list[str]:
    """Whether it comes again, or is paused, and what for; the values are added."""
    parts: list[str] = []
    if selection.recurring:
        parts.append(f"{_RECURRING} AND {_POLICY} IN (:policy_0, :policy_1)")
        values |= dict(zip(("policy_0", "policy_1"), RECURRING_POLICIES, strict=True))
    if wants_paused(selection):
        parts.append(_PAUSED)
    if selection.paused_for is not None:
        parts.append("a.reason = :paused_for")
        values["paused_for"] = selection.paused_for
    return parts


def _argument(match: ArgumentFilter, name: str, values: dict[str, Any]) -> str:
    """Whether it is there, in whichever effect; the values are added."""
    values |= {f"{name}_text": match.text, f"{name}_plain": match.plain}
    tests = []
    for number, path in enumerate(match.paths):
        tests.append(_value_test(match, name, f"{name}_{number}"))
        values[f"{name}_{number}"] = _json_path(path)
    for number, (function, path) in enumerate(match.paths_by_function):
        tested = _value_test(match, name, f"{name}_at_{number}")
        tests.append(
            f"json_extract(a.spec, '$.action.function') = :{name}_of_{number} AND {tested}"
        )
        values |= {f"{name}_at_{number}": _json_path(path), f"{name}_of_{number}": function}
    return f"CASE WHEN json_valid(a.spec) THEN {' OR '.join(tests)} END"


def _value_test(match: ArgumentFilter, name: str, place: str) -> str:
    kind, value = f"json_type(a.spec, :{place})", f"json_extract(a.spec, :{place})"
    test = f"{kind} = 'text' AND {value} = :{name}_text"
    if isinstance(match.plain, bool) or (match.has_plain and match.plain is None):
        test += f" OR {kind} = :{name}_text"  # it is called as it is spelled
    elif match.has_plain:
        test += f" OR {kind} IN ('integer', 'real') AND {value} = :{name}_plain"
    return f"({test})"


def _json_path(path: Path) -> str:
    steps = [f"[{part}]" if isinstance(part, int) else f'."{part}"' for part in path]
    return "$.action" + "".join(steps)
