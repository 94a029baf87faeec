"""What only happens in trouble is counted: metrics of limits, of silent workers, of the doctor."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from tests.simulation.limited import Stage, play
from tests.unit.worker.surroundings import Audience


def test_what_a_full_target_hands_back_is_counted() -> None:
    """`limit_handed_back`, and each of them is an attempt that was abandoned."""
    audience = Audience()

    async def scene(stage: Stage) -> None:
        await stage.limit("target", "hook", parallel=0)
        await stage.settle()
        await stage.create(30, target="hook")
        await stage.until(lambda: audience.counts["limit_handed_back"] >= 30)
        await asyncio.sleep(1)
        assert audience.counts["attempts_abandoned"] == audience.counts["limit_handed_back"]
        assert audience.counts["attempts_begun"] >= audience.counts["attempts_ended"] >= 30

    play(scene, observer=audience)


def test_what_is_taken_over_from_a_dead_worker_is_counted() -> None:
    """`helper_begun` while it is silent, `leases_stolen` when its leases have ended."""
    audience = Audience()

    async def scene(stage: Stage) -> None:
        await stage.settle()
        soon = await stage.store.installation.now() + timedelta(seconds=5)
        await stage.create(30, start_at=soon)
        await stage.until(lambda: audience.counts["actions_moved"] == 30)
        stage.members[0].kill()
        await stage.until(lambda: bool(audience.counts["helper_begun"]), within_s=8)
        await stage.until(lambda: bool(audience.counts["leases_stolen"]), within_s=30)

    play(scene, observer=audience)


def test_what_the_doctor_finds_is_counted() -> None:
    """A broken invariant is a metric, an event, and both within minutes."""
    audience = Audience()

    async def scene(stage: Stage) -> None:
        await stage.settle()
        await stage.create(1)
        await stage.until(lambda: stage.receiver.ended == 1)
        await stage.create(1, start_at=None)
        stage.runner.connection.execute("DELETE FROM incoming_queue")
        stage.runner.connection.execute("DELETE FROM processing_queue")
        await stage.until(lambda: bool(audience.counts["doctor_findings"]), within_s=300)
        assert "doctor_finding" in audience.events

    play(scene, observer=audience)
