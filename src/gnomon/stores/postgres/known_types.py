"""What asyncpg need not ask every connection for: the arrays of built-in types.

It looks up each array type that it meets, once for each connection, by a query over the catalogue
that takes 10 ms under the planner settings of our pools: longer than all that a worker does first.
Below `OIDS_END` PostgreSQL gives numbers by hand and never changes them, so one answer is good for
every connection to every server. Should asyncpg call this method by another name one day, it asks
again; nothing else changes.
"""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import asyncpg

OIDS_END = 10_000
_known: dict[frozenset[int], Any] = {}  # as many as there are sets of types in our statements
_NAMED = SimpleNamespace(name="known")  # in place of the query's statement: none was disturbed


class KnowingConnection(asyncpg.Connection):
    """A connection that asks for built-in types once in the life of the process."""

    async def _introspect_types(
        self,
        typeoids: Collection[int],
        timeout: float | None,  # noqa: ASYNC109
    ) -> Any:
        wanted = frozenset(typeoids)
        if wanted in _known:
            return _known[wanted], _NAMED
        answer = await super()._introspect_types(typeoids, timeout)  # type: ignore[misc]
        if max(wanted) < OIDS_END:
            _known[wanted] = answer[0]
        return answer
