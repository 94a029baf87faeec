"""One entity that cannot be read, or a row of tomorrow, costs itself alone."""

from __future__ import annotations

import pytest

from gnomon.model.errors import FailedPrecondition
from gnomon.stages import Update
from gnomon.testing.stage_bench import StageBench
from tests.conformance.stages.given import stage

# What a hand or a newer release may leave in the tables: a change of a row of the entity `bad`.
POISONS = {
    "a document that is no JSON": "UPDATE entity SET doc = '{' WHERE entity_key = 'ad/bad'",
    "a document that is a list": "UPDATE entity SET doc = '[]' WHERE entity_key = 'ad/bad'",
    "a state that is no JSON": "UPDATE stage_state SET body = x'7b' WHERE entity_key = 'ad/bad'",
    "a state of another type": "UPDATE stage_state SET type = 'x.Y' WHERE entity_key = 'ad/bad'",
}


@pytest.fixture(params=POISONS)
async def bench(request: pytest.FixtureRequest) -> StageBench:
    """A good entity and a bad one, both with a state; then the bad one is spoilt."""
    count = stage(
        "count",
        watch="a",
        writes="n",
        process=lambda it: Update({"n": it.entity["a"]}, state={"seen": it.entity["a"]}),
    )
    other = stage("other", watch="a", writes="m", process=lambda it: Update({"m": it.entity["a"]}))
    bench = StageBench("ad", count, other)
    await bench.put("bad", {"a": 1})
    await bench.put("good", {"a": 1})
    await bench.run_due()
    bench._runner.connection.execute(POISONS[request.param])
    return bench


async def test_the_others_go_on(bench: StageBench) -> None:
    """Both have to be asked about; the good one is looked after at once."""
    await bench.put("good", {"a": 2, "n": 0})
    bench._runner.connection.execute(
        "INSERT INTO changed_entity (entity_key, shard_id, epoch, since, seq, first_at)"
        " SELECT entity_key, shard_id, epoch, 0, 1, 0 FROM entity WHERE entity_key = 'ad/bad'"
    )
    await bench.run_due()
    assert {"a": 2, "n": 2, "m": 2} == bench["good"]


async def test_it_can_be_replaced_and_removed(bench: StageBench) -> None:
    """Its user mends it with an ordinary write; then it is looked after again."""
    await bench.put("bad", {"a": 3})
    await bench.advance(hours=2)
    assert 3 == bench["bad"]["m"]
    await bench.delete("bad")
    await bench.run_due()
    assert "good" in [entity.id for entity in await bench.stages.entities.list("ad")]


async def test_it_is_listed_walked_over_and_explained(bench: StageBench) -> None:
    """Looking does not fail, and a walk over all entities comes to its end."""
    assert ["bad", "good"] == [entity.id for entity in await bench.stages.entities.list("ad")]
    await bench.stages.backfill("other")
    await bench.run_due()
    assert "bad" == (await bench.explain("bad")).id
    walks = "SELECT count(*) FROM stage_backfill WHERE NOT ended"
    assert (0,) == bench._runner.connection.execute(walks).fetchone()


async def test_a_patch_of_what_cannot_be_read_says_what_to_do(bench: StageBench) -> None:
    """Only where the document is the poison; a state is none of a patch's business."""
    stored = "SELECT doc FROM entity WHERE entity_key = 'ad/bad'"
    if bench._runner.connection.execute(stored).fetchone() not in (("{",), ("[]",)):
        await bench.patch("bad", {"a": 4})
        return
    with pytest.raises(FailedPrecondition, match="is unreadable; this needs it to be put whole"):
        await bench.patch("bad", {"a": 4})


async def test_a_list_in_process_is_bounded_by_bytes() -> None:
    """As pages over REST are: a thousand documents may have a megabyte each."""
    bench = StageBench("ad")
    for number in range(4):
        await bench.put(f"e{number}", {"text": "x" * 300_000})
    listed = await bench.stages.entities.list("ad", limit=1000)
    page = await bench.stages.entities.page("ad", after=listed[-1].id)
    assert ["e0"] == [entity.id for entity in listed][:1]
    assert 1 <= len(listed) < 4
    assert f"e{len(listed)}" == page.entities[0].id
