"""What arrives is begun soon, whoever is gone and whatever is in the way, in virtual time."""

from __future__ import annotations

from datetime import timedelta

from tests.simulation.limited import Stage, play

LEASE_S = 10.0


def test_new_actions_of_a_dead_owners_shards_do_not_wait_for_its_lease() -> None:
    """The others move and begin them as soon as the owner is silent."""

    async def scene(stage: Stage) -> None:
        await stage.settle()
        stage.members[0].kill()
        await stage.create(40)
        took_s = await stage.until(lambda: stage.receiver.ended == 40)
        assert took_s < LEASE_S * 0.7
        assert 40 == len({start.id for start in stage.receiver.starts})

    play(scene)


def test_a_held_row_of_a_dead_owner_delays_no_lower_priority() -> None:
    """Who helps goes on with the next priority where nothing of the first can be begun."""

    async def scene(stage: Stage) -> None:
        await stage.settle()
        execute = stage.runner.connection.execute
        soon = await stage.store.installation.now() + timedelta(seconds=2)
        await stage.create(24, start_at=soon, priority=0)
        await stage.create(40, start_at=soon, priority=5)
        count = "SELECT count(*) FROM processing_queue"
        await stage.until(lambda: execute(count).fetchone() == (64,))
        # As a begin finds them while a user's transaction holds them.
        execute("UPDATE scheduled_action SET state = 'paused' WHERE priority = 0")
        stage.members[0].kill()
        took_s = await stage.until(lambda: stage.receiver.ended == 40)
        assert took_s < LEASE_S * 0.7

    play(scene)
