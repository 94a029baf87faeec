"""What Citus can run, as rules over the text of statements: see the design notes on scale-out.

Each rule takes a query (and the text that is run in one shard) and says what is wrong with it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator

from gnomon.queries import Query
from gnomon.stores.postgres.cluster import DISTRIBUTED
from gnomon.stores.postgres.texts import prepared_text

Rule = Callable[[Query], list[str]]

_COMMENT = re.compile(r"--[^\n]*")
_VOLATILE = re.compile(
    r"\b(clock_timestamp|gen_random_uuid|random|nextval|timeofday|uuid_generate_v\d)\s*\("
)
_MODIFICATION = re.compile(r"\b(?:DELETE FROM|INSERT INTO|(?<!DO )(?<!FOR )UPDATE) +([\w.\"]+)")
_LOCKING = re.compile(r"\bFOR (?:NO KEY )?(?:UPDATE|SHARE|KEY SHARE)\b")
_SET_LIST = re.compile(r"\bSET\b(.*?)(?:\bFROM\b|\bWHERE\b|\bRETURNING\b|$)", re.DOTALL)
_DO_UPDATE = re.compile(r"\bDO UPDATE\b(.*?)(?:\bRETURNING\b|$)", re.DOTALL)
_CLOCK = re.compile(r"\b(?:now|statement_timestamp|transaction_timestamp)\s*\(")
_CHOICE = re.compile(r"\b(?:CASE|coalesce)\b")
_INTERVAL = r"(?:interval\b|\$\d+::interval\b)"
_MOVED_CLOCK = re.compile(rf"statement_timestamp\(\)\s*[+-](?!\s*{_INTERVAL})")
_MOVED_COLUMN = re.compile(rf"\b[a-z_]\w*\.[a-z_]\w* *[+-] *{_INTERVAL}")
_OPENING = frozenset({"(", "[", "CASE"})
_CLOSING = frozenset({")", "]", "END"})
_END_OF_LIST = frozenset({"FROM", "WHERE", "RETURNING", ";"})
_READERS = re.compile(
    r"/\*schema\*/(check_snapshot|schedule|schedule_many|cancel|finish_ok|effect_done)\("
)
_SHARD_NAMED = re.compile(r"\bshard_id = \w*shard\b")
_SHARDS_NAMED = re.compile(rf"{_SHARD_NAMED.pattern}|\bshard_id = ANY \(\w*shards\)")
_BY_SHARD = "|".join(itertools.chain.from_iterable(DISTRIBUTED.values()))
_READS_SHARDS = re.compile(rf"\b(?:FROM|JOIN|USING|UPDATE) /\*schema\*/(?:{_BY_SHARD})\b")
_SHARD_PARAMETER = re.compile(r"\bshard_id = \$\d+")
_TWICE = frozenset({"move_and_begin_part"})  # some rows are begun and others go: none is both
# A lock of the coordinator; a hint; a bound that is only missed where it does not hold.
_ALLOWED = {
    "migrate_lock": "pg_advisory",
    "notify": "pg_notify",
    "limit_lock": "lock_timeout",
}


def text_of(query: Query) -> str:
    """As it is run in one shard, without comments."""
    return _COMMENT.sub("", prepared_text(query, "", one_shard=query.mark == "shard-local"))


def runs_on_citus(query: Query) -> bool:
    return query.mark != "many-shards"


def marked(query: Query) -> list[str]:
    """Every statement says where it may run."""
    known = ("shard-local", "global", "many-shards")
    return [] if query.mark in known else [f"has the mark {query.mark!r}"]


def nothing_refused(query: Query) -> list[str]:
    """Rule 1: what Citus refuses outright."""
    text = text_of(query)
    problems = []
    if re.search(r"\bMERGE\b", text):
        problems.append("uses MERGE")
    if any(re.search(r"(?:^|,)\s*shard_id\s*=", part) for part in _SET_LIST.findall(text)):
        problems.append("changes shard_id")
    if query.mark == "global" and _LOCKING.search(text):
        problems.append("locks rows without being shard-local")
    return problems


def nothing_volatile(query: Query) -> list[str]:
    """Rule 2: times and ids that each node would make up differently."""
    text = text_of(query)
    problems = [f"calls {name}" for name in _VOLATILE.findall(text)]
    clock = re.compile(r"\b(?:now|statement_timestamp|transaction_timestamp)\s*\(")
    if any(clock.search(part) for part in _DO_UPDATE.findall(text)):
        problems.append("asks for the time in DO UPDATE")
    if re.search(r"\bnow\s*\(", text):
        problems.append("uses now() instead of statement_timestamp()")
    return problems


def sets_plainly(query: Query) -> list[str]:
    """Rule 5: what is assigned to a row that is there already. Citus computes what changes with
    time on one node and the rest on another, so the two must not meet in one expression; and it
    cannot write down an array's part as the whole of a value."""
    text = text_of(query)
    parts = [*_assignments(text)]
    problems = [f"assigns part of an array: {part}" for part in parts if part.endswith("]")]
    for part in parts:
        if _CLOCK.search(part) and _CHOICE.search(part):
            problems.append(f"chooses the time: {part}")
        if _MOVED_CLOCK.search(part):
            problems.append(f"adds more than a parameter to the time: {part}")
    moved = [part for part in (*parts, *_DO_UPDATE.findall(text)) if _MOVED_COLUMN.search(part)]
    return [*problems, *(f"adds an interval to a column's time: {part}" for part in moved)]


