"""Part of the suite: the register of stages."""

from __future__ import annotations

from datetime import timedelta

from gnomon.contracts.store import Store
from gnomon.contracts.store.queues import RowStatus, StageLane
from gnomon.contracts.store.register import StageDeclaration, StageRecord
from gnomon.model.stage.graph import Reach
from tests.conformance.store.suite.entities.given import KIND, OTHER_STAGE, STAGE, GivenEntities
from tests.conformance.store.suite.given import HOUR, SECOND, Given

BACKGROUND = StageLane.BACKGROUND


class TestRegister:
    """`declare`, `stages`, `forget`."""

    async def test_a_new_name_is_told_and_known_from_then_on(
        self, store: Store, given: Given
    ) -> None:
        """None the first time, its revision the next."""
        before = await given.now()
        assert {STAGE: None} == dict(await declared(store, {STAGE: 3}))
        assert {STAGE: 3} == dict(await declared(store, {STAGE: 3}))

        (record,) = await store.register.stages()
        assert (STAGE, 3) == (record.name, record.revision)
        assert before <= record.first_seen_at < record.last_seen_at <= await given.now()

    async def test_the_highest_revision_is_kept(self, store: Store) -> None:
        """A process with a lower one goes on, and changes nothing."""
        await declared(store, {STAGE: 3})

        assert {STAGE: 3} == dict(await declared(store, {STAGE: 2}))
        assert {STAGE: 3} == dict(await declared(store, {STAGE: 5}))
        assert {STAGE: 5} == dict(await declared(store, {STAGE: 4}))

    async def test_what_was_declared_last_is_shown(self, store: Store) -> None:
        """How long a stage settles, and whether it writes what it watches."""
        reach = {STAGE: Reach(KIND, watch=("a.b", "c"), writes=("a",))}
        await declared(store, {STAGE: 1, OTHER_STAGE: 1}, debounce={STAGE: 5 * SECOND}, reach=reach)
        assert {STAGE: (5 * SECOND, True), OTHER_STAGE: (0 * SECOND, False)} == {
            each.name: (each.debounce, each.own_echo) for each in await store.register.stages()
        }

        await declared(store, {STAGE: 1}, debounce={STAGE: timedelta(milliseconds=1500)})

        shown = {each.name: each for each in await store.register.stages()}[STAGE]
        assert (timedelta(milliseconds=1500), False) == (shown.debounce, shown.own_echo)

    async def test_a_raised_revision_begins_a_walk(self, store: Store, given: Given) -> None:
        """In all shards; the same or a lower one does not."""
        await declared(store, {STAGE: 3})
        await declared(store, {STAGE: 3}, backfill=[STAGE])
        await declared(store, {STAGE: 2}, backfill=[STAGE])
        assert [] == list((await store.queues.next_work(await given.holdings())).backfills)

        await declared(store, {STAGE: 4})

        survey = await store.queues.next_work(await given.holdings())
        assert {(STAGE, shard) for shard in range(given.installation.shard_count)} == set(
            survey.backfills
        )
        page = await store.queues.backfill_page(
            await given.holding(0), STAGE, limit=1, backlog_max=0
        )
        assert page is not None
        assert "backfill r4" == page.reason

    async def test_a_new_name_walks_if_it_wants_to(self, store: Store, given: Given) -> None:
        """`backfill` says so."""
        await declared(store, {STAGE: 1, OTHER_STAGE: 1}, backfill=[OTHER_STAGE])

        survey = await store.queues.next_work(await given.holdings())
        assert {OTHER_STAGE} == {stage for stage, _ in survey.backfills}

    async def test_a_raised_revision_frees_what_is_parked(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """Of that stage: the code that failed is not the code that is."""
        await declared(store, {STAGE: 1, OTHER_STAGE: 1})
        for name, status in (("a", RowStatus.QUARANTINED), ("b", RowStatus.LOOPING)):
            await entities.parked(name, status)
        await entities.offered("a", entities.offer(OTHER_STAGE))
        await entities.set_back(await entities.claim("a", OTHER_STAGE), RowStatus.QUARANTINED)
        before = await entities.row("a")

        await declared(store, {STAGE: 2, OTHER_STAGE: 1})

        assert {"a", "b"} == set(await entities.peeked(lane=BACKGROUND))
        rows = [await entities.row(name) for name in ("a", "b")]
        for row in rows:
            assert (0, 0, ("change", "backfill r2")) == (row.attempts, row.depth, row.reasons)
        assert 3 == len({before.root, *(row.root for row in rows)})
        assert RowStatus.QUARANTINED is (await entities.row("a", OTHER_STAGE)).status

    async def test_a_renamed_stage_takes_over(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """Revision, queue, timers, states, walks and outbox; no walk begins."""
        await declared(store, {"old": 3})
        entity = await entities.written("ad")
        wake = await entities.later()
        await entities.asked("ad", entities.offer("old", wake=wake))
        await entities.swapped(entity, b"mine", stage="old")
        waiting = await entities.row("ad", "old")
        await entities.deleted(await entities.kept("gone", "old"))

        known = await declared(store, {"new": 3}, formerly={"new": "old"}, backfill=["new"])

        assert {"new": 3} == dict(known)
        assert ["new"] == [record.name for record in await store.register.stages()]
        row = await entities.row("ad", "new")
        assert {"new"} == set(await entities.rows("ad"))
        assert (waiting.seq, wake) == (row.seq, row.timer_at)
        state = await entities.state("ad", "new")
        assert state is not None
        assert (1, b"mine") == (state.version, state.body)
        assert None is await entities.state("ad", "old")
        assert ["new"] == [row.sink for row in await entities.outgoing()]
        assert [] == list((await store.queues.next_work(await given.holdings())).backfills)

    async def test_a_renamed_stage_with_a_new_revision_walks(
        self, store: Store, given: Given
    ) -> None:
        """A walk of the old name goes on under the new one."""
        await declared(store, {"old": 3, "older": 1}, backfill=["older"])

        known = await declared(
            store, {"new": 4, "newer": 1}, formerly={"new": "old", "newer": "older"}
        )

        assert {"new": 3, "newer": 1} == dict(known)
        survey = await store.queues.next_work(await given.holdings())
        assert {"new", "newer"} == {stage for stage, _ in survey.backfills}

    async def test_a_name_that_is_known_takes_over_nothing(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """Nor does one whose former name is not known."""
        await declared(store, {"old": 3, "new": 1})
        await entities.queued("ad", "old")

        known = await declared(
            store, {"new": 1, "fresh": 1}, formerly={"new": "old", "fresh": "never"}
        )

        assert {"new": 1, "fresh": None} == dict(known)
        assert {"old"} == set(await entities.rows("ad"))
        assert ["fresh", "new", "old"] == [record.name for record in await store.register.stages()]

    async def test_stages_are_shown_with_their_queues(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """Ready by lane, parked, sleeping; in order of the name."""
        await declared(store, {STAGE: 1, OTHER_STAGE: 2, "idle": 1})
        await entities.queued("main-1")
        await entities.queued("main-2", delay=HOUR)
        await entities.queued("back", lane=BACKGROUND)
        await entities.parked("looping", RowStatus.LOOPING)
        await entities.parked("quarantined")
        await entities.sleeping("asleep")
        await entities.queued("other", OTHER_STAGE)

        records = {record.name: record for record in await store.register.stages()}

        assert ["idle", STAGE, OTHER_STAGE] == list(records)
        assert (2, 1, 2, 1) == counts_of(records[STAGE])
        assert (1, 0, 0, 0) == counts_of(records[OTHER_STAGE])
        assert (0, 0, 0, 0) == counts_of(records["idle"])

    async def test_forget_removes_all_of_a_stage(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """Queue, timers, states, walk, outbox and entry; nothing of another stage's."""
        await declared(store, {STAGE: 1, OTHER_STAGE: 1}, backfill=[STAGE])
        claim = await entities.queued("ad")
        await entities.offered("ad", entities.offer(OTHER_STAGE))
        await entities.sleeping("asleep")
        await entities.parked("parked")
        await entities.swapped(claim.entity)
        await entities.swapped(claim.entity, stage=OTHER_STAGE)
        await entities.deleted(await entities.kept("gone", STAGE))

        assert 5 == await store.register.forget(STAGE)  # 3 rows, 2 states

        assert {OTHER_STAGE} == set(await entities.rows("ad"))
        assert {} == await entities.rows("asleep")
        assert None is await entities.state("ad")
        assert await entities.state("ad", OTHER_STAGE) is not None
        assert [OTHER_STAGE] == [record.name for record in await store.register.stages()]
        assert [] == list(await entities.outgoing())
        assert [] == list((await store.queues.next_work(await given.holdings())).backfills)
        assert 0 == await store.register.forget(STAGE)
        assert {STAGE: None} == dict(await declared(store, {STAGE: 1}))


async def declared(
    store: Store,
    stages: dict[str, int],
    *,
    formerly: dict[str, str] | None = None,
    backfill: list[str] | None = None,
    debounce: dict[str, timedelta] | None = None,
    reach: dict[str, Reach] | None = None,
) -> dict[str, int | None]:
    declarations = [
        StageDeclaration(
            name=name,
            revision=revision,
            reach=(reach or {}).get(name, Reach(KIND, (), ())),
            formerly=(formerly or {}).get(name),
            backfill=name in (backfill or []),
            debounce=(debounce or {}).get(name, timedelta(0)),
        )
        for name, revision in stages.items()
    ]
    return dict(await store.register.declare(declarations))


def counts_of(record: StageRecord) -> tuple[int, int, int, int]:
    return record.waiting, record.background, record.parked, record.sleeping
