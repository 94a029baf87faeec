"""Who ends a backend that does not listen."""

from __future__ import annotations

from typing import Any

import pytest

from gnomon.model.errors import StoreUnavailable
from gnomon.tasks.postgres.table_access import TERMINATE_TRIES_MAX, TableAccess


class Results:
    """A connection that is away for the first so many statements."""

    def __init__(self, away: int) -> None:
        self.away = away
        self.asked = 0

    async def rows(self, *_: object) -> list[object]:
        self.asked += 1
        if self.asked <= self.away:
            raise StoreUnavailable("away")
        return []


@pytest.mark.parametrize(("away", "asked"), [(0, 1), (1, 2), (99, TERMINATE_TRIES_MAX)])
async def test_a_server_that_does_not_answer_is_asked_again(away: int, asked: int) -> None:
    """For nobody else ends the backend; and not for ever."""
    access: Any = TableAccess.__new__(TableAccess)
    access.results = Results(away)
    access.statements = {"terminate": None}
    await access.terminate(4711)
    assert asked == access.results.asked
