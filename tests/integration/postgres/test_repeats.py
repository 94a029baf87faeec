"""A create is repeated with its key while the action that it made ends."""

from __future__ import annotations

from typing import Any

import pytest

from gnomon.contracts.store import Store
from gnomon.model.action import State
from gnomon.stores.postgres import creation
from tests.integration.postgres.conftest import Drafter

ID = "greet-ann"


def ends_in_between(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The action ends after it was not found among those that have ended, and before it is looked
    for among the living."""
    found_alive = creation.live_repeats

    async def ended_before(*args: Any) -> Any:
        await store.actions.delete(ID, if_match=None)
        return await found_alive(*args)

    monkeypatch.setattr(creation, "live_repeats", ended_before)


async def test_a_repeat_is_answered_although_its_action_ends_meanwhile(
    store: Store, draft: Drafter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that has ended; it is no conflict with itself."""
    wanted = draft(ID, keyed=True)
    await store.actions.create([wanted], actor="test")
    ends_in_between(store, monkeypatch)

    (answer,) = await store.actions.create([wanted], actor="test")

    assert answer is not None
    assert (True, State.CANCELLED) == (answer.repeated, answer.action.status.state)


async def test_what_has_another_key_is_a_conflict_although_it_ends_meanwhile(
    store: Store, draft: Drafter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was there when it was asked for."""
    await store.actions.create([draft(ID, keyed=True)], actor="test")
    ends_in_between(store, monkeypatch)

    assert [None] == list(await store.actions.create([draft(ID, keyed=True)], actor="test"))
