"""Part of the suite: limits, and how they are shared out among processes."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import UUID

from gnomon.contracts.store import AuditSelection, LimitRequest, Store
from gnomon.model.limits import Limit, LimitKey, LimitKind
from tests.conformance.store.suite.given import HOUR, NOTHING, Given, polls

MAIL = LimitKey(LimitKind.QUEUE, "mail")
HOOK = LimitKey(LimitKind.TARGET, "hook")
WANTS_ALL = LimitRequest(held=0, wanted=100)
GIVES_BACK = LimitRequest(held=0, wanted=0)


class Members:
    """Worker processes that live and hold shards, two by default."""

    def __init__(self, given: Given) -> None:
        self._given = given
        self._store = given.store
        self.told: dict[UUID, int] = {}

    async def living(self, *shard_counts: int) -> list[UUID]:
        """Workers with so many shards each."""
        workers, shard = [], 0
        for count in shard_counts:
            held = [await self._given.holding(shard + number) for number in range(count)]
            shard += count
            worker = self._given.entropy.token()
            await self._store.leases.heartbeat(worker, owner="w", holdings=held, alive_for=HOUR)
            workers.append(worker)
        return workers

    async def ask(
        self, worker: UUID, claim: LimitRequest, key: LimitKey = MAIL, alive_for: timedelta = HOUR
    ) -> int:
        """What the worker is told."""
        answer = await self._store.limits.share(worker, {key: claim}, alive_for=alive_for)
        return answer[key]

    async def use(self, worker: UUID, wanted: int) -> int:
        """A worker that uses all it was told, and gives up at once what it is told to."""
        held = self.told.get(worker, 0)
        allowed = await self.ask(worker, LimitRequest(held=held, wanted=wanted))
        if allowed < held:
            allowed = await self.ask(worker, LimitRequest(held=allowed, wanted=wanted))
        self.told[worker] = allowed
        return allowed


async def set_limit(given: Given, limit: Limit, actor: str = "ops") -> None:
    await given.store.limits.set(limit, guid=given.entropy.guid(), actor=actor)


def mail(parallel: int | None, **more: float) -> Limit:
    return Limit(kind=LimitKind.QUEUE, name="mail", parallel=parallel, **more)  # type: ignore[arg-type]


class TestLimits:
    """`set`, `drop`, `table`: limits as data."""

    async def test_there_are_no_limits_at_first(self, store: Store) -> None:
        """And no version but the first."""
        table = await store.limits.list()
        assert ([], 0) == (list(table.uses), table.version)

    async def test_what_is_set_is_shown_in_order(self, store: Store, given: Given) -> None:
        """Every field comes back as it was set, by kind and name."""
        hook = Limit(kind=LimitKind.TARGET, name="hook", rate=0.25, burst=3)
        wanted = [Limit(kind=LimitKind.QUEUE, name="a", parallel=0), mail(5, rate=50.0), hook]
        for limit in reversed(wanted):
            await set_limit(given, limit)

        table = await store.limits.list()

        assert wanted == [use.limit for use in table.uses]
        assert 3 == table.version

    async def test_a_change_takes_the_place_of_what_was(self, store: Store, given: Given) -> None:
        """Fields that are not named any more are gone."""
        await set_limit(given, mail(5, rate=50.0))
        await set_limit(given, mail(7))

        assert [mail(7)] == [use.limit for use in (await store.limits.list()).uses]

    async def test_setting_the_same_again_is_no_change(self, store: Store, given: Given) -> None:
        """Neither for the version nor for the audit."""
        await set_limit(given, mail(5, rate=0.1))
        await set_limit(given, mail(5, rate=0.1))

        assert 1 == (await store.limits.list()).version
        assert 1 == len(await store.tokens.list_audit(AuditSelection(id="queue/mail"), limit=9))

    async def test_dropping_says_whether_there_was_one(self, store: Store, given: Given) -> None:
        """The second time there is nothing to drop."""
        await set_limit(given, mail(5))
        guid = given.entropy.guid()

        assert await store.limits.delete(MAIL, guid=guid)
        assert not await store.limits.delete(MAIL, guid=guid)
        table = await store.limits.list()
        assert ([], 2) == (list(table.uses), table.version)

    async def test_changes_are_in_the_audit(self, store: Store, given: Given) -> None:
        """Who, what, and which limit, written by the change's own transaction."""
        await set_limit(given, mail(5), actor="anna")
        guid = given.entropy.guid()
        await store.limits.delete(MAIL, guid=guid, actor="bert")

        entries = await store.tokens.list_audit(AuditSelection(id="queue/mail"), limit=9)

        told = [(entry.actor, entry.verb) for entry in entries]
        assert [("bert", "drop_limit"), ("anna", "set_limit")] == told
        assert guid == entries[0].guid

    async def test_every_heartbeat_tells_the_version(self, store: Store, given: Given) -> None:
        """So nobody has to ask whether something was changed."""
        worker = given.entropy.token()
        await set_limit(given, mail(5))

        pulse = await store.leases.heartbeat(worker, owner="w", holdings=[], alive_for=HOUR)

        assert 1 == pulse.limits_version

    async def test_every_heartbeat_tells_how_many_shards_are_held(
        self, store: Store, given: Given
    ) -> None:
        """By all living workers together: what shares are reckoned by."""
        await Members(given).living(2, 1)
        worker = given.entropy.token()

        pulse = await store.leases.heartbeat(worker, owner="w", holdings=[], alive_for=HOUR)

        assert 3 == pulse.shards_held


