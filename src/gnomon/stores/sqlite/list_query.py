"""Listings: the one place where SQL is put together, out of fixed fragments.

Live and finished actions are read apart, each in order of the id, and merged: an id is in one
of the two only, for a finished action is left out while its id lives.
"""

from __future__ import annotations

import base64
import binascii
import sqlite3
from heapq import merge
from typing import Any

from gnomon.contracts.store import ActionPage, Selection
from gnomon.model.action import Action, State
from gnomon.model.errors import InvalidRequest
from gnomon.model.ids import ID_PATTERN
from gnomon.stores.sqlite.rows import FinishedRow, LiveRow, micros

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
_LAST_CHAR = "\U0010ffff"


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
    live: list[Action] = []
    finished: list[Action] = []
    if _wants(selection, terminal=False):
        sql = _LIVE.format(conditions=conditions)
        live = [LiveRow(*row).action() for row in connection.execute(sql, parameters)]
    if _wants(selection, terminal=True) and selection.due_before is None:
        sql = _FINISHED.format(conditions=conditions)
        finished = [FinishedRow(*row).action() for row in connection.execute(sql, parameters)]
    found = list(merge(live, finished, key=lambda action: action.meta.id))
    following = write_cursor(found[limit - 1].meta.id) if len(found) > limit else None
    return ActionPage(actions=found[:limit], next=following)


def _wants(selection: Selection, *, terminal: bool) -> bool:
    states = selection.states or tuple(State)
    return any(state.is_terminal == terminal for state in states)


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
        values |= {"prefix": selection.id_prefix, "prefix_end": selection.id_prefix + _LAST_CHAR}
    if selection.due_before is not None:
        parts.append("a.scheduled_at < :due_before")
        values["due_before"] = micros(selection.due_before)
    for number, (name, value) in enumerate(selection.labels.items()):
        found = f"CASE WHEN json_valid(a.spec) THEN json_extract(a.spec, :label_{number}) END"
        parts.append(f"{found} = :label_value_{number}")
        values |= {f"label_{number}": f'$.labels."{name}"', f"label_value_{number}": value}
    return "".join(f" AND {part}" for part in parts), values


def write_cursor(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode().rstrip("=")


def read_cursor(cursor: str | None) -> str:
    """The id after which a page begins; nothing sorts before the empty text."""
    if cursor is None:
        return ""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        name = base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        name = ""
    if not ID_PATTERN.fullmatch(name):
        raise InvalidRequest("`after` must be the `next` of a former page, unchanged")
    return name
