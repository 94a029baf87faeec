"""The SQL of this engine, for a table of a given name.

`/*table*/task` stands for the table, `/*table*/task_plan_idx` for what belongs to it; `/*columns*/`
for the columns that a repeat copies, `/*name*/'task'` for the table's name as a text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from gnomon.queries import load, quoted

_QUERIES = load(__name__)
_TABLE = re.compile(r"/\*table\*/task(\w*)")
SCHEMA = tuple(query.name for query in _QUERIES.values() if query.mark == "schema")


def queries_for(table: str) -> Mapping[str, str]:
    """Every query by its name, for this table."""
    text = "'" + table.replace("'", "''") + "'"
    return {
        query.name: _TABLE.sub(
            lambda match: quoted(table + match[1]), query.sql.replace("/*name*/'task'", text)
        )
        for query in _QUERIES.values()
    }


def with_columns(sql: str, columns: Sequence[str]) -> str:
    """Put the columns where the mark is."""
    return sql.replace("/*columns*/", "".join(f", {quoted(column)}" for column in columns))
