"""Time and randomness come from one injected place, so that a simulation can replay a seed."""

from __future__ import annotations

import pytest

from tests.architecture.sources import Module, dotted_uses, source_modules

# What the simulation runs for real. `gnomon.clock` is the one module that may ask the machine.
SIMULATED = ("model", "contracts", "scheduler", "worker", "stores.sqlite")

NONDETERMINISTIC = frozenset(
    {
        "datetime.date.today",
        "datetime.datetime.now",
        "datetime.datetime.today",
        "datetime.datetime.utcnow",
        "os.getrandom",
        "os.urandom",
        "time.monotonic",
        "time.monotonic_ns",
        "time.perf_counter",
        "time.perf_counter_ns",
        "time.sleep",
        "time.time",
        "time.time_ns",
        "uuid.uuid1",
        "uuid.uuid4",
    }
)
NONDETERMINISTIC_MODULES = ("random", "secrets")


def determinism_findings(module: Module) -> list[str]:
    if not module.is_in(*SIMULATED):
        return []
    return [
        f"{module.where(node)}: {used}; take it from the injected clock"
        for used, node in dotted_uses(module)
        if used in NONDETERMINISTIC
        or used.startswith(tuple(f"{m}." for m in NONDETERMINISTIC_MODULES))
    ]


def test_simulated_code_is_deterministic() -> None:
    """No clock and no randomness but the injected ones in what the simulation runs."""
    findings = [f for module in source_modules() for f in determinism_findings(module)]
    assert [] == findings


@pytest.mark.parametrize(
    ("name", "text", "count"),
    [
        ("gnomon.worker.leases", "import time\nx = time.time()", 1),
        ("gnomon.worker.leases", "import time as t\ndef f(now=t.monotonic): ...", 1),
        ("gnomon.worker.leases", "from time import monotonic\nx = monotonic()", 1),
        ("gnomon.worker.leases", "import random\nx = random.random()", 1),
        ("gnomon.worker.leases", "from random import random\nx = random()", 1),
        ("gnomon.scheduler.create", "from datetime import UTC, datetime\nx = datetime.now(UTC)", 1),
        ("gnomon.scheduler.create", "import uuid\nx = uuid.uuid4()", 1),
        ("gnomon.stores.sqlite.leases", "import os\nx = os.urandom(16)", 1),
        ("gnomon.worker.leases", "def f(clock): return clock.now()", 0),
        ("gnomon.clock", "import time\nx = time.time()", 0),
        ("gnomon.executors.http", "import time\nx = time.monotonic()", 0),
    ],
)
def test_determinism_rule_can_fail(name: str, text: str, count: int) -> None:
    assert count == len(determinism_findings(Module.of_text(name, text)))
