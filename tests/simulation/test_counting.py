"""What only happens in trouble is counted: metrics of limits, of silent workers, of the doctor."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta

from gnomon.model.spec import CatchUp, Mock, Periodic
from tests.simulation.limited import Member, Stage, play
from tests.unit.worker.surroundings import Audience

ROUNDS_MAX = 400  # of the loop in a virtual second, for all workers: idle ones poll


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


class Gauges(Audience):
    """Remembers what was shown last, and how often each event was told."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: dict[tuple[str, str], float] = {}

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        self.shown[name, ",".join(labels.values())] = value


def test_what_nobody_serves_is_shown_until_somebody_does() -> None:
    """`actions_unserved` within a minute, a line in the log each minute; then `guest_begun`, and
    nothing is shown any more. No attempt was made in vain, and nobody hurries meanwhile."""
    audience = Gauges()
    waiting = ("actions_unserved", "kind mock")

    async def scene(stage: Stage) -> None:
        await stage.settle()
        await stage.create(30)
        await stage.until(lambda: audience.shown.get(waiting) == 30, within_s=60)
        ended = audience.counts["attempts_ended"]
        rounds = stage.loop.rounds
        await asyncio.sleep(200)
        assert 30 == ended == audience.counts["attempts_ended"]
        assert stage.loop.rounds - rounds < 200 * ROUNDS_MAX
        assert 4 == Counter(audience.events)["actions_unserved"]
        assert 0 == stage.receiver.ended

        stage.members.append(Member(stage, "w3"))

        await stage.until(lambda: stage.receiver.ended == 30, within_s=20)
        assert audience.counts["guest_begun"] > 0
        await stage.until(lambda: not audience.shown.get(waiting), within_s=60)

    play(scene, observer=audience, lacking=dict.fromkeys(("w0", "w1", "w2"), Mock))


def test_pauses_end_in_time_and_are_counted() -> None:
    """`pauses_ended`: each once, within about a second of its end, and those without one never."""
    audience = Audience()

    async def scene(stage: Stage) -> None:
        await stage.settle()
        later = await stage.scheduler.time.now() + timedelta(seconds=5)
        await stage.create(40, start_at=later)
        for number in range(40):
            until = timedelta(seconds=60) if number < 30 else None
            await stage.scheduler.pause(f"a{number}", reason="the move", until=until)
        await asyncio.sleep(55)
        assert (0, 0) == (stage.receiver.ended, audience.counts["pauses_ended"])
        await asyncio.sleep(8)
        assert (30, 30) == (stage.receiver.ended, audience.counts["pauses_ended"])

    play(scene, observer=audience)


def test_guests_come_at_the_time_of_what_they_have_seen() -> None:
    """What recurs every 20 s and may begin for a second only is begun each time, although its owner
    does not serve it and guests look about once a second."""

    async def scene(stage: Stage) -> None:
        await stage.settle()
        policy = Periodic(period=timedelta(seconds=20))
        await stage.create(8, policy=policy, active=timedelta(seconds=1))
        await asyncio.sleep(30)  # by now it is known that their owners do not serve them
        seen = len(stage.receiver.starts)
        await asyncio.sleep(200)
        starts = stage.receiver.starts[seen:]
        assert dict.fromkeys((f"a{number}" for number in range(8)), 10) == Counter(
            start.id for start in starts
        )
        assert max(start.late_s for start in starts) < 0.5

    play(scene, lacking={"w0": Mock, "w1": Mock})


def test_what_expired_is_passed_over_within_seconds_by_an_owner_that_does_not_serve_it() -> None:
    """Guests may not: they have no lease. And a full look every 15 s would never catch up with what
    recurs every second."""

    async def scene(stage: Stage) -> None:
        await stage.settle()
        everything = CatchUp(mode="all")
        active, policy = timedelta(seconds=3), Periodic(period=timedelta(seconds=1))
        await stage.create(8, policy=policy, active=active, catch_up=everything)
        await asyncio.sleep(30)
        for _ in range(100):
            await asyncio.sleep(1)
            now = await stage.store.installation.now()
            actions = [await stage.scheduler.get(f"a{number}") for number in range(8)]
            overdue = [now - due for one in actions if (due := one.status.scheduled_at)]
            assert 8 == len(overdue)
            assert max(overdue) < active + timedelta(seconds=3)

    play(scene, lacking=dict.fromkeys(("w0", "w1", "w2"), Mock))