class TestShares:
    """`share`: who may have how many attempts under way."""

    async def test_one_worker_may_use_all_of_it(self, given: Given) -> None:
        """As much as it wants, and no more than there is."""
        members = Members(given)
        (worker,) = await members.living(4)
        await set_limit(given, mail(5))

        assert 3 == await members.ask(worker, LimitRequest(held=0, wanted=3))
        assert 5 == await members.ask(worker, LimitRequest(held=3, wanted=100))

    async def test_nothing_is_told_about_what_has_no_parallelism(
        self, store: Store, given: Given
    ) -> None:
        """Unknown ones, and those with a rate only."""
        await set_limit(given, Limit(kind=LimitKind.TARGET, name="hook", rate=5.0))
        claims = {MAIL: WANTS_ALL, HOOK: WANTS_ALL}

        assert {} == await store.limits.share(given.entropy.token(), claims, alive_for=HOUR)

    async def test_limits_do_not_get_into_each_others_way(self, store: Store, given: Given) -> None:
        """A queue and a target of one name are two limits."""
        (worker,) = await Members(given).living(4)
        key = LimitKey(LimitKind.TARGET, "mail")
        await set_limit(given, mail(5))
        await set_limit(given, Limit(kind=LimitKind.TARGET, name="mail", parallel=2))

        answer = await store.limits.share(worker, {MAIL: WANTS_ALL, key: WANTS_ALL}, alive_for=HOUR)

        assert {MAIL: 5, key: 2} == answer

    async def test_what_others_have_is_not_given_twice(self, given: Given) -> None:
        """The sum never exceeds the limit, whatever everybody wants."""
        members = Members(given)
        workers = await members.living(2, 1, 1)
        await set_limit(given, mail(5))

        for _ in range(3):
            for worker in workers:
                await members.use(worker, 100)
                assert sum(members.told.values()) <= 5

    async def test_what_is_left_over_goes_to_whoever_wants_it(self, given: Given) -> None:
        """Work-conserving: nobody's fair part lies idle while another has use for it."""
        members = Members(given)
        one, two = await members.living(2, 2)
        await set_limit(given, mail(10))

        assert 1 == await members.use(two, 1)
        assert 9 == await members.use(one, 100)

    async def test_shares_become_fair_by_shards(self, given: Given) -> None:
        """Who has more than his part gives it up for those who lack theirs."""
        members = Members(given)
        one, two = await members.living(3, 1)
        await set_limit(given, mail(8))
        assert 8 == await members.use(one, 100)
        assert 0 == await members.use(two, 100)

        async for _ in polls():
            if (6, 2) == (await members.use(one, 100), await members.use(two, 100)):
                break

        assert {one: 6, two: 2} == members.told

    async def test_what_is_under_way_counts_until_it_has_ended(self, given: Given) -> None:
        """A lowered limit takes nothing away from what runs, and gives nothing to others."""
        members = Members(given)
        one, two = await members.living(2, 2)
        await set_limit(given, mail(6))
        assert 6 == await members.use(one, 6)
        await set_limit(given, mail(2))

        assert 2 == await members.ask(one, LimitRequest(held=6, wanted=6))
        assert 0 == await members.ask(two, LimitRequest(held=0, wanted=6))
        assert 1 == await members.ask(one, LimitRequest(held=1, wanted=1))
        assert 1 == await members.ask(two, LimitRequest(held=0, wanted=6))

    async def test_a_limit_of_none_at_all_stops_everybody(self, given: Given) -> None:
        """0 is a limit, not the lack of one."""
        members = Members(given)
        (worker,) = await members.living(4)
        await set_limit(given, mail(0))

        assert 0 == await members.ask(worker, WANTS_ALL)

    async def test_a_raised_limit_is_there_at_the_next_question(self, given: Given) -> None:
        """No more needs to happen than that the worker asks."""
        members = Members(given)
        (worker,) = await members.living(4)
        await set_limit(given, mail(1))
        assert 1 == await members.use(worker, 100)
        await set_limit(given, mail(4))

        assert 4 == await members.use(worker, 100)

    async def test_everything_is_given_back_by_a_claim_of_nothing(
        self, store: Store, given: Given
    ) -> None:
        """And no row of it is left."""
        members = Members(given)
        one, two = await members.living(2, 2)
        await set_limit(given, mail(3))
        await members.ask(one, WANTS_ALL)
        assert 3 == (await store.limits.list()).uses[0].granted

        await members.ask(one, GIVES_BACK)

        assert 0 == (await store.limits.list()).uses[0].granted
        assert 3 == await members.ask(two, WANTS_ALL)
        assert [(1,)] == [
            tuple(row) for row in await given.execute_raw("SELECT count(*) FROM limit_grant")
        ]

    async def test_a_silent_workers_part_comes_back(self, given: Given) -> None:
        """Who has not asked for `alive_for` has nothing any more; until then nobody else has it."""
        members = Members(given)
        one, two = await members.living(2, 2)
        await set_limit(given, mail(3))
        assert 3 == await members.ask(one, WANTS_ALL)

        assert 0 == await members.ask(two, WANTS_ALL)
        assert 3 == await members.ask(two, WANTS_ALL, alive_for=NOTHING)

    async def test_who_comes_back_after_a_silence_counts_with_what_it_has(
        self, given: Given
    ) -> None:
        """Though its part was given to others: it may not begin, and they get no more."""
        members = Members(given)
        one, two = await members.living(2, 2)
        await set_limit(given, mail(3))
        assert 3 == await members.ask(one, WANTS_ALL)
        assert 3 == await members.ask(two, WANTS_ALL, alive_for=NOTHING)

        assert 0 == await members.ask(one, LimitRequest(held=2, wanted=100))
        assert 1 == await members.ask(two, LimitRequest(held=2, wanted=100))

    async def test_one_for_three_goes_round(self, given: Given) -> None:
        """With less than one for each they take turns, and nobody starves."""
        members = Members(given)
        workers = await members.living(2, 1, 1)
        await set_limit(given, mail(1))
        turns: list[UUID] = []

        async for _ in polls():
            for worker in workers:
                if await members.use(worker, 1) and turns[-1:] != [worker]:
                    turns.append(worker)
            assert sum(members.told.values()) <= 1
            if len(turns) >= 4:
                break

        assert set(workers) == set(turns[:3])
        assert turns[0] == turns[3]

    async def test_whoever_has_waited_longest_is_next(self, given: Given) -> None:
        """Also when another one asks first."""
        members = Members(given)
        one, two, three = await members.living(2, 1, 1)
        await set_limit(given, mail(1))
        assert 1 == await members.use(one, 1)
        assert 0 == await members.use(two, 1)
        assert 0 == await members.use(three, 1)
        await members.ask(one, GIVES_BACK)

        assert 0 == await members.use(three, 1)
        assert 1 == await members.use(two, 1)

    async def test_many_at_once_never_get_more_than_there_is(self, given: Given) -> None:
        """One caller at a time for each limit, also from several connections."""
        members = Members(given)
        workers = await members.living(2, 1, 1)
        await set_limit(given, mail(5))
        stores = [await given.open_another() for _ in workers]

        answers = await asyncio.gather(
            *(
                store.limits.share(worker, {MAIL: WANTS_ALL}, alive_for=HOUR)
                for store, worker in zip(stores, workers, strict=True)
            )
        )

        assert 5 == sum(answer[MAIL] for answer in answers)

    async def test_a_dropped_limit_leaves_no_grants(self, store: Store, given: Given) -> None:
        """When it is set again, everything is free."""
        members = Members(given)
        one, two = await members.living(2, 2)
        await set_limit(given, mail(3))
        assert 3 == await members.ask(one, WANTS_ALL)
        await store.limits.delete(MAIL, guid=given.entropy.guid())
        await set_limit(given, mail(3))

        assert 3 == await members.ask(two, WANTS_ALL)
