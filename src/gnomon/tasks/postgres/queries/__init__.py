"""The SQL of task tables: named statements, with the table's own names put in.

Besides the schema these files have marks for what differs from table to table, always before
something that keeps the file valid SQL: `/*task*/task` is the table, `/*state*/state` its type,
`/*include again*/1` another block, which is marked as a fragment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from gnomon.contracts.task_rows import TEXT_CHARS_MAX
from gnomon.queries import load, quoted
from gnomon.tasks.postgres.wire import Statement

QUERIES = load("gnomon.tasks.postgres.queries")

# 64 bits of the pair (group, remote): an index of any text, without its length.
KEY = "hashtextextended(coalesce({remote}, ''), hashtextextended({group}, 0))"
# Their values are numbers and times: no setting changes their form.
BINARY = frozenset({"take", "finish", "finish_ahead"})
# Parameters that go as the server has them: who reads and writes them as text are both slower.
FORMATS = {"finish_ahead": (1, 1, 1, 0, 1, 1, 1, 0, 0, 0, 0)}
# 64 bits of what is often alike in one row and the next: how its session is used, its text made.
LOOK = """hash_record_extended(ROW(
    {of}max, {of}count, {of}live, {of}timeout, {of}save, {of}header, {of}string, {of}delimiter,
    {of}quote, {of}escape, {of}"null"
), 0)"""
# When a row expires, in UTC, for any value of both columns: an index has it, so nothing of it may
# fail or depend on a session. What leads beyond the calendar never expires.
EXPIRY = """CASE
    WHEN {of}plan < '9999-01-01 00:00:00+00'::timestamptz
        AND abs(extract(year FROM {of}active)) < 9000
        AND abs(extract(day FROM {of}active)) < 3300000
        AND abs(extract(hour FROM {of}active)) < 80000000
    THEN ({of}plan AT TIME ZONE 'UTC') + {of}active
    ELSE 'infinity'::timestamp
END"""

# The fence of what an owner changes: it still has the table's lease.
OWNED = """EXISTS (
    SELECT FROM /*owner*/gnomon_task_owner AS o
    WHERE o.table_name = /*table*/'task' AND o.lease_guid = {lease_guid}::uuid
)"""
# A time as JSON has it, whatever the session's zone; beyond our calendar it is the end of it.
MOMENT = """CASE WHEN {of} IS NOT NULL THEN to_char(
    least(greatest({of}, '0001-01-01 00:00:00+00'), '9999-12-31 23:59:59.999999+00')
        AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'
) END"""
CUT = """CASE WHEN length({of}) > {most}
    THEN left({of}, {most}) || '… (' || length({of}) || ' characters)' ELSE {of} END"""

_INCLUDE = re.compile(r"/\*include (\w+)\*/(?:(?:SELECT )?1|true)\b")
_COMMENT = re.compile(r"^ *--.*\n", re.MULTILINE)
_KEY = re.compile(r'/\*key( [\w-]+)?\*/hashtextextended\([\w.$"]+(?:::text)?, 0\)')
_EXPIRY = re.compile(r"/\*expiry ([\w-]+)\*/[\w.]+")
_LOOK = re.compile(r"/\*look (\w+)\*/hashtextextended\(\w+\.id, 0\)")
_OWNED = re.compile(r"/\*owned (\$\d)\*/true")
_MOMENT = re.compile(r"/\*moment\*/([\w.]+)")
_CUT = re.compile(r"/\*cut\*/([\w.\"]+)")
_NAME = re.compile(r"/\*name\*/task(\w*)")


class TableNames(NamedTuple):
    """What a statement must know of its table."""

    schema: str
    table: str
    state_type: str  # as SQL, with its schema

    @property
    def qualified(self) -> str:
        """Schema and table, as SQL."""
        return f"{quoted(self.schema)}.{quoted(self.table)}"

    @property
    def waiting(self) -> str:
        """The view that says why tasks wait, as SQL."""
        return f"{quoted(self.schema)}.{quoted(self.table + '_waiting')}"


def literal(text: str) -> str:
    """A string, as SQL, whatever `standard_conforming_strings` is."""
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    return f"E'{escaped}'" if "\\" in text else f"'{escaped}'"


def plain(name: str, *, prepared: bool = True) -> Statement:
    """A statement that is the same for all tables."""
    return Statement(name.encode() if prepared else b"", QUERIES[name].sql.encode())


def statements(names: TableNames) -> Mapping[str, Statement]:
    """All statements for one table."""
    return {
        name: Statement(
            name.encode(), render(query.sql, names).encode(), name in BINARY, FORMATS.get(name)
        )
        for name, query in QUERIES.items()
        if query.mark != "fragment"
    }


def render(sql: str, names: TableNames) -> str:
    """A statement with the names of one table where the marks are."""
    while _INCLUDE.search(sql):  # a fragment may include others
        sql = _INCLUDE.sub(lambda match: QUERIES[match[1]].sql.rstrip(";"), sql)
    sql = _COMMENT.sub("", sql)  # the server keeps the text
    sql = _KEY.sub(_key, sql)
    sql = _EXPIRY.sub(lambda match: EXPIRY.format(of=_of(match[1])), sql)
    sql = _LOOK.sub(lambda match: LOOK.format(of=_of(match[1])), sql)
    sql = _OWNED.sub(lambda match: OWNED.format(lease_guid=match[1]), sql)
    sql = _MOMENT.sub(lambda match: MOMENT.format(of=match[1]), sql)
    sql = _CUT.sub(lambda match: CUT.format(of=match[1], most=TEXT_CHARS_MAX), sql)
    sql = _NAME.sub(lambda match: quoted(names.table + match[1]), sql)
    return (
        sql.replace("/*task*/task", names.qualified)
        .replace("/*owner*/gnomon_task_owner", f"{quoted(names.schema)}.gnomon_task_owner")
        .replace("/*hint*/gnomon_task_hint", f"{quoted(names.schema)}.gnomon_task_hint")
        .replace("/*next*/gnomon_task_next", f"{quoted(names.schema)}.gnomon_task_next")
        .replace("/*values*/gnomon_task_values", f"{quoted(names.schema)}.gnomon_task_values")
        .replace("/*task_name*/'task'", literal(names.qualified))
        .replace("/*waiting*/task_waiting", names.waiting)
        .replace("/*table*/'task'", literal(names.table))
        .replace("/*schema*/public", quoted(names.schema))
        .replace("/*state*/state", names.state_type)
        .replace("/*again*/gnomon_task_again", f"{quoted(names.schema)}.gnomon_task_again")
    )


def _key(match: re.Match[str]) -> str:
    alias = (match[1] or "").strip()
    if not alias:
        return KEY.format(group="$1::text", remote="$2::text")
    return KEY.format(group=f'{_of(alias)}"group"', remote=f"{_of(alias)}remote")


def _of(alias: str) -> str:
    return "" if alias == "-" else f"{alias}."  # of an index: it has but one table
