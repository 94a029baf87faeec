"""Part of the suite: passes, which are saves of several stages in one commit."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from gnomon.contracts.store import Store
from gnomon.contracts.store.entities import StateWrite
from gnomon.contracts.store.queues import ClaimedEntity, Commit, CommitKind, RowStatus
from tests.conformance.store.suite.entities.given import STAGE, GivenEntities
from tests.conformance.store.suite.given import HOUR

SAVED = CommitKind.SAVED
STATE = StateWrite(body=b"1", revision=1)
FIRST, SECOND, THIRD = '{"n": 1}', '{"n": 2}', '{"n": 3}'


async def pass_of(
    entities: GivenEntities, claim: ClaimedEntity, *parts: dict[str, Any], **head: Any
) -> Commit:
    """A pass that begins with a claim; of the parts at least the stage is given."""
    values: dict[str, Any] = {"doc": FIRST} | head
    version, then = claim.entity.version + 1, []
    for number, part in enumerate(parts, 2):
        others = {
            "version": version,
            "seq": 0,
            "state_version": 0,
            "depth": claim.row.depth + number,
        }
        fields = {key: value for key, value in part.items() if key != "stage"}
        commit = await entities.commit_of(claim, **others | fields)
        then.append(replace(commit, stage=part["stage"]))
        version += then[-1].doc is not None
    return await entities.commit_of(claim, then=tuple(then), **values)


class TestPass:
    """`commit` with `then`: whole or not at all, as if each stage had been claimed."""

    async def test_each_stage_has_a_version_and_a_note(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """In its own name and depth; the entity is what the last one made of it."""
        claim = await entities.queued("ad", depth=3)
        commit = await pass_of(
            entities, claim, {"stage": "b", "doc": SECOND, "paths": ("x", "y")},
            {"stage": "c", "doc": THIRD},
        )  # fmt: skip

        (committed,) = await store.queues.commit([commit])

        assert SAVED is committed.kind
        entity = await entities.entity("ad")
        assert (4, THIRD) == (entity.version, entity.doc)
        notes = await store.entities.changes("ad", shard=entity.shard, limit=3)
        assert [
            (4, "stage:c", 6, ("price",)),
            (3, "stage:b", 5, ("x", "y")),
            (2, f"stage:{STAGE}", 4, ("price",)),
        ] == [(note.version, note.author, note.depth, note.paths) for note in notes]
        assert {(claim.row.root, entity.changed_at)} == {(note.root, note.at) for note in notes}
        assert {} == await entities.rows("ad")

    async def test_a_stage_may_change_nothing(self, store: Store, entities: GivenEntities) -> None:
        """It has no version then; those after it have the next one."""
        claim = await entities.queued("ad")
        commit = await pass_of(entities, claim, {"stage": "b"}, {"stage": "c", "doc": THIRD})

        await store.queues.commit([commit])

        assert [3, 2, 1] == await entities.versions_of(claim.entity)
        assert THIRD == (await entities.entity("ad")).doc

    async def test_each_stage_has_its_state(self, store: Store, entities: GivenEntities) -> None:
        """With a version of its own."""
        claim = await entities.queued("ad")
        await entities.swapped(claim.entity, b"0", stage="c")
        commit = await pass_of(
            entities, claim, {"stage": "b", "doc": SECOND, "state": STATE},
            {"stage": "c", "state": STATE, "state_version": 1}, state=STATE,
        )  # fmt: skip

        await store.queues.commit([commit])

        states = [await entities.state("ad", stage) for stage in (STAGE, "b", "c")]
        assert [(1, b"1"), (1, b"1"), (2, b"1")] == [
            (state.version, state.body) for state in states if state
        ]

    async def test_a_moved_state_undoes_all(self, store: Store, entities: GivenEntities) -> None:
        """Be it of any of its stages, one that had none included; the others are saved."""
        claims = {name: await entities.queued(name) for name in ("bad", "good")}
        await entities.swapped(claims["bad"].entity, stage="c")
        parts = ({"stage": "b", "doc": SECOND}, {"stage": "c", "doc": THIRD})
        commits = [await pass_of(entities, claim, *parts) for claim in claims.values()]

        found = await store.queues.commit(commits)

        assert [CommitKind.STATE_MOVED, SAVED] == [each.kind for each in found]
        assert claims["bad"].entity == await entities.entity("bad")
        assert [1] == await entities.versions_of(claims["bad"].entity)
        assert {STAGE} == set(await entities.rows("bad"))
        assert 4 == (await entities.entity("good")).version

    async def test_a_moved_entity_undoes_all(self, store: Store, entities: GivenEntities) -> None:
        """And is told with what changed since."""
        claim = await entities.queued("ad")
        changed = await entities.changed(claim.entity)
        commit = await pass_of(entities, claim, {"stage": "b", "doc": SECOND, "state": STATE})

        (committed,) = await store.queues.commit([commit])

        assert (CommitKind.MOVED, changed) == (committed.kind, committed.entity)
        assert changed == await entities.entity("ad")
        assert await entities.state("ad", "b") is None

    async def test_offers_are_made_after_the_last(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """One may wake a stage of the very pass, for it has seen less."""
        claim = await entities.queued("ad")
        plain = entities.offer("d", root=claim.row.root, depth=claim.row.depth + 1)
        offers = (plain, entities.offer(), entities.offer("b"), entities.offer("e", depth=2))
        commit = await pass_of(entities, claim, {"stage": "b", "doc": SECOND}, enqueues=offers)

        (committed,) = await store.queues.commit([commit])

        rows = await entities.rows("ad")
        assert {STAGE, "b", "d", "e"} == {
            name for name, row in rows.items() if row.status == "ready"
        }
        assert {each.stage: each.seq for each in committed.made} == {
            name: row.seq for name, row in rows.items()
        }
        assert claim.row.seq != rows[STAGE].seq

    async def test_timers_are_set_kept_and_cancelled(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """Where a stage has a row that sleeps, and where it has none."""
        claim = await entities.queued("ad")
        soon, late = await entities.later(), await entities.later(HOUR * 2)
        names = ("kept", "gone", "moved")
        sleep = [entities.offer(name, ready=False, wake=soon) for name in names]
        await entities.offered("ad", *sleep)
        commit = await pass_of(
            entities, claim, {"stage": "kept", "note": "said"}, {"stage": "gone", "wake": None},
            {"stage": "moved", "wake": late}, {"stage": "new", "wake": late}, {"stage": "none"},
        )  # fmt: skip

        await store.queues.commit([commit])

        rows = await entities.rows("ad")
        assert {"kept": soon, "moved": late, "new": late} == {
            name: row.timer_at for name, row in rows.items()
        }
        assert {RowStatus.SLEEPING} == {row.status for row in rows.values()}
        assert "said" == rows["kept"].note

    async def test_a_row_that_came_meanwhile_stays(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """It wakes the stage for something else; the timer is the stage's latest word."""
        claim = await entities.queued("ad")
        await entities.offered("ad", entities.offer("b", reason="walk"))
        late = await entities.later()
        commit = await pass_of(entities, claim, {"stage": "b", "doc": SECOND, "wake": late})

        await store.queues.commit([commit])

        row = await entities.row("ad", "b")
        assert (RowStatus.READY, ("walk",), late) == (row.status, row.reasons, row.timer_at)

    async def test_every_save_goes_out_as_it_was(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """To the relay in order, each with its document and its stage's state; to the stages."""
        claim = await entities.queued("ad")
        out = {"relay": True, "after_save": True}
        commit = await pass_of(
            entities, claim, {"stage": "b", "doc": SECOND, "state": STATE, **out},
            {"stage": "c", **out}, {"stage": "d", "state": STATE, **out},
            {"stage": "e", "doc": THIRD, **out}, **out,
        )  # fmt: skip

        await store.queues.commit([commit])

        relayed = await entities.outgoing("")
        assert [
            (2, FIRST, f"stage:{STAGE}", None),
            (3, SECOND, "stage:b", b"1"),
            (3, SECOND, "stage:d", b"1"),
            (4, THIRD, "stage:e", None),
        ] == [
            (row.version, row.doc, row.author, row.state.body if row.state else None)
            for row in relayed
        ]
        assert 4 == len({row.key for row in relayed})
        for sink, version in ((STAGE, 2), ("b", 3), ("d", 3), ("e", 4)):
            assert [version] == [row.version for row in await entities.outgoing(sink)]
        assert [] == list(await entities.outgoing("c"))
        await entities.changed(await entities.entity("ad"), relay=True)
        assert [2, 3, 3, 4, 5] == [row.version for row in await entities.outgoing("")]

    async def test_it_needs_the_lease(self, store: Store, entities: GivenEntities) -> None:
        """Like any commit."""
        claim = await entities.queued("ad")
        wrong = entities.given.entropy.token()
        commit = await pass_of(
            entities, claim, {"stage": "b", "doc": SECOND, "state": STATE}, lease_guid=wrong
        )

        (committed,) = await store.queues.commit([commit])

        assert CommitKind.LOST is committed.kind
        assert claim.entity == await entities.entity("ad")

    async def test_a_claim_tells_who_must_not_follow(self, entities: GivenEntities) -> None:
        """Stages whose row is put off or parked; not those that are due, or only sleep."""
        await entities.queued("ad")
        await entities.offered(
            "ad",
            entities.offer("due"),
            entities.offer("later", delay=HOUR),
            entities.offer("asleep", ready=False, wake=await entities.later()),
            entities.offer("looping", looping="loop: a → b → a"),
        )

        claim = await entities.claim("ad")

        assert {"due"} == claim.waiting
        assert {"later", "looping"} == claim.held_back
