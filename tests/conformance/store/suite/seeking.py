"""Part of the suite: listings that have to look at rows which nobody wants."""

from __future__ import annotations

import pytest

from gnomon.contracts.store import ActionPage, Selection, Store
from gnomon.model.action import State
from gnomon.model.outcome import Failed
from gnomon.model.spec import Cron, Periodic, Python
from gnomon.stores.postgres import list_query as postgres_list
from gnomon.stores.sqlite import list_query as sqlite_list
from tests.conformance.store.suite.given import HOUR, Given

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
        found = await pages(store, Selection(states=(State.ACTIVE, State.PAUSED)))
        assert (1, OTHERS) == (len(found), len(ids(found)))

    async def test_one_state_of_many_is_sought(self, store: Store, given: Given) -> None:
        """As if it were any condition: there may be a million of the others."""
        for number in range(OTHERS):
            await given.paused(f"a-{number:03}")
        await given.created("z-1")
        found = await pages(store, Selection(states=(State.ACTIVE,)))
        assert ["z-1"] == ids(found)
        assert len(found) > 1

    async def test_what_is_paused_is_found_at_once(self, store: Store, given: Given) -> None:
        """By an index of its own."""
        for number in range(OTHERS):
            await given.created(f"a-{number:03}")
        await given.paused("z-1")
        found = await pages(store, Selection(states=(State.PAUSED,)))
        assert (1, ["z-1"]) == (len(found), ids(found))

    async def test_what_did_not_end_well_is_found_at_once(self, store: Store, given: Given) -> None:
        """The same of those that are done."""
        for number in range(OTHERS):
            await given.finished(f"a-{number:03}")
        await given.recorded(await given.begun("z-1"), Failed(error="no"))
        found = await pages(store, Selection(states=(State.DEAD, State.CANCELLED, State.EXPIRED)))
        assert (1, ["z-1"]) == (len(found), ids(found))
        dead = await pages(store, Selection(states=(State.DEAD,)))
        assert (1, ["z-1"]) == (len(dead), ids(dead))

    async def test_what_is_due_is_found_at_once(self, store: Store, given: Given) -> None:
        """By its time, moved or just arrived; with other conditions, too, and page by page."""
        for number in range(OTHERS):
            await given.created(f"a-{number:03}", due_in=HOUR)
        await given.created("y-1", queue="mail")
        await given.created("y-2")
        await given.move()
        await given.created("z-1", queue="mail")
        now = await given.now()
        found = await pages(store, Selection(due_before=now))
        assert (1, ["y-1", "y-2", "z-1"]) == (len(found), ids(found))
        mail = await pages(store, Selection(due_before=now, queue="mail"))
        assert (1, ["y-1", "z-1"]) == (len(mail), ids(mail))
        single = await pages(store, Selection(due_before=now), limit=1)
        assert (3, ["y-1", "y-2", "z-1"]) == (len(single), ids(single))

    async def test_if_very_much_is_due_it_is_sought(
        self, store: Store, given: Given, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In order of the id, as everything; nothing is left out."""
        for module in (postgres_list, sqlite_list):
            monkeypatch.setattr(module, "DUE_MAX", OTHERS // 2)
        for number in range(OTHERS):
            await given.created(f"a-{number:03}")
        found = await pages(store, Selection(due_before=await given.now()))
        assert [f"a-{number:03}" for number in range(OTHERS)] == ids(found)
        assert len(found) > 1
        await given.move()
        assert ids(found) == ids(await pages(store, Selection(due_before=await given.now())))

    async def test_counting_goes_on_where_it_ended(self, store: Store, given: Given) -> None:
        """Each step looks at a few; together they count each once."""
        for number in range(OTHERS):
            await given.created(f"a-{number:03}", queue="mail" if number % 10 == 9 else "other")
        selection = Selection(queue="mail")
        step = await store.actions.count_selected(selection, limit=100)
        count, steps = step.count, 1
        while step.next is not None:
            assert steps <= 2 * OTHERS, "it does not come to an end"
            step = await store.actions.count_selected(selection, after=step.next, limit=100)
            count, steps = count + step.count, steps + 1
        assert OTHERS // 10 == count
        assert steps > 2
        first = await store.actions.count_selected(Selection(), limit=1)
        assert (1, None) == (first.count, first.next)


def again(search: str = "") -> Selection:
    return Selection(recurring=True, search=search or None)


@pytest.mark.usefixtures("few_looks")
class TestSchedules:
    """`list` of what comes again."""

    async def test_what_comes_again_is_found_at_once(self, store: Store, given: Given) -> None:
        """Behind any number of others; paused ones, too; none that is over."""
        for number in range(OTHERS):
            await given.created(f"a-{number:03}")
        await given.created("z-1", policy=Periodic(period=HOUR))
        await given.paused("z-2", policy=Cron(expression="0 9 * * *"))
        page = await store.actions.list(again(""), after=None, limit=10)
        assert (["z-1", "z-2"], None) == ([one.meta.id for one in page.actions], page.next)
        assert State.PAUSED is page.actions[1].status.state

    async def test_a_search_looks_at_few_for_a_page(self, store: Store, given: Given) -> None:
        """By id, queue or function, whatever the case; pages go on until all were looked at."""
        hourly = Periodic(period=HOUR)
        for number in range(OTHERS):
            await given.created(f"a-{number:03}", policy=hourly)
        await given.created("b-Digest", policy=hourly)
        await given.created("c", policy=hourly, queue="Digests")
        await given.created("d", policy=hourly, action=Python(function="send_DIGEST"))
        await given.created("e", policy=hourly, labels={"digest": "x"})
        names: list[str] = []
        after, looks = None, 0
        while looks == 0 or after is not None:
            page = await store.actions.list(again("diGest"), after=after, limit=10)
            names += [one.meta.id for one in page.actions]
            after, looks = page.next, looks + 1
            assert looks <= 2 * OTHERS, "it does not come to an end"
        assert ["b-Digest", "c", "d"] == names
        assert looks > 2
        odd = await store.actions.list(again('"%'), after=None, limit=10)
        assert [] == odd.actions
