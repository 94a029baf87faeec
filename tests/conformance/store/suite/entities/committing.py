"""Part of the suite: commits, and their fences."""

from __future__ import annotations

from gnomon.contracts.store import Store
from gnomon.contracts.store.entities import StateWrite
from gnomon.contracts.store.queues import ClaimedEntity, CommitKind, RowStatus
from tests.conformance.store.suite.entities.given import (
    DOC,
    OTHER_DOC,
    OTHER_STAGE,
    STAGE,
    GivenEntities,
)
from tests.conformance.store.suite.given import HOUR, SECOND, Given

SAVED, MOVED, LOST = CommitKind.SAVED, CommitKind.MOVED, CommitKind.LOST


class TestCommit:
    """`commit`: entity, state, timer, offers and outbox, whole or not at all."""

    async def test_document_and_note_are_saved(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """With version + 1, in the stage's name and the chain's depth."""
        claim = await entities.queued("ad", depth=2)

        committed = await entities.committed(claim, doc=OTHER_DOC, paths=("price", "rank"))

        assert SAVED is committed.kind
        entity = await entities.entity("ad")
        assert (1, 2, OTHER_DOC) == (entity.epoch, entity.version, entity.doc)
        note = (await store.entities.changes("ad", shard=entity.shard, limit=1))[0]
        assert (2, ("price", "rank"), f"stage:{STAGE}") == (note.version, note.paths, note.author)
        assert (claim.row.root, 3, entity.changed_at) == (note.root, note.depth, note.at)
        assert claim.now <= note.at <= await given.now()

    async def test_without_a_document_the_version_stays(self, entities: GivenEntities) -> None:
        """Nothing changed: no version, no note, nothing goes out; the row is done with."""
        claim = await entities.queued("ad")

        assert SAVED is (await entities.committed(claim, relay=True, after_save=True)).kind

        assert claim.entity == await entities.entity("ad")
        assert [1] == await entities.versions_of(claim.entity)
        assert {} == await entities.rows("ad")
        assert [] == list(await entities.outgoing())
        assert [] == list(await entities.fed())

    async def test_the_state_is_saved_with_its_own_version(self, entities: GivenEntities) -> None:
        """The first has version 1; kept, it stays as it is."""
        claim = await entities.queued("ad")
        await entities.committed(claim, state=StateWrite(body=b"1", revision=3))
        first = await entities.state("ad")
        assert first is not None
        assert (1, 3, b"1", None) == (first.version, first.revision, first.body, first.type)

        await entities.offered("ad", entities.offer())
        claim = await entities.claim("ad")
        await entities.committed(claim, doc=OTHER_DOC)
        assert first == await entities.state("ad")

        await entities.offered("ad", entities.offer())
        claim = await entities.claim("ad")
        await entities.committed(claim, state=StateWrite(body=b"2", revision=4, type="v1.S"))
        second = await entities.state("ad")
        assert second is not None
        assert (2, 4, b"2", "v1.S") == (second.version, second.revision, second.body, second.type)

    async def test_a_state_alone_leaves_the_entity_alone(self, entities: GivenEntities) -> None:
        """Others need not be asked: it is private."""
        claim = await entities.queued("ad")

        await entities.committed(claim, state=StateWrite(body=b"1", revision=1), unrouted=True)

        assert claim.entity == await entities.entity("ad")
        assert [] == list(await entities.fed())

    async def test_of_many_each_stands_for_itself(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """One that is fenced off does not hold up the others; answers come in their order."""
        claims = [await entities.queued(name) for name in ("c", "a", "moved", "b")]
        await entities.changed(claims[2].entity)
        commits = [await entities.commit_of(claim, doc='{"n": 9}') for claim in claims]

        found = await store.queues.commit(commits)

        assert [SAVED, SAVED, MOVED, SAVED] == [committed.kind for committed in found]
        assert [2, 2, 2, 2] == [
            (await entities.entity(name)).version for name in ("a", "b", "c", "moved")
        ]

    async def test_two_of_one_entity_are_saved_one_after_the_other(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """Two stages at once: the second finds that the first was there."""
        first = await entities.queued("ad")
        await entities.offered("ad", entities.offer(OTHER_STAGE))
        second = await entities.claim("ad", OTHER_STAGE)
        commits = [
            await entities.commit_of(first, doc=OTHER_DOC),
            await entities.commit_of(second, doc='{"n": 9}'),
        ]

        found = await store.queues.commit(commits)

        assert [SAVED, MOVED] == [committed.kind for committed in found]
        assert await entities.entity("ad") == found[1].entity
        assert [f"stage:{STAGE}"] == [note.author for note in found[1].since]
        assert OTHER_DOC == (await entities.entity("ad")).doc
        assert {OTHER_STAGE} == set(await entities.rows("ad"))

    async def test_the_second_of_one_entity_may_build_on_the_first(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """What it lets out is the document that the first has saved."""
        first = await entities.queued("ad")
        await entities.offered("ad", entities.offer(OTHER_STAGE))
        second = await entities.claim("ad", OTHER_STAGE)
        state = StateWrite(body=b"1", revision=1)
        commits = [
            await entities.commit_of(first, doc=OTHER_DOC),
            await entities.commit_of(second, version=2, state=state, after_save=True),
        ]

        found = await store.queues.commit(commits)

        assert [SAVED, SAVED] == [committed.kind for committed in found]
        (row,) = await entities.outgoing()
        assert (2, OTHER_DOC) == (row.version, row.doc)
        assert {} == await entities.rows("ad")

    async def test_a_moved_entity_comes_back_with_what_changed(
        self, entities: GivenEntities
    ) -> None:
        """So that it can be merged, or run again; nothing was written."""
        claim = await entities.queued("ad")
        changed = await entities.changed(claim.entity, paths=("a",), author="importer")
        changed = await entities.changed(changed, paths=("b",), doc='{"n": 3}')

        committed = await entities.committed(
            claim, doc=OTHER_DOC, state=StateWrite(body=b"1", revision=1), relay=True,
            wake=await entities.later(), enqueues=(entities.offer(OTHER_STAGE),),
        )  # fmt: skip

        assert (MOVED, changed) == (committed.kind, committed.entity)
        assert [(2, ("a",), "importer"), (3, ("b",), "user")] == [
            (note.version, note.paths, note.author) for note in committed.since
        ]
        await assert_untouched(entities, claim)
        assert changed == await entities.entity("ad")

    async def test_a_merge_on_what_is_there_now_is_saved(self, entities: GivenEntities) -> None:
        """The answer's version is the new base."""
        claim = await entities.queued("ad")
        await entities.changed(claim.entity)
        committed = await entities.committed(claim, doc="{}")
        assert committed.entity is not None

        merged = await entities.committed(
            claim, doc='{"merged": true}', version=committed.entity.version
        )

        assert SAVED is merged.kind
        assert (3, '{"merged": true}') == (
            (await entities.entity("ad")).version,
            (await entities.entity("ad")).doc,
        )

    async def test_the_version_is_a_fence_without_a_document_too(
        self, entities: GivenEntities
    ) -> None:
        """State and timer were decided by what the document was."""
        claim = await entities.queued("ad")
        await entities.changed(claim.entity)

        committed = await entities.committed(claim, wake=await entities.later())

        assert MOVED is committed.kind
        await assert_untouched(entities, claim)

    async def test_the_state_is_a_fence_even_if_it_is_kept(self, entities: GivenEntities) -> None:
        """The document was decided by what the state was."""
        claim = await entities.queued("ad")
        await entities.swapped(claim.entity, b"theirs")

        committed = await entities.committed(claim, doc=OTHER_DOC)

        assert CommitKind.STATE_MOVED is committed.kind
        state = await entities.state("ad")
        assert state is not None
        assert b"theirs" == state.body
        assert DOC == (await entities.entity("ad")).doc
        assert claim.row == await entities.row("ad")

    async def test_a_lost_lease_saves_nothing(self, given: Given, entities: GivenEntities) -> None:
        """A stalled owner can hurt nobody."""
        claim = await entities.queued("ad")

        committed = await entities.committed(
            claim, doc=OTHER_DOC, lease_guid=given.entropy.token(), relay=True, unrouted=True
        )

        assert LOST is committed.kind
        await assert_untouched(entities, claim)
        assert claim.entity == await entities.entity("ad")

    async def test_a_lost_lease_is_lost_beside_a_good_one(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """Of the same shard, in the same batch: each save has the lease that it names."""
        good = await entities.queued("ad")
        shard = given.shard_of("ad")
        name = next(name for n in range(9_999) if shard == given.shard_of(name := f"other{n}"))
        stalled = await entities.queued(name)
        commits = [
            await entities.commit_of(good, doc=OTHER_DOC),
            await entities.commit_of(stalled, doc=OTHER_DOC, lease_guid=given.entropy.token()),
        ]

        assert [SAVED, LOST] == [each.kind for each in await store.queues.commit(commits)]

        await assert_untouched(entities, stalled)
        assert stalled.entity == await entities.entity(name)

    async def test_nothing_to_do_is_nothing_done(self, store: Store) -> None:
        """No commits, no answers."""
        assert [] == list(await store.queues.commit([]))


class TestClaimedRow:
    """What a commit does with the row that was claimed."""

    async def test_it_is_removed(self, entities: GivenEntities) -> None:
        """If nothing happened meanwhile, and no timer is left."""
        claim = await entities.queued("ad")
        await entities.committed(claim, doc=OTHER_DOC)

        assert {} == await entities.rows("ad")

    async def test_it_stays_ready_if_its_seq_moved(self, entities: GivenEntities) -> None:
        """What landed while the stage was at it is not lost; success resets the attempts."""
        claim = await entities.queued("ad", reason="one")
        await entities.set_back(claim, RowStatus.READY, counts=True, error="no")
        claim = await entities.claim("ad")
        await entities.offered("ad", entities.offer(reason="two"))

        assert SAVED is (await entities.committed(claim, doc=OTHER_DOC)).kind

        row = await entities.row("ad")
        assert (RowStatus.READY, claim.row.seq + 1) == (row.status, row.seq)
        assert (0, None) == (row.attempts, row.error)
        assert ["ad"] == await entities.peeked()

    async def test_a_kept_timer_lets_it_sleep(self, entities: GivenEntities) -> None:
        """Silence about the timer keeps it; the row is as if it had never waited."""
        wake = await entities.later()
        claim = await entities.queued("ad", wake=wake)
        await entities.set_back(claim, RowStatus.READY, counts=True, error="no")

        await entities.committed(await entities.claim("ad"), doc=OTHER_DOC, note="all well")

        row = await entities.row("ad")
        assert (RowStatus.SLEEPING, wake, None) == (row.status, row.timer_at, row.ready_at)
        assert ((), 0, None, "all well") == (row.reasons, row.attempts, row.error, row.note)
        assert [] == await entities.peeked()

    async def test_a_moment_replaces_the_timer(self, entities: GivenEntities) -> None:
        """Earlier or later: the stage is the authority. One in the past fires at once."""
        wake = await entities.later()
        for name, moment in (("later", wake + HOUR), ("earlier", wake - 60 * SECOND)):
            claim = await entities.queued(name, wake=wake)
            await entities.committed(claim, wake=moment)
            assert moment == (await entities.row(name)).timer_at
        claim = await entities.queued("past")
        await entities.committed(claim, wake=await entities.earlier())

        assert 1 == await entities.fire()
        assert ["past"] == await entities.peeked()

    async def test_none_cancels_the_timer(self, entities: GivenEntities) -> None:
        """Then there is nothing left of the row."""
        claim = await entities.queued("ad", wake=await entities.later())
        await entities.committed(claim, wake=None)

        assert {} == await entities.rows("ad")

    async def test_the_timer_is_set_though_the_row_stays(self, entities: GivenEntities) -> None:
        """A row whose seq moved has the new timer beside it."""
        wake = await entities.later()
        claim = await entities.queued("ad")
        await entities.offered("ad", entities.offer())

        await entities.committed(claim, wake=wake)

        row = await entities.row("ad")
        assert (RowStatus.READY, wake) == (row.status, row.timer_at)

    async def test_a_timer_is_set_though_the_row_is_gone(self, entities: GivenEntities) -> None:
        """Whoever removed it, the stage wants to be woken."""
        wake = await entities.later()
        claim = await entities.queued("ad")
        await entities.set_back(claim, None)

        assert SAVED is (await entities.committed(claim, wake=wake)).kind

        row = await entities.row("ad")
        assert (RowStatus.SLEEPING, wake) == (row.status, row.timer_at)

    async def test_others_rows_are_left_alone(self, entities: GivenEntities) -> None:
        """A commit of one stage is not one of another."""
        claim = await entities.queued("ad")
        await entities.offered("ad", entities.offer(OTHER_STAGE))
        other = await entities.row("ad", OTHER_STAGE)

        await entities.committed(claim, doc=OTHER_DOC)

        assert {OTHER_STAGE: other} == await entities.rows("ad")


async def assert_untouched(entities: GivenEntities, claim: ClaimedEntity) -> None:
    """Nothing of a commit that was fenced off was written."""
    name = claim.entity.key
    assert {claim.row.stage: claim.row} == await entities.rows(name)
    assert None is await entities.state(name, claim.row.stage)
    assert [] == list(await entities.outgoing())
