"""Listings: the one place where SQL is put together, out of fixed fragments.

Live and finished actions are read apart, each in order of the id, and merged: an id is in one
of the two only, for a finished action is left out while its id lives.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from heapq import merge
from typing import Any

import msgspec

from gnomon.contracts.store import ActionPage, SelectedCount, Selection
from gnomon.model.action import Action
from gnomon.model.arguments import ArgumentFilter, Path
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
from gnomon.stores.sqlite.begin import lane_row
from gnomon.stores.sqlite.queries import fetch, fetch_text
from gnomon.stores.sqlite.rows import finished_action, live_action, micros
from gnomon.stores.sqlite.work import lanes_of

_LIVE = """
SELECT a.* FROM live_action AS a WHERE a.id >= :from AND +a.id <> :after {conditions}
ORDER BY a.id LIMIT :limit
"""
_FINISHED = """
SELECT
    a.id, a.shard_id, a.guid, a.state, a.created_at, a.updated_at, a.occurrence_no,
    a.occurrence_at, a.attempts, a.succeeded, a.failed, a.interrupted, a.consecutive_failures,
    a.consecutive_interruptions, a.occurrence_failures, a.attempt_id, a.began_at, a.reason,
    a.finished_at, a.last_attempt, a.spec
FROM finished_action AS a
WHERE a.id >= :from AND +a.id <> :after AND +a.purge_at > :now
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
SELECT a.id FROM {table} AS a WHERE a.id >= :from AND +a.id <> :after {conditions}
ORDER BY a.id LIMIT 1 OFFSET :looked_at
"""
_COUNTED = "SELECT count(*) AS count FROM ({listed})"
# A row that others spoilt holds no function and no error.
_FUNCTION = "CASE WHEN json_valid(a.spec) THEN json_extract(a.spec, '$.action.function') END"
_ERROR = "CASE WHEN json_valid(a.last_attempt) THEN json_extract(a.last_attempt, '$.error') END"
_POLICY = "CASE WHEN json_valid(a.spec) THEN json_extract(a.spec, '$.policy.type') END"
_SEARCHED = f"a.id || char(10) || a.queue || char(10) || coalesce({_FUNCTION}, '')"
# Say in words what the partial indexes want to hear.
_TROUBLE = " AND a.state <> 'done'"
_PAUSED = " AND a.state = 'paused'"
_RECURRING = """ AND instr(a.spec, '"policy":{') > 0"""


_READ = {"scheduled_action": live_action, "finished_action": finished_action}


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
    begin = _begin(selection, after)
    parts = _parts(selection)
    end = None
    if is_sought(selection):
        due = _due_ids(connection, selection)
        if due is not None:
            conditions += " AND a.id IN (SELECT value FROM json_each(:due_ids))"
            parameters["due_ids"] = msgspec.json.encode(due).decode()
        else:
            end = _end(connection, parts, selection, begin)
    parameters |= begin | {"limit": limit + 1, "now": now_us}
    return _page(connection, parts, conditions, parameters, end=end)


def _page(
    connection: sqlite3.Connection,
    parts: Sequence[ListPart],
    conditions: str,
    parameters: dict[str, Any],
    *,
    end: str | None,
) -> ActionPage:
    conditions, parameters = _until(conditions, parameters, end)
    limit = parameters["limit"] - 1
    halves: list[list[Action]] = []
    for part in parts:
        sql = part.template.format(conditions=conditions + part.extra)
        read = _READ[part.table]
        halves.append([read(row) for row in fetch_text(connection, sql, parameters)])
    actions = list(merge(*halves, key=lambda action: action.meta.id))
    last = actions[limit - 1].meta.id if len(actions) > limit else end
    return ActionPage(
        actions=actions[:limit],
        next=None if last is None else write_cursor(last),
        looked_at=None if end is None or len(actions) > limit else LOOKED_AT_MAX,
    )


def _begin(selection: Selection, after: str | None) -> dict[str, Any]:
    """Where to begin in the index: of two lower bounds SQLite may take the worse one."""
    begin = read_cursor(after)
    prefix = selection.id_prefix or ""
    return {"after": begin, "from": max(begin, prefix)}


def _end(
    connection: sqlite3.Connection,
    parts: Sequence[ListPart],
    selection: Selection,
    begin: dict[str, Any],
) -> str | None:
    """The id up to which rows are looked at; None if that is all of them."""
    conditions, parameters = _conditions(Selection(id_prefix=selection.id_prefix))
    parameters |= begin | {"looked_at": LOOKED_AT_MAX}
    ends: list[str] = []
    for part in parts:
        sql = _END.format(table=part.table, conditions=conditions + part.extra)
        ends += [row["id"] for row in fetch_text(connection, sql, parameters)]
    return nearest(*ends)


def _due_ids(connection: sqlite3.Connection, selection: Selection) -> list[str] | None:
    """All that is due before the moment that is asked for, if it is not too much: then nothing has
    to be looked for in order of the id."""
    if selection.due_before is None:
        return None
    (installed,) = fetch(connection, "open")
    before = {"before": micros(selection.due_before)}
    ids: list[str] = []
    lanes = 0
    for shard in range(installed["shard_count"]):
        for lane, _ in lanes_of(connection, shard):
            bounds = lane_row(lane) | before | {"limit": DUE_MAX + 1 - len(ids)}
            ids += [row["id"] for row in fetch(connection, "list_due", bounds)]
            lanes += 1
            if len(ids) > DUE_MAX or lanes > DUE_LANES_MAX:
                return None
        bounds = {"shard": shard, "limit": DUE_MAX + 1 - len(ids)}
        ids += [row["id"] for row in fetch(connection, "list_due_arrived", bounds)]
        if len(ids) > DUE_MAX:
            return None
    return ids


def count_selected(
    connection: sqlite3.Connection,
    selection: Selection,
    *,
    after: str | None,
    limit: int,
    now_us: int,
) -> SelectedCount:
    """How many there are among the next rows, up to the limit."""
    conditions, parameters = _conditions(selection)
    begin = _begin(selection, after)
    parts = _parts(selection)
    end = _end(connection, parts, selection, begin)
    parameters |= begin | {"limit": limit, "now": now_us}
    conditions, parameters = _until(conditions, parameters, end)
    count = 0
    for part in parts:
        listed = part.template.format(conditions=conditions + part.extra)
        sql = _COUNTED.format(listed=listed)
        count += fetch_text(connection, sql, parameters)[0]["count"]
    following = None if end is None or count >= limit else write_cursor(end)
    return SelectedCount(count=min(count, limit), next=following)


def _parts(selection: Selection) -> list[ListPart]:
    parts = []
    if wants_live(selection):
        extra = _PAUSED if wants_paused(selection) else ""
        extra += _RECURRING if selection.recurring else ""
        parts.append(ListPart(_LIVE, extra, "scheduled_action"))
    if wants_finished(selection):
        extra = _TROUBLE if wants_trouble(selection) else ""
        parts.append(ListPart(_FINISHED, extra, "finished_action"))
    return parts


def _until(
    conditions: str, parameters: dict[str, Any], end: str | None
) -> tuple[str, dict[str, Any]]:
    if end is None:
        return conditions, parameters
    return f"{conditions} AND a.id <= :end", {**parameters, "end": end}


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
        parts.append("a.id < :prefix_end")
        values["prefix_end"] = selection.id_prefix + LAST_CHAR
    if selection.due_before is not None:
        parts.append("a.scheduled_at < :due_before")
        values["due_before"] = micros(selection.due_before)
    if selection.function is not None:
        _add_plain(parts, values, "a.spec", selection.function)
        parts.append(f"{_FUNCTION} = :function")
        values["function"] = selection.function
    if selection.error_contains:
        _add_plain(parts, values, "a.last_attempt", selection.error_contains)
        parts.append(f"instr({_ERROR}, :error) > 0")
        values["error"] = selection.error_contains
    if selection.search:
        parts.append(f"instr(lower({_SEARCHED}), :search) > 0")
        values["search"] = selection.search.lower()
    if selection.recurring:
        parts.append(f"{_POLICY} IN (:policy_0, :policy_1)")
        values |= dict(zip(("policy_0", "policy_1"), RECURRING_POLICIES, strict=True))
    if selection.paused_for is not None:
        parts.append("a.reason = :paused_for")
        values["paused_for"] = selection.paused_for
    for number, (name, value) in enumerate(selection.labels.items()):
        _add_plain(parts, values, "a.spec", value)
        label = f"CASE WHEN json_valid(a.spec) THEN json_extract(a.spec, :label_{number}) END"
        parts.append(f"{label} = :label_value_{number}")
        values |= {f"label_{number}": f'$.labels."{name}"', f"label_value_{number}": value}
    for number, match in enumerate(filters_of(selection)):
        parts.append(_argument(match, f"argument_{number}", values))
    return "".join(f" AND {part}" for part in parts), values


def _add_plain(parts: list[str], values: dict[str, Any], column: str, text: str) -> None:
    """Cheaper than reading JSON, and so looked at before."""
    plain = plain_text(text)
    if plain is not None:
        name = f"plain_{len(values)}"
        parts.append(f"instr({column}, :{name}) > 0")
        values[name] = plain


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
