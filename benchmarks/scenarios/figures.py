"""`figures`: what it costs to keep the history of attempts, beside all that an attempt costs.

Workers drain with and without it, in turn. On a machine with other work the difference of two such
rounds is larger than what is looked for, so the goal is measured directly as well: the processor
time of the additions themselves, for attempts that were really begun, as a part of the processor
time of a drain. What is written once a minute is some rows for ten thousands of attempts.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import NamedTuple

from benchmarks.report import Compared, Cost, Result, median_cost
from benchmarks.scenarios.drain import drain_gnomon
from benchmarks.scenarios.growth import BATCH, CONFIG, OWNER, demands_for
from benchmarks.sides.gnomon import create_all, held, opened, requests
from benchmarks.stand import Stand
from gnomon.contracts.store import BegunAttempt, FinishRequest
from gnomon.model.outcome import Succeeded
from gnomon.worker.attempt import finish_of
from gnomon.worker.attempt_tally import AttemptTally

GOAL_PERCENT = 2.0
REPEATS = 200


class Kept(NamedTuple):
    """One round: a drain with the history, and one without; the additions alone."""

    tallied: Cost
    plain: Cost
    tally_us: float  # of an attempt


async def measure(stand: Stand) -> AsyncIterator[Result]:
    rounds = await stand.rounds(lambda: one_round(stand))
    tallied = median_cost(each.value.tallied for each in rounds)
    plain = median_cost(each.value.plain for each in rounds)
    assert tallied is not None
    assert plain is not None
    tally_us = min(each.value.tally_us for each in rounds)
    share = 100 * tally_us / processor_us(plain)
    difference = 100 * (processor_us(tallied) / processor_us(plain) - 1)
    stand.say(
        f"figures: {tally_us:.2f} µs of {processor_us(plain):.1f} µs are {share:.2f} %; drains "
        f"differ by {difference:.1f} %"
    )
    yield Result(
        scenario="figures",
        measure="history of attempts: processor time beside a drain",
        engine=stand.engine,
        unit="%",
        value=share,
        rounds=[100 * each.value.tally_us / processor_us(each.value.plain) for each in rounds],
        cost=tallied,
        compared=[
            Compared(
                name="drain with it, more than without",
                kind="before",
                value=difference,
                ratio=processor_us(plain) / processor_us(tallied),
                cost=plain,
            )
        ],
        goal=f"<= {GOAL_PERCENT:g} %",
        met=share <= GOAL_PERCENT,
        around=[each.around for each in rounds],
        extra={"tally_us": tally_us},
    )


def processor_us(cost: Cost) -> float:
    """Of Python and of the server."""
    return cost.python_us + (cost.server_us or 0.0)


async def one_round(stand: Stand) -> Kept:
    count = stand.scale.drained
    tallied = await drain_gnomon(stand, count)
    plain = await drain_gnomon(stand, count, tallied=False)
    return Kept(tallied.drain_cost, plain.drain_cost, await tally_us(stand))


async def tally_us(stand: Stand) -> float:
    """What the additions for one attempt take, of some that were begun and have ended."""
    attempts = await some_attempts(stand)
    tally = AttemptTally()
    began = time.process_time()
    for _ in range(REPEATS):
        tally.begun({attempts[0][0].spec.queue: len(attempts)})
        for begun, finish in attempts:
            tally.ended(begun.spec.queue, finish, 0.0, 0.0)
        tally.take()
    return (time.process_time() - began) / REPEATS / len(attempts) * 1e6


async def some_attempts(stand: Stand) -> list[tuple[BegunAttempt, FinishRequest]]:
    async with (
        stand.database() as url,
        opened(stand, url) as app,
        held(app, range(app.installation.shard_count)) as holdings,
    ):
        await create_all(app, requests("tallied", [None] * BATCH))
        moved = await app.store.work.move(holdings, limit=BATCH)
        result = await app.store.work.begin(
            demands_for(dict(moved.lanes), holdings),
            batch=app.env.entropy.token(),
            owner=OWNER,
            grace=CONFIG.grace,
            window=CONFIG.window,
            silent=CONFIG.silent,
        )
    took = timedelta(milliseconds=1)
    return [(begun, finish_of(begun, Succeeded(), ended_after=took)) for begun in result.begun]
