"""Part of the suite: tokens, and the audit of changes."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Any

from gnomon.contracts.store import (
    LOCAL,
    Actor,
    AuditEntry,
    AuditSelection,
    Store,
    Token,
    TokenDraft,
)
from gnomon.model.errors import AlreadyExists, GnomonError, NotFound
from gnomon.model.limits import Limit, LimitKind
from tests.conformance.store.suite.given import HOUR, NOTHING, SECOND, Given, polls, refusal

EVERYTHING = AuditSelection()
DAY = timedelta(days=1)


def token(given: Given, name: str = "shop", **fields: Any) -> TokenDraft:
    """A token that is valid until it is revoked, unless told otherwise."""
    guid = given.entropy.token()
    digest = hashlib.sha256(guid.bytes).digest()
    scopes = fields.pop("scopes", ("read", "write"))
    return TokenDraft(id=guid, digest=digest, name=name, scopes=scopes, **fields)


async def entries(store: Store, **wanted: Any) -> list[AuditEntry]:
    """Oldest first, as things happened."""
    found = await store.tokens.list_audit(AuditSelection(**wanted), limit=100)
    return list(reversed(found))


async def told(store: Store, **wanted: Any) -> list[tuple[str, str, str, int]]:
    return [(item.actor, item.verb, item.id, item.count) for item in await entries(store, **wanted)]


class TestTokens:
    """`create`, `rotate`, `revoke`, `list`, `find`, `any`."""

    async def test_what_is_created_is_found_by_its_digest(self, store: Store, given: Given) -> None:
        """With everything that was said about it; the database says when."""
        draft = token(given, scopes=("read", "sql:reports"), lifetime=HOUR, rate=2.5, live_max=7)
        before = await given.now()

        created = await store.tokens.create(draft)

        assert created == await store.tokens.find(draft.digest)
        assert [created] == list(await store.tokens.list())
        assert before <= created.created_at <= await given.now()
        assert created == Token(
            id=draft.id, digest=draft.digest, name="shop", scopes=("read", "sql:reports"),
            created_at=created.created_at, expires_at=created.created_at + HOUR, rate=2.5,
            live_max=7,
        )  # fmt: skip

    async def test_unknown_digests_find_nothing(self, store: Store, given: Given) -> None:
        """Nor does a part of one."""
        draft = token(given)
        await store.tokens.create(draft)

        assert None is await store.tokens.find(token(given).digest)
        assert None is await store.tokens.find(draft.digest[:-1])
        assert None is await store.tokens.find(b"")

    async def test_there_is_any_from_the_first_on(self, store: Store, given: Given) -> None:
        """A revoked one counts: a server must not open its doors when the last one goes."""
        assert not await store.tokens.has_any()
        await store.tokens.create(token(given))
        assert await store.tokens.has_any()
        await store.tokens.revoke("shop")
        assert await store.tokens.has_any()

    async def test_expired_tokens_are_not_found(self, store: Store, given: Given) -> None:
        """They stay in the list, and their name can be used again."""
        draft = token(given, lifetime=timedelta(milliseconds=1))
        await store.tokens.create(draft)
        async for _ in polls():
            if await store.tokens.find(draft.digest) is None:
                break

        assert None is await store.tokens.find(draft.digest)
        assert [draft.id] == [item.id for item in await store.tokens.list()]
        await store.tokens.create(token(given))

    async def test_a_name_has_one_token_at_a_time(self, store: Store, given: Given) -> None:
        """Unless it is rotated; other names are free."""
        await store.tokens.create(token(given))

        assert isinstance(await refusal(store.tokens.create(token(given))), AlreadyExists)
        await store.tokens.create(token(given, "other"))
        assert ["other", "shop"] == [item.name for item in await store.tokens.list()]

    async def test_revoked_tokens_are_not_found(self, store: Store, given: Given) -> None:
        """All of a name at once, and no other's; doing it again finds none."""
        first, second, other = token(given), token(given), token(given, "other")
        await store.tokens.create(first)
        await store.tokens.rotate(second, overlap=HOUR)
        await store.tokens.create(other)

        assert 2 == await store.tokens.revoke("shop")

        found = [await store.tokens.find(draft.digest) for draft in (first, second, other)]
        assert [None, None, other.id] == [item and item.id for item in found]
        assert 0 == await store.tokens.revoke("shop")
        assert [False, True, True] == [
            item.revoked_at is not None for item in await store.tokens.list()
        ]

    async def test_rotation_leaves_two_valid_for_a_while(self, store: Store, given: Given) -> None:
        """The old one ends after the overlap, or earlier if it would anyway."""
        old, new = token(given), token(given)
        await store.tokens.create(old)

        rotated = await store.tokens.rotate(new, overlap=HOUR)

        found = await store.tokens.find(old.digest)
        assert found is not None
        assert found.expires_at is not None
        assert abs(found.expires_at - rotated.created_at - HOUR) < SECOND
        assert rotated == await store.tokens.find(new.digest)

    async def test_rotation_never_lengthens(self, store: Store, given: Given) -> None:
        """A token that ends in a minute still does."""
        draft = token(given, lifetime=60 * SECOND)
        created = await store.tokens.create(draft)

        await store.tokens.rotate(token(given), overlap=DAY)

        found = await store.tokens.find(draft.digest)
        assert found is not None
        assert created.expires_at == found.expires_at

    async def test_no_more_than_two_are_valid(self, store: Store, given: Given) -> None:
        """A second rotation within the overlap ends the oldest at once."""
        drafts = [token(given) for _ in range(3)]
        await store.tokens.create(drafts[0])
        for draft in drafts[1:]:
            await store.tokens.rotate(draft, overlap=HOUR)

        found = [await store.tokens.find(draft.digest) for draft in drafts]

        assert [False, True, True] == [item is not None for item in found]

    async def test_rotation_without_overlap_ends_the_old_one(
        self, store: Store, given: Given
    ) -> None:
        old, new = token(given), token(given)
        await store.tokens.create(old)
        await store.tokens.rotate(new, overlap=NOTHING)

        assert None is await store.tokens.find(old.digest)
        assert await store.tokens.find(new.digest) is not None

    async def test_only_what_is_valid_is_rotated(self, store: Store, given: Given) -> None:
        """Neither an unknown name nor a revoked one gets a new token by the back door."""
        await store.tokens.create(token(given))
        await store.tokens.revoke("shop")

        for name in ("shop", "nobody"):
            refused = await refusal(store.tokens.rotate(token(given, name), overlap=HOUR))
            assert isinstance(refused, NotFound)

    async def test_live_actions_are_counted_by_their_creator(
        self, store: Store, given: Given
    ) -> None:
        """Active and paused ones, up to the limit; a change by another changes no creator."""
        actions = store.actions
        await actions.create([await given.draft(f"a{number}") for number in range(3)], actor="shop")
        await actions.replace(await given.draft("a3"), if_match=None, actor="shop")
        await actions.create([await given.draft("b")], actor="other")
        await actions.create([await given.draft("c")])
        assert 4 == await store.tokens.count_live("shop", limit=100)

        await actions.pause("a0", given.entropy.guid(), if_match=None, actor="other")
        await actions.replace(await given.draft("a1"), if_match=None, actor="other")
        await actions.delete("a2", if_match=None, actor="other")

        assert 3 == await store.tokens.count_live("shop", limit=100)
        assert 2 == await store.tokens.count_live("shop", limit=2)
        assert 1 == await store.tokens.count_live("other", limit=100)
        assert 0 == await store.tokens.count_live(LOCAL, limit=100)


