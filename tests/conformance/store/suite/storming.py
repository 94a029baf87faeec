"""Part of the suite: everybody who writes, at once, on a handful of actions."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

import pytest

from gnomon.contracts.store import HeldShard, Recorded, Store
from gnomon.model.errors import Conflict, FailedPrecondition, NotFound, StoreUnavailable
from gnomon.model.outcome import Failed, Succeeded
from tests.conformance.store.suite.given import HOUR, NOTHING, OWNER, SECOND, Given, every, retrying

NAMES = [f"storm-{number}" for number in range(8)]
ROUNDS = 25
PAUSE_S = 0.01  # between two changes of one transaction, and between begin and finish
EXPECTED = (NotFound, Conflict, FailedPrecondition)


@pytest.mark.usefixtures("waiting_verbs")
class TestStorm:
    """Whoever locks what in which order: nobody waits in a circle, and nothing is lost."""

    async def test_all_writers_at_once_never_deadlock(self, store: Store, given: Given) -> None:
        """Users (also with many changes in one transaction), two workers and the janitor. A
        deadlock would end one of their calls with an error."""
        storm = _Storm(given, [store, await given.open_another()])
        await given.holdings()

        await storm.rage(store)

        await storm.calm_down(store)
        assert [] == list(await store.installation.doctor())


class _Storm:
    def __init__(self, given: Given, stores: list[Store]) -> None:
        self._given = given
        self._stores = stores
        self._dice = random.Random(7)
        self._is_over = False

    async def rage(self, store: Store) -> None:
        """Until everybody has changed enough; the workers work as long as that takes."""
        changes = [self._create, self._create, *[self._replace] * 6, self._delete, self._pause]
        changes += [self._resume, self._run_now, self._purge]
        if self._given.caller_transaction is not None and store.capabilities.parallel_writers:
            changes.append(self._cancel_many)
        async with asyncio.TaskGroup() as group:
            for rival in self._stores:
                group.create_task(self._work(rival))
            await asyncio.gather(*(self._keep_changing(change) for change in changes))
            self._is_over = True

    async def _keep_changing(self, change: Callable[[], Awaitable[object]]) -> None:
        for _ in range(ROUNDS):
            try:
                await change()
            except EXPECTED:
                await asyncio.sleep(0)
            except StoreUnavailable as exc:
                _tolerate(exc)

    # -- users ------------------------------------------------------------------------------------

    def _name(self) -> str:
        return self._dice.choice(NAMES)

    def _store(self) -> Store:
        return self._dice.choice(self._stores)

    async def _create(self) -> None:
        names = self._dice.sample(NAMES, 5)
        drafts = [
            await self._given.draft(name, retry=retrying(1), policy=every(HOUR)) for name in names
        ]
        await self._store().actions.create(drafts)

    async def _replace(self) -> None:
        await self._store().actions.replace(await self._given.draft(self._name()), if_match=None)

    async def _delete(self) -> None:
        await self._store().actions.delete(self._name(), if_match=None)

    async def _pause(self) -> None:
        await self._store().actions.pause(self._name(), self._given.entropy.guid(), if_match=None)

    async def _resume(self) -> None:
        await self._store().actions.resume(
            self._name(), self._given.entropy.guid(), decide=lambda _, now: (now, now, None),
            if_match=None,
        )  # fmt: skip

    async def _run_now(self) -> None:
        await self._store().actions.run_now(self._name(), self._given.entropy.guid(), if_match=None)

    async def _cancel_many(self) -> None:
        """Several in one transaction, in any order, and it stays open for a moment."""
        assert self._given.caller_transaction is not None
        async with self._given.caller_transaction() as transaction:
            joined = self._store().joining(transaction.connection)
            for name in self._dice.sample(NAMES, 4):
                try:
                    await joined.delete(name, if_match=None)
                except NotFound:
                    await asyncio.sleep(0)
                await asyncio.sleep(PAUSE_S)
            await (transaction.commit() if self._dice.random() < 0.5 else transaction.roll_back())

    async def _purge(self) -> None:
        await self._store().installation.purge(limit=100)

    # -- workers ----------------------------------------------------------------------------------

    async def _work(self, store: Store) -> None:
        holdings = await self._given.holdings()
        while not self._is_over:
            try:
                await self._work_once(store, holdings)
            except StoreUnavailable as exc:
                _tolerate(exc)

    async def _work_once(self, store: Store, holdings: Sequence[HeldShard]) -> None:
        given = self._given
        await store.work.move(holdings, limit=100)
        begun = (
            await store.work.begin(
                await given.demands(), batch=given.entropy.token(), owner=OWNER,
                grace=NOTHING, window=NOTHING, silent=HOUR,
            )
        ).begun  # fmt: skip
        await store.work.extend(begun, window=SECOND, grace=NOTHING)
        await asyncio.sleep(PAUSE_S)
        outcomes = [self._dice.choice((Succeeded(), Failed(error="no"))) for _ in begun]
        finishes = [
            await given.finish_of(one, outcome)
            for one, outcome in zip(begun, outcomes, strict=True)
        ]
        self._dice.shuffle(finishes)
        await store.work.finish(finishes, owner=OWNER)
        lapsed = await store.work.list_lapsed(holdings, limit=100)
        await store.work.settle([await given.settlement(one) for one in lapsed])
        await store.work.delete_stale(holdings, limit=100)

    async def calm_down(self, store: Store) -> None:
        """Every action can still be written."""
        for name in NAMES:
            try:
                await store.actions.delete(name, if_match=None)
            except NotFound:
                continue
        begun = await self._given.begun("after-the-storm")
        assert Recorded.APPLIED is await self._given.recorded(begun)


def _tolerate(exc: StoreUnavailable) -> None:
    """On a machine with ten times its work to do, who waits for his turn waits longer than a
    statement may; nobody is in a circle then."""
    if "statement timeout" not in str(exc):
        raise exc
