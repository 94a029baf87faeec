"""What nobody finished is settled, though one of it cannot be written."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import cast

import pytest

from gnomon.contracts.store import HeldShard, LapsedRow, SettleRequest, WorkStore
from gnomon.model.action import Status
from gnomon.model.errors import BugError, GnomonError, StoreUnavailable
from gnomon.model.spec import Mock, Spec
from gnomon.testing.virtual import SeededEntropy
from gnomon.worker.attempt_tally import AttemptTally
from gnomon.worker.reservations import Reservations
from gnomon.worker.settlement import LAPSED_MAX, Settler
from gnomon.worker.timeline import Timeline
from tests.unit.worker.surroundings import EPOCH, surroundings

HELD = [HeldShard(shard=0, lease_guid=SeededEntropy(random.Random(1)).token())]
ROUNDS_MAX = 200


class Rows:
    """A store of lapsed rows, and reservations of nobody: it cannot write the `poisoned` ones."""

    def __init__(self, count: int, poisoned: Sequence[int] = ()) -> None:
        entropy = SeededEntropy(random.Random(2))
        self.left = {
            f"a{number}": LapsedRow(
                shard=0,
                id=f"a{number}",
                guid=entropy.guid(),
                spec=Spec(action=Mock()),
                status=Status(scheduled_at=EPOCH, occurrence_no=1, occurrence_at=EPOCH),
                attempt=None,
                running=False,
                scheduled_at=EPOCH,
                now=EPOCH + timedelta(hours=1),
            )
            for number in range(count)
        }
        self.poisoned = {f"a{number}" for number in poisoned}
        self.error: GnomonError = BugError("cannot be written")
        self.sizes: list[int] = []

    async def list_lapsed(
        self, _holdings: Sequence[HeldShard], *, limit: int
    ) -> Sequence[LapsedRow]:
        return list(self.left.values())[:limit]

    async def keep_own(self, lapsed: Sequence[LapsedRow]) -> Sequence[LapsedRow]:
        return lapsed

    async def settle(self, settlements: Sequence[SettleRequest]) -> int:
        self.sizes.append(len(settlements))
        names = {one.lapsed.id for one in settlements}
        if names & self.poisoned:
            raise self.error
        for name in names:
            del self.left[name]
        return len(names)


def settler_on(rows: Rows) -> Settler:
    env, _, _ = surroundings()
    return Settler(
        cast("WorkStore", rows),
        cast("Reservations", rows),
        Timeline(lambda _: True),
        tally=AttemptTally(),
        env=replace(env, entropy=SeededEntropy(random.Random(3))),
    )


async def test_all_are_settled_at_once() -> None:
    rows = Rows(LAPSED_MAX + 1)
    settler = settler_on(rows)
    assert await settler.settle(HELD)
    assert not await settler.settle(HELD)
    assert [LAPSED_MAX, 1] == rows.sizes
    assert not await settler.settle(HELD)
    assert not settler.is_one_by_one


@pytest.mark.parametrize("error", [BugError("a bug"), StoreUnavailable("as it says")])
async def test_what_cannot_be_written_keeps_no_other_from_it(error: GnomonError) -> None:
    """Whatever the store calls it: the row costs itself alone."""
    rows = Rows(500, poisoned=[0, 7])
    rows.error = error
    settler = settler_on(rows)
    for _ in range(ROUNDS_MAX):
        try:
            await settler.settle(HELD)
        except type(error):
            continue
        if rows.left.keys() == rows.poisoned:
            break
    assert rows.poisoned == set(rows.left)
    with pytest.raises(type(error)):
        await settler.settle(HELD)
    assert settler.is_one_by_one


async def test_after_an_outage_batches_grow_again() -> None:
    rows = Rows(3 * LAPSED_MAX, poisoned=[0])
    settler = settler_on(rows)
    for _ in range(20):
        rows.poisoned = set(rows.left)
        with pytest.raises(BugError):
            await settler.settle(HELD)
    assert settler.is_one_by_one
    rows.poisoned = set()
    while await settler.settle(HELD):
        pass
    assert LAPSED_MAX == max(rows.sizes[20:])
    assert not rows.left