class TestAudit:
    """Who changed what, in the transaction of the change."""

    async def test_every_change_is_told(self, store: Store, given: Given) -> None:
        """Who, what, which, in order."""
        actions, guid = store.actions, given.entropy.guid
        await actions.create([await given.draft("a", due_in=HOUR)], actor="ann")
        await actions.replace(await given.draft("a", due_in=HOUR), if_match=None, actor="bob")
        await actions.pause("a", guid(), if_match=None, actor="ann")
        await actions.resume("a", guid(), decide=_soon, if_match=None, actor="bob")
        await actions.run_now("a", guid(), if_match=None, actor="ann")
        await actions.delete("a", if_match=None, actor="bob")
        await actions.create([await given.draft("a")], actor="ann", verb="retry")
        await actions.replace(await given.draft("new"), if_match=None)

        assert [
            ("ann", "create", "a", 1), ("bob", "replace", "a", 1), ("ann", "pause", "a", 1),
            ("bob", "resume", "a", 1), ("ann", "run_now", "a", 1), ("bob", "delete", "a", 1),
            ("ann", "retry", "a", 1), (LOCAL, "replace", "new", 1),
        ] == await told(store)  # fmt: skip

    async def test_an_entry_names_its_generation_and_time(self, store: Store, given: Given) -> None:
        """The guid that the change made, and the time that the action shows."""
        created = await given.created("a", due_in=HOUR)
        changed = await store.actions.pause("a", given.entropy.guid(), if_match=None)
        deleted = await store.actions.delete("a", if_match=None)

        made, paused, gone = await entries(store)
        assert (created.meta.guid, created.meta.created_at) == (made.guid, made.at)
        meta = changed.action.meta
        assert (meta.guid, meta.updated_at) == (paused.guid, paused.at)
        assert (meta.guid, deleted.action.status.finished_at) == (gone.guid, gone.at)

    async def test_a_bulk_is_one_entry(self, store: Store, given: Given) -> None:
        """With the count of those that were stored; all of them have its time. Where a transaction
        touches one shard or part only, it is one for each."""
        taken = await given.created("taken", due_in=HOUR)
        for prefix, keyed in (("plain", False), ("keyed", True)):
            names = [f"{prefix}0", "taken", *(f"{prefix}{number}" for number in range(1, 9))]
            drafts = [await given.draft(name, due_in=HOUR, keyed=keyed) for name in names]

            answers = await store.actions.create(drafts, actor=prefix)

            found = await entries(store, actor=prefix)
            shards = {draft.shard for draft in drafts if draft.id != "taken"}
            most = 1 if store.capabilities.many_shards else len(shards)
            assert 1 <= len(found) <= most
            assert 9 == sum(entry.count for entry in found)
            made = {(draft.id, draft.guid) for draft in drafts} - {("taken", taken.meta.guid)}
            assert {(entry.id, entry.guid) for entry in found} <= made
            times = {answer.action.meta.created_at for answer in answers if answer}
            assert times == {entry.at for entry in found}

    async def test_what_changes_nothing_is_not_told(self, store: Store, given: Given) -> None:
        """A repeat, a taken id, a pause of what is paused, a refusal."""
        keyed = await given.draft("a", due_in=HOUR, keyed=True)
        await store.actions.create([keyed])
        paused = await given.paused("b", due_in=HOUR)
        before = await entries(store)

        await store.actions.create([keyed], actor="ann")
        await store.actions.replace(keyed, if_match=None, actor="ann")
        await store.actions.create([await given.draft("a")], actor="ann")
        await store.actions.pause("b", given.entropy.guid(), if_match=None, actor="ann")
        for refused in (
            store.actions.delete("nobody", if_match=None, actor="ann"),
            store.actions.delete("b", if_match=given.entropy.guid(), actor="ann"),
            store.actions.run_now("b", given.entropy.guid(), if_match=None, actor="ann"),
        ):
            assert isinstance(await refusal(refused), GnomonError)

        assert before == await entries(store)
        assert paused == await given.action("b")

    async def test_a_rolled_back_change_leaves_no_entry(self, store: Store, given: Given) -> None:
        """The entry is in the same transaction: it comes and goes with the change."""
        if given.caller_transaction is None:
            return
        for commits in (False, True):
            async with given.caller_transaction() as transaction:
                joined = store.joining(transaction.connection)
                await joined.create([await given.draft("a", due_in=HOUR)], actor="ann")
                await joined.replace(await given.draft("a"), if_match=None, actor="bob")
                await joined.delete("a", if_match=None, actor="ann")
                await (transaction.commit() if commits else transaction.roll_back())
            expected = [("ann", "create"), ("bob", "replace"), ("ann", "delete")]
            found = [(item.actor, item.verb) for item in await entries(store)]
            assert (expected if commits else []) == found

    async def test_no_entry_no_change(self, store: Store, given: Given) -> None:
        """If the entry cannot be written, nothing else is."""
        await given.created("a", due_in=HOUR)
        before = await given.action("a")
        await given.execute_raw("ALTER TABLE audit RENAME TO audit_away")

        for call in (
            store.actions.create([await given.draft("b")]),
            store.actions.create([await given.draft("c"), await given.draft("d")]),
            store.actions.replace(await given.draft("a"), if_match=None),
            store.actions.pause("a", given.entropy.guid(), if_match=None),
            store.actions.run_now("a", given.entropy.guid(), if_match=None),
            store.actions.delete("a", if_match=None),
        ):
            assert isinstance(await refusal(call), GnomonError)

        assert before == await given.action("a")
        assert [None] * 3 == list(await store.actions.get_many(["b", "c", "d"]))

    async def test_entries_are_selected(self, store: Store, given: Given) -> None:
        """By actor, by id, by time; newest first; at most so many."""
        for number in range(4):
            actor = ("ann", "bob")[number % 2]
            await store.actions.create([await given.draft(f"a{number}")], actor=actor)

        assert ["a0", "a2"] == [item.id for item in await entries(store, actor="ann")]
        assert ["bob"] == [item.actor for item in await entries(store, id="a3")]
        newest = await store.tokens.list_audit(EVERYTHING, limit=2)
        assert ["a3", "a2"] == [item.id for item in newest]
        older = await entries(store, before=newest[-1].at)
        assert ["a0", "a1"] == [item.id for item in older]

    async def test_a_change_made_elsewhere_can_be_noted(self, store: Store, given: Given) -> None:
        """As an entry like any other."""
        guid = given.entropy.guid()
        await store.tokens.write_audit(actor="ann", verb="stop task", id="shop/7", guid=guid)
        [found] = await entries(store, actor="ann")
        assert ("stop task", "shop/7", guid, 1) == (found.verb, found.id, found.guid, found.count)

    async def test_an_entry_says_through_which_face_it_came(
        self, store: Store, given: Given
    ) -> None:
        """As the actor says; one who does not is a program. It is no part of his name."""
        ann = Actor("ann", "console")
        await store.actions.create([await given.draft("a")], actor=ann)
        beside = [await given.draft(given.name_in(1)) for _ in range(2)]
        await store.actions.create(beside, actor=ann)
        await store.actions.replace(await given.draft("a"), if_match=None, actor=ann)
        await store.actions.pause("a", given.entropy.guid(), if_match=None, actor=ann)
        await store.actions.delete("a", if_match=None, actor=Actor("ann", "cli"))
        limit = Limit(kind=LimitKind.QUEUE, name="mail", parallel=2)
        await store.limits.set(limit, guid=given.entropy.guid(), actor=ann)
        await store.tokens.write_audit(
            actor=Actor("ann", "rest"), verb="stop task", id="shop/7", guid=given.entropy.guid()
        )
        await store.actions.create([await given.draft("d")], actor="ann")

        faces = [(item.verb, item.face) for item in await entries(store, actor="ann")]
        assert [
            ("create", "console"), ("create", "console"), ("replace", "console"),
            ("pause", "console"), ("delete", "cli"), ("set_limit", "console"),
            ("stop task", "rest"), ("create", "python"),
        ] == faces  # fmt: skip
        assert 3 == await store.tokens.count_live("ann", limit=10)

    async def test_old_entries_are_purged(self, store: Store, given: Given) -> None:
        """After their retention; younger ones stay."""
        await given.created("old")
        old = (await entries(store))[0]
        await given.aged("audit", "at", timedelta(days=91))
        await given.created("young")

        assert 1 <= await store.installation.purge(limit=1_000)

        assert ["young"] == [item.id for item in await entries(store)]
        assert "old" == old.id


def _soon(_action: object, now: Any) -> tuple[Any, Any, None]:
    return now + HOUR, now + HOUR, None
