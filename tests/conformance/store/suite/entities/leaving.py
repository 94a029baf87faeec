"""Part of the suite: saves on their way out."""

from __future__ import annotations

from datetime import timedelta

from gnomon.contracts.store import Store
from tests.conformance.store.suite.entities.given import STAGE, GivenEntities
from tests.conformance.store.suite.given import HOUR, Given


class TestOutbox:
    """`outgoing`, `sent`, `unsent`: saves on their way out."""

    async def test_every_sink_has_rows_of_its_own(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """What waits for one is neither given to another nor in its way."""
        await entities.deleted(await entities.kept("ad", STAGE, relay=True), relay=True)
        await store.outbox.put_off(
            await entities.outgoing(STAGE), delay=HOUR, error="no", counts=True
        )

        assert [("", 1), ("", 2)] == [
            (row.sink, row.version) for row in await entities.outgoing("", limit=2)
        ]
        assert [] == list(await entities.outgoing(STAGE))
        assert [] == list(await entities.outgoing("nobody"))

    async def test_versions_of_one_entity_come_in_order(self, entities: GivenEntities) -> None:
        """Whatever happens to others between them."""
        entity, other = await entities.published("ad"), await entities.published("other")
        for _ in range(3):
            entity = await entities.changed(entity, relay=True)
            other = await entities.changed(other, relay=True)

        rows = await entities.outgoing()

        for name in ("ad", "other"):
            assert [1, 2, 3, 4] == [row.version for row in rows if row.entity_key == name]
        assert 8 == len(rows)

    async def test_the_first_come_first(self, entities: GivenEntities) -> None:
        """No more than wanted; what is there stays until it was sent."""
        for number in range(5):
            await entities.published(f"e{number}")

        first = await entities.outgoing(limit=3)
        assert ["e0", "e1", "e2"] == [row.entity_key for row in first]
        assert first == await entities.outgoing(limit=3)

    async def test_what_was_sent_is_gone(self, store: Store, entities: GivenEntities) -> None:
        """Saying it twice takes nothing else away."""
        await entities.published("a")
        await entities.published("b")
        rows = await entities.outgoing()

        await store.outbox.remove([row for row in rows if row.entity_key == "a"])
        assert ["b"] == [row.entity_key for row in await entities.outgoing()]
        await store.outbox.remove(rows)
        assert [] == list(await entities.outgoing())
        await entities.published("c")
        await entities.changed(await entities.entity("a"), relay=True)
        await store.outbox.remove(rows)
        await store.outbox.put_off(rows, delay=HOUR, error="no", counts=True)
        assert ["c", "a"] == [row.entity_key for row in await entities.outgoing()]

    async def test_what_was_not_sent_waits(self, store: Store, entities: GivenEntities) -> None:
        """For the delay; and is told so by the survey."""
        await entities.published("ad")
        rows = await entities.outgoing()

        await store.outbox.put_off(rows, delay=HOUR, error="refused", counts=True)

        assert [] == list(await entities.outgoing())
        (waiting,) = await entities.waiting()
        assert timedelta(minutes=59) < waiting.due_in <= HOUR

    async def test_failures_are_counted_if_they_count(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """A broker that is away is not the row's fault."""
        await entities.published("ad")
        for counts in (True, False, True):
            rows = await entities.outgoing()
            await store.outbox.put_off(rows, delay=timedelta(0), error="no", counts=counts)

        (row,) = await entities.outgoing_soon()
        assert 2 == row.attempts

    async def test_a_row_that_waits_holds_back_later_ones_of_its_own(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """Those of its entity and sink, before and after; no others."""
        entity = await entities.kept("ad", STAGE, relay=True)
        first = await entities.outgoing()
        entity = await entities.changed(entity, relay=True)
        await store.outbox.put_off(first, delay=HOUR, error="no", counts=True)
        entity = await entities.changed(entity, relay=True)
        await entities.deleted(entity, relay=True)
        await entities.published("other")

        rows = await entities.outgoing()

        assert {("ad", STAGE), ("other", "")} == {(row.entity_key, row.sink) for row in rows}

    async def test_a_row_that_waited_comes_before_later_ones(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """However few are wanted at a time."""
        entity = await entities.published("ad")
        first = await entities.outgoing()
        await entities.changed(entity, relay=True)
        await store.outbox.put_off(first, delay=timedelta(milliseconds=50), error="no", counts=True)

        (row,) = await entities.outgoing_soon(limit=1)
        assert 1 == row.version
        assert [1, 2] == [row.version for row in await entities.outgoing()]

    async def test_a_save_after_the_wait_does_not_overtake_those_made_during_it(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """Whose place in time is between the row that was put off and the latest."""
        entity = await entities.published("ad")
        first = await entities.outgoing()
        await store.outbox.put_off(first, delay=timedelta(milliseconds=50), error="no", counts=True)
        entity = await entities.changed(entity, relay=True)
        await entities.outgoing_soon(limit=1)  # the wait is over
        await entities.changed(entity, relay=True)

        arrived: list[int] = []
        while rows := await entities.outgoing():
            arrived += [row.version for row in rows]
            await store.outbox.remove(rows)
        assert [1, 2, 3] == arrived

    async def test_rows_that_are_put_off_apart_keep_their_order(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """The later one is not due before the earlier one, whatever its own delay."""
        await entities.changed(await entities.published("ad"), relay=True)
        first, second = await entities.outgoing()

        await store.outbox.put_off([first], delay=HOUR, error="no", counts=True)
        await store.outbox.put_off([second], delay=timedelta(0), error="no", counts=True)

        assert [] == list(await entities.outgoing())

    async def test_only_held_shards_go_out(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """Under the lease that each has."""
        entity = await entities.published("ad")
        holding = await given.holding(entity.shard)

        assert [] == list(await store.outbox.due_saves([given.wrong(holding)], "", limit=9))
        assert [] == list(await store.outbox.due_saves([], "", limit=9))
        assert 1 == len(await store.outbox.due_saves([holding], "", limit=9))


class TestOutboxSurvey:
    """`survey` and `backlog`: what waits for whom, and since when."""

    async def test_nothing_waits(self, store: Store, entities: GivenEntities) -> None:
        """Of what was sent, or never went out, nothing is told."""
        await entities.written("quiet")
        await entities.published("ad")
        await store.outbox.remove(await entities.outgoing())

        assert [] == list(await entities.waiting())
        assert [] == list(await store.outbox.backlog())

    async def test_every_sink_is_told_with_its_oldest_save(self, entities: GivenEntities) -> None:
        """Over all held shards; what can leave is due already."""
        for number in range(5):
            await entities.published(f"old-{number}")
        await entities.age("stage_outbox", "at", by=HOUR)
        await entities.deleted(await entities.kept("ad", STAGE), relay=True)

        relay, stage = await entities.waiting()

        assert ("", STAGE) == (relay.sink, stage.sink)
        assert relay.age >= HOUR > stage.age >= timedelta(0)
        assert relay.due_in <= timedelta(0)
        assert stage.due_in <= timedelta(0)

    async def test_what_was_put_off_stays_the_oldest(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """Though others of its shard are due before it; when it has left, the next one is."""
        await entities.published("bad")
        await entities.age("stage_outbox", "at", by=HOUR)
        bad = await entities.outgoing()
        await store.outbox.put_off(bad, delay=HOUR, error="no", counts=True)
        for number in range(20):
            await entities.published(f"good-{number}")

        (waiting,) = await entities.waiting()
        assert waiting.age >= HOUR
        assert waiting.due_in <= timedelta(0)

        await store.outbox.remove(bad)
        (waiting,) = await entities.waiting()
        assert waiting.age < HOUR

    async def test_what_is_behind_a_row_that_waits_is_not_due(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """It leaves after the one that was put off."""
        entity = await entities.published("ad")
        await store.outbox.put_off(await entities.outgoing(), delay=HOUR, error="no", counts=True)
        await entities.changed(entity, relay=True)

        (waiting,) = await entities.waiting()
        assert waiting.due_in > timedelta(minutes=59)

    async def test_only_held_shards_are_told_of(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """The backlog is the whole installation's."""
        entity = await entities.published("ad")
        holding = await given.holding(entity.shard)
        others = [each for each in await given.holdings() if each != holding]

        assert [] == list(await store.outbox.waiting_sinks([given.wrong(holding), *others]))
        assert [""] == [each.sink for each in await store.outbox.waiting_sinks([holding])]
        assert [("", 1)] == [(each.sink, each.count) for each in await store.outbox.backlog()]

    async def test_the_backlog_has_number_age_and_a_reason(
        self, store: Store, given: Given, entities: GivenEntities
    ) -> None:
        """Sink by sink; a reason where one was tried in vain."""
        first = await entities.published("ad")
        await entities.published("other")
        await entities.deleted(await entities.kept("gone", STAGE))
        rows = await entities.outgoing("", limit=1)
        await store.outbox.put_off(rows, delay=HOUR, error="refused", counts=True)

        relay, stage = await store.outbox.backlog()

        assert ("", 4, first.changed_at, "refused") == (
            relay.sink, relay.count, relay.oldest_at, relay.error,
        )  # fmt: skip
        assert (STAGE, 1, None) == (stage.sink, stage.count, stage.error)
        assert stage.oldest_at <= await given.now()
