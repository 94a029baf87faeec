"""Part of the suite: what programs serve, for forms."""

from __future__ import annotations

from datetime import timedelta

from gnomon.contracts.store import Store
from gnomon.model.function import FunctionRecord, encode_functions, newest_functions
from tests.conformance.store.suite.given import HOUR, Given

MINUTE = timedelta(minutes=1)


def written(*names: str, summary: str = "") -> str:
    return encode_functions([FunctionRecord(name=name, summary=summary) for name in names])[0]


class TestServing:
    """`serve_functions` and `list_functions`."""

    async def test_what_is_served_is_listed(self, store: Store) -> None:
        """However often it is said; each program has its own."""
        for _ in range(2):
            await store.programs.serve_functions("shop", "1", written("a", "b"), kept_for=HOUR)
        await store.programs.serve_functions("mail", "1", written("c"), kept_for=HOUR)

        found = await store.programs.list_functions(alive_for=MINUTE)

        assert [("mail", 1), ("shop", 2)] == sorted(
            (one.program, len(one.functions)) for one in found
        )
        names = [(one.name, one.program) for one in newest_functions(found)]
        assert [("a", "shop"), ("b", "shop"), ("c", "mail")] == names

    async def test_two_releases_are_served_side_by_side(self, store: Store, given: Given) -> None:
        """The newer one describes what both have."""
        await store.programs.serve_functions("shop", "1", written("a", "b"), kept_for=HOUR)
        await given.aged("function_set", "began_at", 10 * MINUTE)
        newer = written("b", "c", summary="new")
        await store.programs.serve_functions("shop", "2", newer, kept_for=HOUR)

        found = newest_functions(await store.programs.list_functions(alive_for=MINUTE))

        assert [("a", ""), ("b", "new"), ("c", "new")] == [(one.name, one.summary) for one in found]

    async def test_what_nobody_serves_any_more_is_forgotten(
        self, store: Store, given: Given
    ) -> None:
        """First it is not listed, later its row is gone."""
        await store.programs.serve_functions("shop", "1", written("a"), kept_for=HOUR)
        await given.aged("function_set", "seen_at", 10 * MINUTE)
        assert [] == list(await store.programs.list_functions(alive_for=MINUTE))
        assert 1 == len(await store.programs.list_functions(alive_for=HOUR))

        await store.programs.serve_functions("mail", "1", written("c"), kept_for=MINUTE)

        (found,) = await store.programs.list_functions(alive_for=HOUR)
        assert "mail" == found.program

    async def test_what_cannot_be_read_serves_nothing(self, store: Store) -> None:
        """A release that writes otherwise does no harm to forms."""
        await store.programs.serve_functions("odd", "1", '[{"name": 7}]', kept_for=HOUR)
        (found,) = await store.programs.list_functions(alive_for=MINUTE)
        assert () == found.functions
