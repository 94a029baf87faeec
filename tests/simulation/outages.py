"""The database is away for long, for everybody or for one machine; what workers are at goes on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gnomon.testing.faulty import Misfortune

if TYPE_CHECKING:
    from tests.simulation.world import Node, World


async def outage(world: World) -> None:
    """Once in a world that has one."""
    if not world.has_outage:
        return
    dice = world.more_dice
    await asyncio.sleep(dice.uniform(5, 20))
    for_s = dice.uniform(8, 30)
    nodes = world.nodes if dice.random() < 0.8 else [dice.choice(world.nodes)]
    await asyncio.gather(*(_cut_off(world, node, for_s) for node in nodes if node.is_up))


async def _cut_off(world: World, node: Node, for_s: float) -> None:
    store = node.store
    world.history.note(node.process.name, "outage", for_s)
    world.history.reach("outage")
    store.misfortune = Misfortune(delay_s=world.fair.delay_s, refused=1.0)
    await asyncio.sleep(for_s)
    store.misfortune = world.fair if world.is_fair else world.weather.store
