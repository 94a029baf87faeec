"""Part of the suite: sizes, callers' transactions, refusals."""

from __future__ import annotations

from gnomon.contracts.store import Store
from gnomon.model.action import State
from gnomon.model.errors import NotSupported, StoreUnavailable
from gnomon.model.spec import Mock
from tests.conformance.store.suite.given import HOUR, Given, refusal

PAYLOAD_CHARS = 64 * 1024
ID_CHARS = 200


class TestSizes:
    """The largest, the longest, the most, the finest."""

    async def test_the_largest_payload_comes_through(self, given: Given) -> None:
        """64 KiB of any text, unchanged from create to begin to the archive."""
        text = ("\N{SNOWMAN}\"\\\n'" * PAYLOAD_CHARS)[:PAYLOAD_CHARS]
        begun = await given.begun("large", action=Mock(answer=text))
        await given.recorded(begun)

        shown = await given.action("large")

        assert Mock(answer=text) == begun.spec.action
        assert Mock(answer=text) == shown.spec.action

    async def test_the_longest_id_comes_through(self, store: Store, given: Given) -> None:
        """200 characters, in every table."""
        name = "a" * ID_CHARS
        begun = await given.begun(name)
        await given.recorded(begun)

        assert name == (await given.action(name)).meta.id
        assert 1 == len(await store.actions.list_attempts(name, limit=10))

    async def test_a_thousand_drafts_are_one_call(self, store: Store, given: Given) -> None:
        """All of them are stored, moved, begun and finished."""
        answers = await store.actions.create([await given.draft() for _ in range(1_000)])
        await given.move()
        begun = (await given.begin(limit=1_000)).begun
        finishes = [await given.finish_of(each) for each in begun]

        await store.work.finish(finishes, owner="w")

        assert 1_000 == sum(answer is not None for answer in answers)
        assert 1_000 == len(begun)
        assert 0 == await given.queue_row_count()

    async def test_microseconds_are_kept(self, store: Store, given: Given) -> None:
        """No time is rounded on its way."""
        due = (await given.now()).replace(microsecond=123_457) + HOUR
        draft = await given.draft("exact", due_in=due - await given.now())

        await store.actions.create([draft])

        assert draft.scheduled_at == (await given.action("exact")).status.scheduled_at


class TestJoining:
    """`joining`: actions in the caller's transaction."""

    async def test_what_a_caller_commits_is_there(self, store: Store, given: Given) -> None:
        """The action is stored by the caller's own transaction."""
        if given.caller_transaction is None:
            return
        async with given.caller_transaction() as transaction:
            joined = store.joining(transaction.connection)
            draft = await given.draft("joined")
            (changed,) = await joined.create([draft])
            assert changed is not None
            assert None is await store.actions.get("joined")
            await transaction.commit()

        assert draft.guid == (await given.action("joined")).meta.guid
        assert 1 == await given.move()

    async def test_a_caller_sees_what_it_has_not_committed(
        self, store: Store, given: Given
    ) -> None:
        """`get` inside the transaction: what was stored there, and what others had before."""
        if given.caller_transaction is None:
            return
        await given.created("before")
        async with given.caller_transaction() as transaction:
            joined = store.joining(transaction.connection)
            draft = await given.draft("joined")
            await joined.create([draft])
            before, inside = await joined.get("before"), await joined.get("joined")
            assert None is await joined.get("nobody")
            await joined.delete("joined", if_match=None)
            deleted = await joined.get("joined")
            await transaction.roll_back()

        assert (before and before.meta.id, inside and inside.meta.guid) == ("before", draft.guid)
        assert deleted is not None
        assert State.CANCELLED is deleted.status.state

    async def test_what_a_caller_rolls_back_never_was(self, store: Store, given: Given) -> None:
        """Joining never commits by itself."""
        if given.caller_transaction is None:
            return
        async with given.caller_transaction() as transaction:
            joined = store.joining(transaction.connection)
            await joined.create([await given.draft("joined"), await given.draft("two")])
            await transaction.roll_back()

        assert None is await store.actions.get("joined")
        assert 0 == await given.queue_row_count()

    async def test_a_conflict_leaves_the_callers_transaction_whole(
        self, store: Store, given: Given
    ) -> None:
        """One refused draft does not undo the others."""
        if given.caller_transaction is None:
            return
        await given.created("taken")
        async with given.caller_transaction() as transaction:
            joined = store.joining(transaction.connection)
            drafts = [await given.draft("new"), await given.draft("taken")]
            new, taken = await joined.create(drafts)
            await transaction.commit()

        assert new is not None
        assert None is taken
        assert "new" == (await given.action("new")).meta.id


class TestRefusals:
    """What an engine cannot do, it says."""

    async def test_joining_what_is_no_connection_is_not_supported(self, store: Store) -> None:
        """Also where the engine can join: never a silent difference."""
        try:
            store.joining(object())
        except NotSupported as error:
            refused = error.engine
        else:
            refused = ""

        assert store.capabilities.engine == refused

    async def test_the_capability_tells_whether_callers_can_join(
        self, store: Store, given: Given
    ) -> None:
        """What is not offered is refused, what is offered has a test above."""
        assert store.capabilities.caller_transactions == (given.caller_transaction is not None)

    async def test_a_closed_store_is_unavailable(self, store: Store, given: Given) -> None:
        """Not a crash, but an error that says what to do."""
        other = await given.open_another()
        if other is store:
            return
        await other.close()

        assert isinstance(await refusal(other.actions.get("any")), StoreUnavailable)