def says_what_it_selects(query: Query) -> list[str]:
    """Rule 6: a list of columns, and rows by their keys where several shards are asked."""
    text = text_of(query)
    problems = []
    if re.search(r"\bSELECT\s+FROM\b", text):
        problems.append("selects nothing from a table")
    readers = _READERS.findall(query.sql) if re.search(r"\bFROM\b", text) else []
    problems += [f"calls {reader}, which reads tables, for rows of a table" for reader in readers]
    if query.mark == "global" and re.search(r"\bctid\b", text):
        problems.append("names rows by ctid in all shards")
    if query.mark == "global" and re.search(r"\bJOIN \([^()]*\bUNION\b", text):
        problems.append("joins a UNION, which is read at another moment")
    for returned in re.findall(r"\bRETURNING\b([^;)]*(?:\([^()]*\)[^;)]*)*)", text):
        if _CLOCK.search(returned):
            problems.append("returns the time from a modification")
    inserted = re.search(r"\bINSERT\b.*\bSELECT\b.*\bRETURNING\b(.*)", text, re.DOTALL)
    if inserted and re.match(r"[^()]*\([^()]*\bSELECT\b", inserted[1]):
        problems.append("asks another table in its RETURNING")
    return problems


def _assignments(text: str) -> Iterator[str]:
    """The values of all SET lists, each without the column's name."""
    for values in re.findall(r"\bSET\b(.*)", text, re.DOTALL):
        yield from _values_of(values)


def _values_of(text: str) -> Iterator[str]:
    """Cut at the commas and at the end of the list that are outside of brackets and choices."""
    depth, current = 0, ""
    for token in re.findall(r"\w+|\s+|[^\w\s]", text):
        depth += (token in _OPENING) - (token in _CLOSING)
        is_end = depth == 0 and token in _END_OF_LIST
        if depth < 0 or is_end or (depth == 0 and token == ","):
            yield " ".join(current.split()).partition("= ")[2]
            current = ""
            if token != ",":
                return
        else:
            current += token
    yield " ".join(current.split()).partition("= ")[2]


def stays_in_its_shard(query: Query) -> list[str]:
    """Rule 3: a shard-local statement names its shard, and never inserts out of a modification."""
    if query.mark != "shard-local":
        return []
    text = text_of(query)
    problems = []
    is_values = re.search(r"\bINSERT INTO\b[^;]*\bVALUES\b", text)  # goes where its shard_id says
    if not is_values and not _SHARD_PARAMETER.search(text):
        problems.append("has no `shard_id = $n`")
    changed = _MODIFICATION.findall(text)
    if len(changed) > len(set(changed)) and query.name not in _TWICE:
        problems.append("modifies a table twice")
    inserts = re.search(r"\bINSERT INTO\b.*?\bSELECT\b(.*)", text, re.DOTALL)
    if inserts:
        if len(changed) > 1:
            problems.append("inserts out of a modification")
        if not re.search(r"\b(?:FROM|JOIN) (?!unnest)(?!LATERAL)\w+ AS \w+", inserts[1]):
            problems.append("inserts without reading a table")
    return problems


def no_foreign_locks(query: Query) -> list[str]:
    """Rule 4: what is per node, or silently ignored."""
    text = text_of(query)
    words = ("lock_timeout", "pg_advisory", "pg_notify", "NOTIFY")
    return [f"uses {word}" for word in words if word in text and _ALLOWED.get(query.name) != word]


def functions_of(script: str) -> Iterator[tuple[str, str]]:
    """The functions of a migration: each one's head, and its body."""
    plain = _COMMENT.sub("", script)
    for found in re.finditer(r"CREATE FUNCTION (.*?)\bAS \$\$(.*?)\$\$;", plain, re.DOTALL):
        yield found[1], found[2]


def function_problems(head: str, body: str) -> list[str]:
    """What Citus cannot do inside a function. Rows are locked, and named by ctid, in one shard; and
    a function in SQL that reads a table has parameters that no node can be chosen by."""
    name = head.partition("(")[0].removeprefix("/*schema*/")
    problems = []
    if "plan_cache_mode" in head:
        problems.append("chooses a kind of plan")
    if "LANGUAGE sql" in head and re.search(r"\bFROM /\*schema\*/", body):
        problems.append("reads a table in SQL")
    for statement in body.split(";"):
        if re.search(r"\b(?:SELECT|PERFORM) FROM /\*schema\*/", statement):
            problems.append("selects nothing from a table")
        is_bound = _LOCKING.search(statement) or re.search(r"\bctid\b", statement)
        if is_bound and not _SHARD_NAMED.search(statement):
            problems.append("locks rows, or names them by ctid, without their shard")
        if _READS_SHARDS.search(statement) and not _SHARDS_NAMED.search(statement):
            problems.append("asks all shards")
        if re.search(r"\bGET DIAGNOSTICS\b", statement) and _follows_insert(body, statement):
            problems.append("counts what it inserted")
    return [f"{name} {problem}" for problem in problems]


def _follows_insert(body: str, statement: str) -> bool:
    """The number of rows of an INSERT … SELECT differs there; that of a query does not."""
    before = body.partition(statement)[0].rstrip().removesuffix(";").rpartition(";")[2]
    return "INSERT INTO" in before and "RETURN QUERY" not in before


RULES: tuple[Rule, ...] = (
    marked,
    nothing_refused,
    nothing_volatile,
    sets_plainly,
    says_what_it_selects,
    stays_in_its_shard,
    no_foreign_locks,
)


def problems_of(query: Query) -> list[str]:
    """All that is wrong with a statement."""
    return [f"{query.name} {problem}" for rule in RULES for problem in rule(query)]
