"""The mock effect: succeeds, fails, hangs or kills the process, as its spec says. For tests."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

from gnomon.contracts.executor import AttemptRequest
from gnomon.model.need import kind_need
from gnomon.model.outcome import Failed, Interrupted, Outcome, Succeeded, cut
from gnomon.model.spec import Mock


def kill_this_process() -> None:
    """SIGKILL: nothing is cleaned up, which is the point."""
    os.kill(os.getpid(), signal.SIGKILL)


class MockExecutor:
    """Does what the mock says, in this order: kill, hang, fail, succeed."""

    def __init__(self, killer: Callable[[], None] = kill_this_process) -> None:
        self._killer = killer

    def serves(self, need: str) -> bool:
        return need == kind_need("mock")

    async def execute(self, order: AttemptRequest) -> Outcome:
        effect = order.effect
        assert isinstance(effect, Mock)
        if order.attempt_no <= effect.kill:
            self._killer()
            return Interrupted(reason="killed by its mock")
        if effect.hang:
            await asyncio.sleep(effect.hang.total_seconds())
        if order.attempt_no <= effect.fail:
            return Failed(error=f"mock failure {order.attempt_no} of {effect.fail}")
        return Succeeded(answer=None if effect.answer is None else cut(effect.answer))

    async def close(self) -> None:
        """Nothing is held."""
