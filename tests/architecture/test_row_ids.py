"""Statements of PostgreSQL that write rows which they found by their ctid.

Somebody else may write such a row between the look and the write. Releases of PostgreSQL from the
end of 2025 on ("Add missing EPQ recheck for TID Scan") then look at the ctid again, and leave the
row alone; older ones write the new version, whatever it says. No race on a newer server can show
the difference. So this is a rule about texts: a row that is not held is asked for again in the
statement that writes it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from gnomon.stores.postgres.texts import catalogue

BY_ROW_ID = re.compile(r"WHERE (?:\w+\.)?ctid = .*")
WRITES = re.compile(r"\b(?:UPDATE|DELETE FROM) /\*schema\*/")
# What each of them asks again, once for every write.
ASKED_AGAIN = {
    "move_and_begin_part": ["i.attempt_id IS NULL", "i.attempt_id IS NULL"],
    "move": ["i.attempt_id IS NULL"],
    "move_and_begin": ["i.attempt_id IS NULL", "i.attempt_id IS NULL"],
    "move_take": ["i.attempt_id IS NULL"],
    "commit_plain": ["w.counts", "q.seq = d.seq", "q.seq = d.seq"],  # the entity is held
    "continue_action": ["a.guid IS NOT DISTINCT FROM u.guid"],
}
# The row is locked, by the statement itself or before it in the transaction; or the entity is, and
# nobody writes what belongs to it without that.
HELD = {
    "begin", "begin_lane", "change_drop_row", "commit_entity", "delete_stale", "end_pauses",
    "extend",
    "finish_delete_begun", "finish_delete_stale", "finish_drop_begun", "finish_end",
    "finish_end_plain", "finish_held", "finish_plain", "fire_timers",
    "move_begun", "purge_emptied", "put_off", "route_done", "route_since", "row_remove",
    "row_update", "save_drop_states", "save_touch", "write_change", "write_drop_changed",
}  # fmt: skip
# Nobody ever changes these: they are written once, and removed.
WRITTEN_ONCE = {"purge_changes", "remove_saves"}


def findings(statements: Mapping[str, str]) -> list[str]:
    found = []
    for name, text in statements.items():
        conditions = BY_ROW_ID.findall(text) if WRITES.search(text) else []
        if not conditions or name in HELD | WRITTEN_ONCE:
            continue
        asked = ASKED_AGAIN.get(name, [])
        missing = [
            again
            for condition, again in zip(conditions, asked, strict=False)
            if again not in condition
        ]
        if missing or len(asked) != len(conditions):
            found.append(f"{name}: writes what it does not hold, and does not ask again")
    return found


def test_what_is_not_held_is_asked_for_again() -> None:
    statements = {name: query.sql for name, query in catalogue().items()}
    assert [] == findings(statements)
    assert (HELD | WRITTEN_ONCE | ASKED_AGAIN.keys()) <= statements.keys()


def test_the_rule_can_fail() -> None:
    """Without the condition; or for a statement that nobody has thought about."""
    bare = "DELETE FROM /*schema*/incoming_queue AS i\nWHERE i.ctid = oldest.row_id\nRETURNING 1"
    assert 2 == len(findings({"move": bare, "another": bare}))
    assert [] == findings({"move": bare.replace("\nRET", " AND i.attempt_id IS NULL\nRET")})
