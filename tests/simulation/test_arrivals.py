"""What arrives is begun soon, whoever is gone and whatever is in the way, in virtual time."""

from __future__ import annotations

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
