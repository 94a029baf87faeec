"""Named queries out of `.sql` files: SQL is kept as SQL, under the contract's verb.

A block begins with `-- name: verb`, optionally followed by a mark such as `shard-local` or
`global`; comment lines say what and why; then comes one statement. The one thing substituted
is the schema, written as a comment mark (`/*schema*/action`), so that files stay valid SQL.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from types import MappingProxyType
from typing import NamedTuple

_HEAD = re.compile(r"^-- name: (?P<name>\w+)(?: +(?P<mark>[\w-]+))? *$", re.MULTILINE)
# What may hold a semicolon that separates nothing; the bodies of functions are between `$$`.
_TOKEN = re.compile(
    r"""--[^\n]*|/\*.*?\*/|\$\$.*?\$\$|'(?:[^']|'')*'|"(?:[^"]|"")*"|;|[^-/$'";]+|.""", re.DOTALL
)


class Query(NamedTuple):
    """One statement of the catalogue."""

    name: str
    mark: str  # shard-local, global, …: empty where an engine has no use for it
    sql: str


def load(package: str) -> Mapping[str, Query]:
    """All queries of all `.sql` files in a package; a duplicate or an empty block is an error."""
    queries: dict[str, Query] = {}
    for entry in sorted(resources.files(package).iterdir(), key=lambda item: item.name):
        if not entry.name.endswith(".sql"):
            continue
        for query in _split(entry.name, entry.read_text("utf-8")):
            if query.name in queries:
                raise ValueError(f"{entry.name}: the query {query.name} is defined twice")
            queries[query.name] = query
    return MappingProxyType(queries)


def _split(file: str, text: str) -> list[Query]:
    heads = list(_HEAD.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    queries = []
    for head, end in zip(heads, ends, strict=True):
        sql = text[head.end() : end].strip()
        if not [line for line in sql.splitlines() if line and not line.startswith("--")]:
            raise ValueError(f"{file}: the query {head['name']} is empty")
        queries.append(Query(head["name"], head["mark"] or "", sql))
    return queries


def statements_of(script: str) -> list[str]:
    """The statements of a script, each without what separates it from the next."""
    statements, current = [], ""
    for part in _TOKEN.findall(script):
        if part == ";":
            statements.append(current.strip())
            current = ""
        elif not part.startswith("--"):
            current += part
    return [*filter(None, [*statements, current.strip()])]


def quoted(name: str) -> str:
    """A name as an identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'


def in_schema(sql: str, schema: str) -> str:
    """Put the quoted schema where the mark is."""
    return sql.replace("/*schema*/", f"{quoted(schema)}." if schema else "")
