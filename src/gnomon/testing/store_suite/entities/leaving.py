"""Part of the suite: saves on their way out."""

from __future__ import annotations

from datetime import timedelta

from gnomon.contracts.store import Store
from gnomon.testing.store_suite.entities.given import STAGE, GivenEntities
from gnomon.testing.store_suite.given import HOUR, Given


class TestOutbox:
    """`outgoing`, `sent`, `unsent`: saves on their way out."""

    async def test_versions_of_one_entity_come_in_order(self, entities: GivenEntities) -> None:
        """Whatever happens to others between them."""
        entity, other = await entities.published("ad"), await entities.published("other")
        for _ in range(3):
            entity = await entities.changed(entity, publish=True)
            other = await entities.changed(other, publish=True)

        rows = await entities.outgoing()

        for name in ("ad", "other"):
            assert [1, 2, 3, 4] == [row.version for row in rows if row.entity_id == name]
        assert 8 == len(rows)

    async def test_the_first_come_first(self, entities: GivenEntities) -> None:
        """No more than wanted; what is there stays until it was sent."""
        for number in range(5):
            await entities.published(f"e{number}")

        first = await entities.outgoing(limit=3)
        assert ["e0", "e1", "e2"] == [row.entity_id for row in first]
        assert first == await entities.outgoing(limit=3)

    async def test_what_was_sent_is_gone(self, store: Store, entities: GivenEntities) -> None:
        """Saying it twice takes nothing else away."""
        await entities.published("a")
        await entities.published("b")
        rows = await entities.outgoing()

        await store.entities.sent([row for row in rows if row.entity_id == "a"])
        assert ["b"] == [row.entity_id for row in await entities.outgoing()]
        await store.entities.sent(rows)
        assert [] == list(await entities.outgoing())
        await entities.published("c")
        await entities.changed(await entities.entity("a"), publish=True)
        await store.entities.sent(rows)
        await store.entities.unsent(rows, delay=HOUR, error="no", counts=True)
        assert ["c", "a"] == [row.entity_id for row in await entities.outgoing()]

    async def test_what_was_not_sent_waits(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """For the delay; and is told so by the survey."""
        await entities.published("ad")
        rows = await entities.outgoing()
        before = await given.now()

        await store.entities.unsent(rows, delay=HOUR, error="refused", counts=True)

        assert [] == list(await entities.outgoing())
        outgoing_at = (await store.entities.survey(await given.holdings())).outgoing_at
        assert outgoing_at is not None
        assert before + HOUR <= outgoing_at <= await given.now() + HOUR

    async def test_failures_are_counted_if_they_count(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """A broker that is away is not the row's fault."""
        await entities.published("ad")
        for counts in (True, False, True):
            rows = await entities.outgoing()
            await store.entities.unsent(rows, delay=timedelta(0), error="no", counts=counts)

        (row,) = await entities.outgoing_soon()
        assert 2 == row.attempts

    async def test_a_row_that_waits_holds_back_later_ones_of_its_own(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """Those of its entity and sink, before and after; no others."""
        entity = await entities.kept("ad", STAGE, publish=True)
        first = await entities.outgoing()
        entity = await entities.changed(entity, publish=True)
        await store.entities.unsent(first, delay=HOUR, error="no", counts=True)
        entity = await entities.changed(entity, publish=True)
        await entities.deleted(entity, publish=True)
        await entities.published("other")

        rows = await entities.outgoing()

        assert {("ad", STAGE), ("other", "")} == {(row.entity_id, row.sink) for row in rows}

    async def test_a_row_that_waited_comes_before_later_ones(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """However few are wanted at a time."""
        entity = await entities.published("ad")
        first = await entities.outgoing()
        await entities.changed(entity, publish=True)
        await store.entities.unsent(
            first, delay=timedelta(milliseconds=50), error="no", counts=True
        )

        (row,) = await entities.outgoing_soon(limit=1)
        assert 1 == row.version
        assert [1, 2] == [row.version for row in await entities.outgoing()]

    async def test_rows_that_are_put_off_apart_keep_their_order(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """The later one is not due before the earlier one, whatever its own delay."""
        await entities.changed(await entities.published("ad"), publish=True)
        first, second = await entities.outgoing()

        await store.entities.unsent([first], delay=HOUR, error="no", counts=True)
        await store.entities.unsent([second], delay=timedelta(0), error="no", counts=True)

        assert [] == list(await entities.outgoing())

    async def test_only_held_shards_go_out(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """Under the lease that each has."""
        entity = await entities.published("ad")
        holding = await given.holding(entity.shard)

        assert [] == list(await store.entities.outgoing([given.wrong(holding)], limit=9))
        assert [] == list(await store.entities.outgoing([], limit=9))
        assert 1 == len(await store.entities.outgoing([holding], limit=9))
