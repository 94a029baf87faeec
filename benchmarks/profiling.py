"""Where the time goes: totals per store verb, and PostgreSQL's own account of its statements.

The milliseconds of a verb are from its call to its answer as the caller sees them: they contain the
wait for a connection and for the event loop, and verbs overlap; so their sum may exceed the clock.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence, Sized
from typing import Any, cast

import asyncpg
import msgspec

from gnomon.app import App
from gnomon.contracts.store import Store

ROLES = ("actions", "work", "leases", "installation")
STATEMENTS_SHOWN = 20
STATEMENT_CHARS_MAX = 110

Verb = Callable[..., Awaitable[Any]]


class VerbTotal(msgspec.Struct):
    """What one verb cost so far."""

    verb: str
    calls: int = 0
    rows: int = 0
    ms: float = 0.0
    ms_max: float = 0.0


class _Role:
    """A role of the store that times each of its verbs."""

    def __init__(self, inner: object, name: str, totals: dict[str, VerbTotal]) -> None:
        self._inner = inner
        self._name = name
        self._totals = totals

    def __getattr__(self, verb: str) -> Verb:
        inner: Verb = getattr(self._inner, verb)
        name = f"{self._name}.{verb}"
        total = self._totals.setdefault(name, VerbTotal(name))

        async def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            result = await inner(*args, **kwargs)
            ms = (time.perf_counter() - began) * 1000
            total.calls += 1
            total.rows += row_count(args, result)
            total.ms += ms
            total.ms_max = max(total.ms_max, ms)
            return result

        setattr(self, verb, timed)  # so that the next call finds it at once
        return timed


class StoreProfile:
    """Times the verbs of an app's store."""

    def __init__(self) -> None:
        self._totals: dict[str, VerbTotal] = {}

    def attach(self, app: App) -> None:
        """Put the timing between the open app and its store."""
        timed = self.wrapped(app.store)
        app._store = timed
        app.scheduler.store = timed

    def wrapped(self, store: Store) -> Store:
        roles = {name: _Role(getattr(store, name), name, self._totals) for name in ROLES}
        return msgspec.structs.replace(store, **cast("dict[str, Any]", roles))

    def rows(self) -> list[dict[str, Any]]:
        """The totals of every verb that was called, the costliest first."""
        called = [total for total in self._totals.values() if total.calls]
        called.sort(key=lambda total: -total.ms)
        return [msgspec.structs.asdict(total) for total in called]


def row_count(args: Sequence[Any], result: Any) -> int:
    """How many rows a call was about: what it brought, else what it was given."""
    for name in ("begun", "actions"):
        found = getattr(result, name, None)
        if isinstance(found, Sized):
            return len(found)
    if isinstance(count := getattr(result, "count", None), int):
        return count
    if args and isinstance(args[0], Sized) and not isinstance(args[0], str):
        return len(args[0])
    return len(result) if isinstance(result, Sized) else 1


def profile_table(profiles: Iterable[Sequence[dict[str, Any]]]) -> str:
    """The totals of all workers together, as text."""
    sums: dict[str, VerbTotal] = {}
    for profile in profiles:
        for row in profile:
            total = sums.setdefault(row["verb"], VerbTotal(row["verb"]))
            total.calls += row["calls"]
            total.rows += row["rows"]
            total.ms += row["ms"]
            total.ms_max = max(total.ms_max, row["ms_max"])
    lines = [
        f"{'verb':<24}{'calls':>8}{'rows':>10}{'ms':>10}{'ms/call':>9}{'us/row':>9}{'max ms':>8}"
    ]
    for total in sorted(sums.values(), key=lambda total: -total.ms):
        per_row = 1000 * total.ms / total.rows if total.rows else 0.0
        lines.append(
            f"{total.verb:<24}{total.calls:>8}{total.rows:>10}{total.ms:>10.0f}"
            f"{total.ms / total.calls:>9.2f}{per_row:>9.1f}{total.ms_max:>8.1f}"
        )
    return "\n".join(lines)


async def statement_table(dsn: str) -> str:
    """PostgreSQL's costliest statements in this database, if it keeps an account of them."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        rows = await connection.fetch(
            """
            SELECT calls, rows, total_exec_time AS ms, mean_exec_time AS mean_ms, wal_bytes, query
            FROM pg_stat_statements AS s JOIN pg_database AS d ON d.oid = s.dbid
            WHERE d.datname = current_database()
            ORDER BY total_exec_time DESC LIMIT $1
            """,
            STATEMENTS_SHOWN,
        )
    except asyncpg.PostgresError as exc:
        return f"(no pg_stat_statements: {exc})"
    finally:
        await connection.close()
    lines = [f"{'calls':>8}{'rows':>10}{'ms':>10}{'mean ms':>9}{'WAL kB':>9}  statement"]
    for row in rows:
        text = " ".join(row["query"].split())[:STATEMENT_CHARS_MAX]
        lines.append(
            f"{row['calls']:>8}{row['rows']:>10}{row['ms']:>10.0f}{row['mean_ms']:>9.2f}"
            f"{float(row['wal_bytes']) / 1024:>9.0f}  {text}"
        )
    return "\n".join(lines)
