"""Part of the suite: listings that have to look at rows which nobody wants."""

from __future__ import annotations

import pytest

from gnomon.contracts.store import ActionPage, Selection, Store
from gnomon.model.action import State
from gnomon.stores.postgres import list_query as postgres_list
from gnomon.stores.sqlite import list_query as sqlite_list
from tests.conformance.store.suite.given import Given

LOOKED_AT = 8
OTHERS = 40


@pytest.fixture
def few_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows are looked at for a page."""
    for module in (postgres_list, sqlite_list):
        monkeypatch.setattr(module, "LOOKED_AT_MAX", LOOKED_AT)


async def pages(store: Store, selection: Selection, *, limit: int = 100) -> list[ActionPage]:
    """All of them, to the last."""
    found = [await store.actions.list(selection, after=None, limit=limit)]
    while found[-1].next is not None:
        assert len(found) <= 2 * OTHERS, "it does not come to an end"
        found.append(await store.actions.list(selection, after=found[-1].next, limit=limit))
    return found


def ids(found: list[ActionPage]) -> list[str]:
    return [action.meta.id for page in found for action in page.actions]


@pytest.mark.usefixtures("few_looks")
class TestSought:
    """`list` with conditions that no index answers."""

    async def test_what_is_wanted_is_found_behind_what_is_not(
        self, store: Store, given: Given
    ) -> None:
        """Pages may be empty, and the last `next` is none; each is found once."""
        for number in range(OTHERS):
            await given.created(f"a-{number:03}")
        for name in ("a-020x", "z-1", "z-2"):
            await given.created(name, labels={"team": "ads"})
        found = await pages(store, Selection(labels={"team": "ads"}))
        assert ["a-020x", "z-1", "z-2"] == ids(found)
        assert [] == found[0].actions
        assert len(found) > 3
        assert all(page.looked_at for page in found[:-1])
        assert None is found[-1].looked_at
        by_argument = await pages(store, Selection(arguments={"team": "ads"}))
        assert [] == ids(by_argument)
        assert len(by_argument) > 3

    async def test_live_and_finished_ones_are_sought_together(
        self, store: Store, given: Given
    ) -> None:
        """In order of the id, wherever they are."""
        for number in range(OTHERS):
            await given.created(f"a-{number:03}")
        for name in ("b-1", "b-3"):
            await given.finished(name, queue="mail")
        await given.created("b-2", queue="mail")
        found = await pages(store, Selection(queue="mail"))
        assert ["b-1", "b-2", "b-3"] == ids(found)

    async def test_a_full_page_goes_on_behind_its_last(self, store: Store, given: Given) -> None:
        """And not behind what was looked at."""
        for number in range(OTHERS):
            await given.created(f"a-{number:03}", queue="mail")
        found = await pages(store, Selection(queue="mail"), limit=3)
        assert [f"a-{number:03}" for number in range(OTHERS)] == ids(found)
        assert 3 == len(found[0].actions)

    async def test_a_prefix_leads_to_its_place_at_once(self, store: Store, given: Given) -> None:
        """What is before it is not looked at."""
        for number in range(OTHERS):
            await given.created(f"a-{number:03}")
        await given.created("z-1", queue="mail")
        found = await pages(store, Selection(queue="mail", id_prefix="z-"))
        assert (1, ["z-1"]) == (len(found), ids(found))

    async def test_without_such_conditions_pages_are_full(self, store: Store, given: Given) -> None:
        """However few rows may be looked at."""
        for number in range(OTHERS):
            await given.created(f"a-{number:03}")
        found = await pages(store, Selection(states=(State.ACTIVE,)))
        assert (1, OTHERS) == (len(found), len(ids(found)))
