"""What a process asks for, of its stages' limits."""

from __future__ import annotations

import random
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from gnomon.contracts.env import Env
from gnomon.contracts.store import LimitStore
from gnomon.contracts.store.limits import LimitRequest
from gnomon.model.limits import LimitKey
from gnomon.stages.bound_stage import LocalStage
from gnomon.stages.limits import LINGER_S, StageLimits
from gnomon.stages.pipeline import StagePipeline
from gnomon.testing.bench_clock import BenchClock
from gnomon.testing.virtual import SeededEntropy
from tests.unit.stage.test_pipeline import MAIN, NOW, Idle


class Granting:
    """A store that grants what is wanted, and notes it."""

    def __init__(self) -> None:
        self.claims: list[LimitRequest] = []

    async def share(
        self, _worker: UUID, claims: Mapping[LimitKey, LimitRequest], **_: Any
    ) -> dict[LimitKey, int]:
        self.claims += claims.values()
        return {key: claim.wanted for key, claim in claims.items()}


async def asked(line: StagePipeline) -> LimitRequest:
    """What is asked for a line."""
    store, clock = Granting(), BenchClock(NOW)
    env = cast(
        "Env", SimpleNamespace(clock=clock, entropy=SeededEntropy(random.Random(0)), observer=None)
    )
    limits = StageLimits(
        cast("LimitStore", store), {"idle": line}, worker=UUID(int=1), env=env, changed=lambda: None
    )
    await limits.limiter._ask()
    [claim] = store.claims
    return claim


def line_with(share: float, parallel: int = 16) -> StagePipeline:
    line = StagePipeline(LocalStage("ad", Idle()))
    line.capacity.limit, line.capacity.share, line.capacity.granted = parallel, share, 0
    return line


async def test_an_idle_stage_keeps_one_call_ready() -> None:
    """What is fresh begins at once, without asking first."""
    line = line_with(share=0.5)
    assert 1 == (await asked(line)).wanted
    assert 1 == line.capacity.granted
    assert line.capacity.is_short


async def test_a_stage_that_was_used_a_moment_ago_keeps_its_part() -> None:
    """In a chain each has something now and then; who has nothing for longer gives it up."""
    line = line_with(share=0.5)
    line.capacity.began(1, BenchClock(NOW).monotonic())
    line.capacity.ended()
    assert 8 == (await asked(line)).wanted
    line.capacity.used_at -= LINGER_S
    assert 1 == (await asked(line)).wanted


async def test_where_there_is_less_than_one_for_each_an_idle_stage_keeps_none() -> None:
    """Others may have it."""
    assert 0 == (await asked(line_with(share=0.25, parallel=3))).wanted
    assert 0 == (await asked(line_with(share=0.0))).wanted


async def test_a_stage_with_something_to_do_wants_all_there_is() -> None:
    """How much of it is for this process, the store says."""
    line = line_with(share=0.5)
    line.note(MAIN, NOW)
    assert 16 == (await asked(line)).wanted
    assert not line.capacity.is_short
