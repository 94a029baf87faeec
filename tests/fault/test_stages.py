"""Stages over entities while real workers are killed, brokers and stages are away, walks go on."""

from __future__ import annotations

import asyncio
import os
import random

import pytest

from tests.fault.entity_stage import EntityStage, Saves, at_rest, documents, kill_points, names_of
from tests.fault.stage import Stage, stop_all, until
from tests.fixtures.kafka import MockKafka

FULL = bool(os.environ.get("GNOMON_FAULT_FULL"))  # `make fault-full`: the numbers of the issue
ENTITY_COUNT = 10_000 if FULL else 700
OUTAGE_S = 60.0 if FULL else 4.0
WALKED_COUNT = 100_000 if FULL else 1_500
PATIENCE_S = 1_200.0 if FULL else 300.0


@pytest.mark.slow
@pytest.mark.timeout(PATIENCE_S * 2)
async def test_entities_end_where_a_model_says_although_workers_are_killed_on_postgres(
    postgres_stage: Stage, mock_kafka: MockKafka
) -> None:
    """Five stages, outside writers, SIGKILL again and again: no wake-up is lost, no push missing,
    and the cluster gets every version of every entity, in order."""
    await _survives(EntityStage(postgres_stage, mock_kafka.bootstrap), mock_kafka, workers=2)


@pytest.mark.slow
@pytest.mark.timeout(PATIENCE_S * 2)
async def test_entities_end_where_a_model_says_although_workers_are_killed_on_sqlite(
    sqlite_stage: Stage, mock_kafka: MockKafka
) -> None:
    """The same with one process on one file."""
    await _survives(EntityStage(sqlite_stage, mock_kafka.bootstrap), mock_kafka, workers=1)


async def _survives(stage: EntityStage, kafka: MockKafka, *, workers: int) -> None:
    dice = random.Random()
    saves = Saves(kafka.bootstrap)
    async with stage.app() as (app, entities), saves.listening():
        await stage.create(entities, ENTITY_COUNT)
        alive = [await stage.worker() for _ in range(workers)]
        async with stage.changing(entities, dice):
            for point in kill_points(ENTITY_COUNT * 6, 3 * workers, dice):
                await until(
                    lambda at=point: saves.count >= at,  # type: ignore[misc]
                    f"{point} saves",
                    timeout_s=PATIENCE_S,
                )
                victim = alive.pop(0)
                assert victim.is_running, victim.log
                victim.kill()
                alive.append(await stage.worker())
        await stage.all_right(entities, timeout_s=PATIENCE_S)
        latest = {name: version for name, (version, _) in (await documents(entities)).items()}
        await saves.complete(latest, timeout_s=PATIENCE_S)
        await until(lambda: saves.of("s5") <= stage.told(), "every push", timeout_s=PATIENCE_S)
        await until(lambda: at_rest(entities), "rest")
        assert [] == list(await app.store.installation.doctor())
        assert [] == list(await entities.parked())
        assert [0] * workers == await stop_all(*alive)
        repeats = saves.count - sum(latest.values())
        print(f"\n  {sum(latest.values())} versions, {repeats} records more than once")


@pytest.mark.slow
async def test_a_fighting_pair_is_parked_with_its_proof_and_others_go_on(stage: Stage) -> None:
    """Within 16 steps, although two processes share the work and nothing fails."""
    place = EntityStage(stage)
    async with place.app() as (_, entities):
        fighting = {f"fight{number}": {"x": 5} for number in range(20)}
        await entities.put_many("ad", fighting)
        await place.create(entities, 200)
        worker = await place.worker()

        async def are_parked() -> bool:
            return names_of(await entities.parked()) == set(fighting)

        await until(are_parked, "parked pairs")
        await place.all_right(entities, timeout_s=60)
        for row in await entities.parked():
            assert row.error in {"loop: up → down → up", "loop: down → up → down"}
        found = await documents(entities)
        assert max(found[name][0] for name in fighting) <= 17
        assert [0] == await stop_all(worker)


@pytest.mark.slow
@pytest.mark.timeout(PATIENCE_S * 2)
async def test_an_outage_of_the_broker_loses_nothing(stage: Stage, mock_kafka: MockKafka) -> None:
    """Saves go on meanwhile; afterwards every version arrives in order, and no row was blamed."""
    place = EntityStage(stage, mock_kafka.bootstrap)
    saves = Saves(mock_kafka.bootstrap)
    dice = random.Random()
    async with place.app() as (_, entities):
        await place.create(entities, 100)
        worker = await place.worker()
        async with saves.listening():
            await until(lambda: saves.count >= 300, "some saves", timeout_s=PATIENCE_S)
            mock_kafka.down()
            async with place.changing(entities, dice):
                await asyncio.sleep(OUTAGE_S)
            await place.all_right(entities, timeout_s=PATIENCE_S)
        known = saves.count
        mock_kafka.up()
        latest = {name: version for name, (version, _) in (await documents(entities)).items()}
        assert known < sum(latest.values()), "the outage was none: the test shows nothing"
        async with saves.listening():  # anew: a consumer does not always get over it
            await saves.complete(latest, timeout_s=PATIENCE_S)
            await until(lambda: saves.of("s5") <= place.told(), "every push", timeout_s=PATIENCE_S)
        assert [0] == await stop_all(worker)


@pytest.mark.slow
@pytest.mark.timeout(PATIENCE_S * 2)
async def test_fresh_changes_do_not_wait_for_a_walk_over_the_base(stage: Stage) -> None:
    """A raised revision shows the whole base to its stage again, behind what is fresh."""
    place = EntityStage(stage)
    async with place.app() as (_, entities):
        await place.create(entities, WALKED_COUNT)
        worker = await place.worker()
        await place.all_right(entities, timeout_s=PATIENCE_S)
        await until(lambda: at_rest(entities), "rest", timeout_s=PATIENCE_S)
        assert [0] == await stop_all(worker)
        worker = await place.worker("--revision", "2")

        async def walking() -> int:
            return sum(record.background for record in await entities.stages())

        await until(walking, "walk", timeout_s=PATIENCE_S)
        overtaken = 0
        for number in range(10):
            name = f"e{number}"
            await place.change(entities, name, number + 50_000)
            await until(lambda at=name: place.is_right(entities, at), "fresh change")  # type: ignore[misc]
            overtaken += bool(await walking())
        print(f"\n  {overtaken} of 10 fresh changes were done while the walk went on")
        assert overtaken, "the walk was over before the first change: the test shows nothing"
        await until(lambda: at_rest(entities), "end of the walk", timeout_s=PATIENCE_S)
        assert [] == await place.wrong(entities)
        assert [0] == await stop_all(worker)
