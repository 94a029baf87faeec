"""Part of the suite: specs that others made unreadable, in the tables themselves."""

from __future__ import annotations

from gnomon.contracts.store import Selection, Store
from gnomon.model.action import State
from gnomon.model.outcome import Failed
from gnomon.model.spec import Unreadable
from tests.conformance.store.suite.given import NOTHING, Given

# Text that is no JSON, JSON that is no spec, JSON of an effect that there is not, nothing at all.
SPOILT = ("{", "5", '{"action": {"type": "nonsense"}}', "")


class TestUnreadable:
    """A row that somebody spoilt with SQL: it ends visibly, and spoils nothing else."""

    async def test_it_does_not_hold_up_those_beside_it(self, given: Given) -> None:
        """All that is due in its lane begins; its own effect says what is wrong."""
        names = await _spoilt(given)
        result = await given.begin()

        found = {begun.id: begun.spec.action for begun in result.begun}
        assert {"good", *names} == set(found)
        assert not isinstance(found["good"], Unreadable)
        assert names == {name for name, action in found.items() if isinstance(action, Unreadable)}

    async def test_it_is_recalled(self, store: Store, given: Given) -> None:
        """An answer that was lost is asked for again, whatever the specs are like."""
        names = await _spoilt(given)
        batch = given.entropy.token()
        demands = await given.demands()
        await given.begin(demands, batch=batch)

        recalled = await store.work.find_begun(given.shards, batch=batch)

        assert {"good", *names} == {begun.id for begun in recalled}

    async def test_it_ends_dead_and_can_be_seen(self, store: Store, given: Given) -> None:
        """By id and in listings, also in those that look into specs."""
        names = await _spoilt(given)
        for begun in (await given.begin()).begun:
            if isinstance(begun.spec.action, Unreadable):
                await given.recorded(begun, Failed(error=begun.spec.action.error, retryable=False))

        for name in names:
            action = await given.action(name)
            assert State.DEAD is action.status.state
            assert "invalid spec" in (action.status.reason or "")
        listed = await store.actions.list(Selection(), after=None, limit=100)
        assert {"good", *names} == {action.meta.id for action in listed.actions}
        labelled = Selection(labels={"colour": "red"})
        page = await store.actions.list(labelled, after=None, limit=100)
        assert ["good"] == [action.meta.id for action in page.actions]

    async def test_it_lapses_like_any_other(self, given: Given) -> None:
        """Its worker may die, too."""
        await given.created("spoilt")
        await _spoil(given, "spoilt", "{")
        await given.move()
        await given.begin(grace=NOTHING, window=NOTHING)

        assert isinstance((await given.lapsed("spoilt")).spec.action, Unreadable)


async def _spoilt(given: Given) -> set[str]:
    """A good action in the queue, and bad ones around it."""
    names = {f"spoilt-{number}": text for number, text in enumerate(SPOILT)}
    for name in list(names)[:2]:
        await given.created(name)
    await given.created("good", labels={"colour": "red"})
    for name in list(names)[2:]:
        await given.created(name)
    for name, text in names.items():
        await _spoil(given, name, text)
    await given.move()
    return set(names)


async def _spoil(given: Given, name: str, text: str) -> None:
    await given.execute_raw(f"UPDATE scheduled_action SET spec = '{text}' WHERE id = '{name}'")
