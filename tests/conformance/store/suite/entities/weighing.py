"""Part of the suite: batches end by bytes, and nothing is lost between them."""

from __future__ import annotations

from datetime import datetime

from gnomon.contracts.store import Store
from gnomon.contracts.store.batches import BATCH_BYTES_MAX
from gnomon.contracts.store.entities import Entity
from gnomon.contracts.store.outbox import RELAY_SINK
from gnomon.contracts.store.queues import StageLane, size_of
from tests.conformance.store.suite.entities.given import LIMIT, STAGE, GivenEntities
from tests.conformance.store.suite.given import HOUR

PART = 3  # so many large entities make up a batch
LARGE = '"' + "x" * (BATCH_BYTES_MAX // PART) + '"'
WIDE = '"' + "\u0436" * (BATCH_BYTES_MAX // PART // 2) + '"'  # half as many characters
HUGE = '"' + "x" * (BATCH_BYTES_MAX + 1) + '"'


class TestWeights:
    """What loads many entities is bounded by bytes besides rows."""

    async def test_a_look_at_a_lane_ends_by_bytes_and_says_that_there_is_more(
        self, entities: GivenEntities
    ) -> None:
        """The next one goes on; after the last there is nothing."""
        names = await waiting(entities, [LARGE] * (PART + 1) + [WIDE] * PART)
        seen: list[str] = []
        pages = []

        while True:
            some, next_at = await look(entities, skip=seen)
            seen += some
            pages.append(len(some))
            if next_at is None:
                break

        assert names == seen
        assert [PART, PART, 1] == pages

    async def test_an_entity_larger_than_a_batch_is_one(self, entities: GivenEntities) -> None:
        """It comes, alone if it is the first; what is after it comes next."""
        names = await waiting(entities, [HUGE, LARGE])

        first, next_at = await look(entities)
        second, last = await look(entities, skip=first)

        assert names == [*first, *second]
        assert (1, True, None) == (len(first), next_at is not None, last)

    async def test_states_count_as_well(self, entities: GivenEntities) -> None:
        """Those of all stages: a run gets them."""
        names = await waiting(entities, ["{}"] * 2)
        for name in names:
            for stage in ("a", "b"):
                body = b"x" * (BATCH_BYTES_MAX // 2)
                await entities.swapped(await entities.entity(name), body, stage=stage)

        first, next_at = await look(entities)

        assert (names[:1], True) == (first, next_at is not None)

    async def test_what_is_not_due_yet_is_told_besides(self, entities: GivenEntities) -> None:
        """If all that is due came, the lane has more when that is due."""
        (name,) = await waiting(entities, [HUGE])
        later = await entities.queued("later", delay=HOUR)

        first, next_at = await look(entities)

        assert ([name], later.row.ready_at) == (first, next_at)

    async def test_the_feed_ends_by_bytes(self, entities: GivenEntities) -> None:
        """What was not fed is fed next."""
        names = await fed_in_order(entities, [LARGE] * (PART + 2))

        first = await entities.fed()
        assert names[:PART] == [fed.entity.key for fed in first]
        assert (
            sum(size_of(fed.entity, fed.states) for fed in first) >= BATCH_BYTES_MAX
        )  # so there may be more
        for fed in first:
            await entities.asked(fed.entity.key)
        rest = await entities.fed()

        assert names[PART:] == [fed.entity.key for fed in rest]
        assert sum(size_of(fed.entity, fed.states) for fed in rest) < BATCH_BYTES_MAX

    async def test_a_page_of_a_walk_ends_by_bytes(self, entities: GivenEntities) -> None:
        """The walk goes on behind it, and visits each once."""
        names = sorted(entities.key_in(0) for _ in range(PART + 2))
        for name in names:
            await entities.written(name, doc=HUGE if name == names[-1] else LARGE)
        await entities.backfill_begun()
        holding = await entities.given.holding(0)
        pages: list[list[str]] = []

        while page := await entities.store.queues.backfill_page(
            holding, STAGE, limit=LIMIT, backlog_max=LIMIT
        ):
            pages.append([fed.entity.key for fed in page.entities])
            assert await entities.store.queues.advance_backfill(
                holding, STAGE, started_at=page.started_at, cursor=page.cursor, routings=()
            )

        assert [names[:PART], names[PART:]] == [page for page in pages if page]

    async def test_many_are_got_a_batch_at_a_time(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """In the order of the question, with those that are not there; the rest is told."""
        names = [f"e{number}" for number in range(PART + 2)]
        written = [await entities.written(name, doc=LARGE) for name in names[1:]]
        wanted = {name: entities.given.shard_of(name) for name in [*names, "last"]}
        got: dict[str, Entity] = {}
        rounds = 0

        while wanted:
            found = await store.entities.get_many(wanted)
            assert not got.keys() & found.entities.keys()
            assert len(found.left) < len(wanted)
            got |= found.entities
            wanted, rounds = dict(found.left), rounds + 1

        assert {entity.key: entity for entity in written} == got
        assert rounds == 2

    async def test_saves_leave_a_batch_at_a_time(
        self, store: Store, entities: GivenEntities
    ) -> None:
        """In order; what arrived is not seen again, and nothing is left out."""
        await entities.has_relay()
        shard = 0
        names = [entities.given.name_in(shard) for _ in range(PART + 1)]
        for name in names:
            await entities.written(name, doc=HUGE if name == names[-1] else LARGE)
        holding = await entities.given.holding(shard)
        batches: list[list[str]] = []

        while rows := await store.outbox.due_saves([holding], RELAY_SINK, limit=LIMIT):
            batches.append([row.entity_key for row in rows])
            await store.outbox.remove(rows)

        assert [names[:PART], names[PART:]] == batches


async def waiting(entities: GivenEntities, documents: list[str]) -> list[str]:
    """Entities of one shard that wait for the stage, one after the other."""
    names = [entities.given.name_in(0) for _ in documents]
    for name, doc in zip(names, documents, strict=True):
        await entities.written(name, doc=doc)
        await entities.asked(name, entities.offer())
        await entities.past(await entities.given.now())  # two do not wait since the same moment
    return names


async def fed_in_order(entities: GivenEntities, documents: list[str]) -> list[str]:
    names = [entities.given.name_in(0) for _ in documents]
    for name, doc in zip(names, documents, strict=True):
        await entities.written(name, doc=doc)
        await entities.past(await entities.given.now())
    return names


async def look(
    entities: GivenEntities, skip: list[str] | None = None
) -> tuple[list[str], datetime | None]:
    peeked = await entities.store.queues.lane_head(
        await entities.given.holdings(), STAGE, StageLane.MAIN, limit=LIMIT, skip=set(skip or ())
    )
    return [claim.entity.key for claim in peeked.claims], peeked.next_at
