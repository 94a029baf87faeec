"""A target whose server has bad intent costs its attempt, and nothing else."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from gnomon.clock import SystemClock
from gnomon.executors import _sql_postgres as executor_module
from gnomon.executors.sql import SqlExecutor, SqlTarget
from gnomon.model.outcome import Failed, Interrupted, Outcome
from gnomon.model.secret import Secret
from gnomon.model.spec import Sql
from tests.conformance.executor.suite import is_storable, order_of
from tests.fixtures.rogue import ROGUES, rogue_server

PASSWORD = "canary-password"
BREATH_S = 0.02
MOST_MIB = 200


async def performed(rogue: str) -> Outcome:
    """What an attempt on such a server comes to."""
    async with rogue_server(ROGUES[rogue]) as port:
        dsn = Secret(f"postgresql://shop:{PASSWORD}@127.0.0.1:{port}/shop")
        limit = timedelta(seconds=1)
        target = SqlTarget(name="shop", dsn=dsn, inbox="inbox", statement_timeout=limit)
        executor = SqlExecutor({"shop": target}, clock=SystemClock())
        effect = Sql(target="shop", statement="SELECT 1")
        outcome = await executor.execute(order_of(effect, timeout_s=1.0))
        await executor.close()
    return outcome


@pytest.mark.parametrize("rogue", ROGUES)
async def test_an_attempt_ends_in_time_and_in_an_outcome(
    rogue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It failed, in words that can be stored, without the password; the loop was never held up."""
    monkeypatch.setattr(executor_module, "PART_TIMEOUT_S", 0.2)
    performing = asyncio.create_task(performed(rogue))
    breaths = 0
    while not performing.done():
        await asyncio.sleep(BREATH_S)
        breaths += 1
        assert breaths * BREATH_S < 10.0, "the attempt did not end"
    outcome = performing.result()
    assert isinstance(outcome, Failed | Interrupted), outcome
    text = outcome.error if isinstance(outcome, Failed) else outcome.reason
    assert is_storable(text)
    assert PASSWORD not in repr(outcome)
    assert len(repr(outcome)) < 5_000


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the memory is read there")
def test_memory_stays_bounded() -> None:
    """All of them one after the other, in one process."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.test_sql_rogue_servers"],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert int(done.stdout) < MOST_MIB


async def _all() -> None:
    executor_module.PART_TIMEOUT_S = 0.2
    await asyncio.gather(*(performed(rogue) for rogue in ROGUES))


if __name__ == "__main__":
    asyncio.run(_all())
    status = Path("/proc/self/status").read_text()
    print(next(int(x.split()[1]) // 1024 for x in status.splitlines() if x.startswith("VmHWM")))
