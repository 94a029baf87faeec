"""Part of the suite: what a commit saves beside the document."""

from __future__ import annotations

from typing import Any

from gnomon.contracts.store import Store
from gnomon.contracts.store.entities import StateWrite
from gnomon.contracts.store.queues import CommitKind, RowStatus
from tests.conformance.store.suite.entities.given import DOC, OTHER_DOC, STAGE, GivenEntities
from tests.conformance.store.suite.given import HOUR

SAVED, MOVED, LOST = CommitKind.SAVED, CommitKind.MOVED, CommitKind.LOST


class TestCommitOffers:
    """Others that want the entity, or shall be asked."""

    async def test_offers_are_made_with_the_save(self, entities: GivenEntities) -> None:
        """New rows and merged ones, by the rules of offers."""
        claim = await entities.queued("ad")
        await entities.offered("ad", entities.offer("waits", reason="one"))
        wake = await entities.later()

        await entities.committed(
            claim, doc=OTHER_DOC,
            enqueues=(
                entities.offer("waits", reason="two", depth=1),
                entities.offer("new", reason="two", depth=1),
                entities.offer("timed", ready=False, wake=wake),
            ),
        )  # fmt: skip

        rows = await entities.rows("ad")
        assert {"waits", "new", "timed"} == set(rows)
        assert (("one", "two"), 1) == (rows["waits"].reasons, rows["waits"].depth)
        assert (("two",), 1) == (rows["new"].reasons, rows["new"].depth)
        assert (RowStatus.SLEEPING, wake) == (rows["timed"].status, rows["timed"].timer_at)

    async def test_the_rows_that_were_made_are_told(self, entities: GivenEntities) -> None:
        """By stage, `seq` and time: new ones that are ready; not those that were there, nor those
        that only have a timer or are parked."""
        claim = await entities.queued("ad")
        chain: dict[str, Any] = {"root": claim.row.root, "depth": claim.row.depth + 1}
        await entities.offered("ad", entities.offer("waits"))
        wake = await entities.later()

        answer = await entities.committed(
            claim, doc=OTHER_DOC,
            enqueues=(
                entities.offer("first", **chain),
                entities.offer("waits", **chain),
                entities.offer("later", delay=HOUR),
                entities.offer("timed", ready=False, wake=wake),
                entities.offer("loops", looping="x"),
            ),
        )  # fmt: skip

        rows = await entities.rows("ad")
        told = {made.stage: (made.seq, made.at) for made in answer.made}
        assert (
            told.items()
            <= {name: (rows[name].seq, rows[name].first_at) for name in ("first", "later")}.items()
        )

    async def test_a_row_that_was_there_is_merged_into_and_not_told(
        self, entities: GivenEntities
    ) -> None:
        """Whoever claims it out of memory would not know what it was."""
        claim = await entities.queued("ad")
        chain: dict[str, Any] = {"root": claim.row.root, "depth": claim.row.depth + 1}
        await entities.offered("ad", entities.offer("waits", reason="one"))

        answer = await entities.committed(
            claim, doc=OTHER_DOC, enqueues=(entities.offer("waits", reason="two", **chain),)
        )

        assert () == answer.made
        assert ("one", "two") == (await entities.row("ad", "waits")).reasons

    async def test_offers_of_a_commit_that_is_refused_are_not_made(
        self, entities: GivenEntities
    ) -> None:
        """All or nothing."""
        claim = await entities.queued("ad")
        chain: dict[str, Any] = {"root": claim.row.root, "depth": claim.row.depth + 1}
        await entities.changed(claim.entity)

        answer = await entities.committed(
            claim, doc=OTHER_DOC, enqueues=(entities.offer("next", **chain),)
        )

        assert (MOVED, ()) == (answer.kind, answer.made)
        assert {STAGE} == set(await entities.rows("ad"))

    async def test_what_others_were_asked_about_is_not_fed(self, entities: GivenEntities) -> None:
        """The offers are the answers."""
        claim = await entities.queued("ad")
        await entities.committed(claim, doc=OTHER_DOC, enqueues=(entities.offer("b"),))

        assert [] == list(await entities.fed())
        await entities.changed(await entities.entity("ad"))
        fed = await entities.fed_of("ad")
        assert [3] == [note.version for note in fed.changes]

    async def test_what_others_were_not_asked_about_is_fed(self, entities: GivenEntities) -> None:
        """The shard's owner asks them about this commit's changes."""
        claim = await entities.queued("ad")
        await entities.committed(claim, doc=OTHER_DOC, paths=("rank",), unrouted=True)

        fed = await entities.fed_of("ad")
        assert [(2, ("rank",), f"stage:{STAGE}")] == [
            (note.version, note.paths, note.author) for note in fed.changes
        ]

    async def test_a_change_from_outside_is_still_fed(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """A commit that knows it answers for its own change alone."""
        claim = await entities.queued("ad")
        changed = await entities.changed(claim.entity)

        committed = await entities.committed(claim, doc="{}", version=changed.version)

        assert SAVED is committed.kind
        fed = await entities.fed_of("ad")
        assert 2 in [note.version for note in fed.changes]
        await entities.asked("ad")
        assert [] == list(await entities.fed())
        assert [] == list(await store.installation.doctor())

    async def test_a_commit_between_feed_and_answer_loses_nothing(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """The answer is about the change from outside; the commit answered for itself."""
        claim = await entities.queued("ad")
        changed = await entities.changed(claim.entity)
        answer = await entities.answer_of(await entities.fed_of("ad"))
        await entities.committed(claim, doc="{}", version=changed.version)

        assert None not in await store.queues.route([answer])

        assert [] == list(await entities.fed())
        assert [] == list(await store.installation.doctor())
        await entities.changed(await entities.entity("ad"))
        assert [4] == [note.version for note in (await entities.fed_of("ad")).changes]


class TestCommitOutbox:
    """What goes out with a save."""

    async def test_relay_and_stage_get_what_was_saved(self, entities: GivenEntities) -> None:
        """Document and state as they are then, under keys that no other save has."""
        claim = await entities.queued("ad")
        state = StateWrite(body=b"1", revision=3, type="v1.S")

        await entities.committed(
            claim, doc=OTHER_DOC, paths=("rank",), state=state, relay=True, after_save=True
        )

        rows = {row.sink: row for row in await entities.outgoing()}
        assert {"", STAGE} == set(rows)
        for row in rows.values():
            assert ("ad", 1, 2, OTHER_DOC) == (row.entity_key, row.epoch, row.version, row.doc)
            assert (f"stage:{STAGE}", ("rank",), 0) == (row.author, row.paths, row.attempts)
            assert row.state is not None
            assert (1, 3, b"1", "v1.S") == (
                row.state.version, row.state.revision, row.state.body, row.state.type,
            )  # fmt: skip
            assert (f"ad/1.2/{STAGE}.1", claim.row.root) == (row.key, row.root)

    async def test_a_state_alone_goes_out_with_the_document_as_it_is(
        self, entities: GivenEntities
    ) -> None:
        """Under the document's version, and a key of its own."""
        claim = await entities.queued("ad")
        state = StateWrite(body=b"1", revision=1)
        await entities.committed(claim, state=state, after_save=True)
        await entities.offered("ad", entities.offer())
        claim = await entities.claim("ad")
        await entities.committed(claim, state=state, after_save=True)

        rows = await entities.outgoing()
        assert [(1, DOC, 1), (1, DOC, 2)] == [
            (row.version, row.doc, row.state.version) for row in rows if row.state
        ]
        assert 2 == len({row.key for row in rows})
        assert claim.row.root == rows[1].root

    async def test_a_document_alone_goes_out_with_the_state_as_it_is(
        self, entities: GivenEntities
    ) -> None:
        """Kept, or none."""
        claim = await entities.queued("ad")
        stored = await entities.swapped(claim.entity, b"kept")
        await entities.committed(await entities.claim("ad"), doc=OTHER_DOC, after_save=True)
        other = await entities.queued("other")
        await entities.committed(other, doc=OTHER_DOC, after_save=True)

        assert {"ad": stored, "other": None} == {
            row.entity_key: row.state for row in await entities.outgoing()
        }

    async def test_nothing_goes_out_unasked(self, entities: GivenEntities) -> None:
        """Neither to a relay nor to a stage that has nothing to do after a save."""
        await entities.committed(
            await entities.queued("ad"), doc=OTHER_DOC, state=StateWrite(body=b"1", revision=1)
        )

        assert [] == list(await entities.outgoing())


class TestCommitRepeats:
    """The answer got lost: the same commit again."""

    async def test_a_saved_document_is_not_saved_twice(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """It has moved, by its own hand; nothing goes out again."""
        commit = await entities.commit_of(
            await entities.queued("ad"), doc=OTHER_DOC, relay=True, enqueues=(entities.offer("b"),)
        )
        (first,) = await store.queues.commit([commit])
        row = await entities.row("ad", "b")

        (again,) = await store.queues.commit([commit])

        assert (SAVED, MOVED) == (first.kind, again.kind)
        assert commit.root == again.since[0].root
        assert 2 == (await entities.entity("ad")).version
        assert 1 == len(await entities.outgoing())
        assert row == await entities.row("ad", "b")

    async def test_a_saved_state_is_not_saved_twice(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """Its version tells."""
        commit = await entities.commit_of(
            await entities.queued("ad"), state=StateWrite(body=b"1", revision=1), after_save=True
        )
        await store.queues.commit([commit])

        (again,) = await store.queues.commit([commit])

        assert CommitKind.STATE_MOVED is again.kind
        assert 1 == len(await entities.outgoing())

    async def test_a_row_that_came_again_is_not_the_one_that_went(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """A commit or a set-back of the old one leaves the new one ready."""
        claim = await entities.queued("ad")
        commit = await entities.commit_of(claim)
        await store.queues.commit([commit])
        await entities.offered("ad", entities.offer())

        await store.queues.commit([commit])
        assert ["ad"] == await entities.peeked()

        assert not await entities.set_back(claim, None)
        assert not await entities.set_back(claim, RowStatus.QUARANTINED)
        assert ["ad"] == await entities.peeked()
