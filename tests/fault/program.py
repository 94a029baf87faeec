"""The worker process of the fault tests: `python -m tests.fault.program --url … --log FILE`.

It is a real worker on the loop that the product uses. Its functions write one line when an attempt
starts and one when it ends into the receiver's log, which many processes append to. On standard
output it says what it observes, one event a line.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import uvloop

from gnomon.app import App
from gnomon.config import DatabaseConfig, Settings, WorkerConfig
from gnomon.config.targets import TargetTable
from gnomon.contracts.observer import SilentObserver
from gnomon.executors.python import AttemptContext
from gnomon.model.secret import Secret
from gnomon.model.spec import Python

SHARD_COUNT = 16
POLL_S = 0.02
# Short, so that the tests are; the relations that WorkerConfig asks for hold.
DURATIONS = {
    "lease": 2.0,
    "heartbeat": 0.2,
    "step_down": 0.6,
    "grace": 1.0,
    "window": 5.0,
    "poll": 0.1,
    "sweep": 1.0,
    "silent": 0.6,
    "drain": 5.0,
}


class Told(SilentObserver):
    """Prints events as JSON, for the test that started this process."""

    def event(self, name: str, /, **fields: object) -> None:
        line = json.dumps({"event": name, **fields}, default=str)
        print(line, flush=True)


def let_go_file(log: Path) -> Path:
    """While it is not there, attempts that hold go on."""
    return log.with_suffix(".let-go")


class Receiver:
    """The log of what was really started and ended, whatever the store says about it."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._let_go = let_go_file(path)

    @property
    def holds(self) -> bool:
        """Whether the test has not let go yet."""
        return not self._let_go.exists()

    def write(self, event: str, attempt: AttemptContext, n: int) -> None:
        """One line in one write: lines of several processes never mix."""
        line = json.dumps(
            {
                "event": event,
                "id": attempt.id,
                "key": attempt.key,
                "attempt_id": str(attempt.attempt_id),
                "attempt_no": attempt.attempt_no,
                "occurrence_no": attempt.occurrence_no,
                "n": n,
                "t": time.time(),
                "pid": os.getpid(),
            }
        )
        os.write(self._file, f"{line}\n".encode())


# What the tests schedule. `n` tells generations apart.


def note(n: int, duration_s: float) -> Python:
    """Take `duration_s`."""
    return Python(function="note", args=[n, duration_s])


def hold_first(n: int) -> Python:
    """In the first attempt, go on until the test lets go; take no time in those that follow."""
    return Python(function="hold_first", args=[n])


def block(n: int) -> Python:
    """The same, but block the event loop: a bug of the user's."""
    return Python(function="block", args=[n])


def declare(app: App, receiver: Receiver) -> None:
    """The functions behind the effects above."""

    @app.action(name="note")
    async def _note(attempt: AttemptContext, n: int, duration_s: float) -> None:
        receiver.write("start", attempt, n)
        try:
            if duration_s:
                await asyncio.sleep(duration_s)
        finally:
            receiver.write("end", attempt, n)

    @app.action(name="hold_first")
    async def _hold_first(attempt: AttemptContext, n: int) -> None:
        receiver.write("start", attempt, n)
        try:
            while attempt.attempt_no == 1 and receiver.holds:
                await asyncio.sleep(POLL_S)
        finally:
            receiver.write("end", attempt, n)

    @app.action(name="block")
    async def _block(attempt: AttemptContext, n: int) -> None:
        receiver.write("start", attempt, n)
        while attempt.attempt_no == 1 and receiver.holds:
            time.sleep(POLL_S)  # not asyncio's: that is the fault
        receiver.write("end", attempt, n)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.fault.program")
    parser.add_argument("--url", required=True)
    parser.add_argument("--schema", default="gnomon")
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--concurrency", type=int, default=50)
    parser.add_argument("--closed-queue", action="append", default=[])
    parser.add_argument("--no-helpers", action="store_true")
    parser.add_argument("--sql-dsn")
    for name, default in DURATIONS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, default=default)
    return parser.parse_args(arguments)


def own_target(options: argparse.Namespace) -> TargetTable:
    """The database of the installation itself, with another login."""
    given = {"place": "local", "dsn": Secret(options.sql_dsn), "search_path": options.schema}
    return TargetTable("own", "sql", given)


def settings_of(options: argparse.Namespace) -> Settings:
    durations: dict[str, Any] = {
        name: timedelta(seconds=getattr(options, name)) for name in DURATIONS
    }
    return Settings(
        database=DatabaseConfig(url=options.url, schema=options.schema, shard_count=SHARD_COUNT),
        worker=WorkerConfig(
            concurrency=options.concurrency,
            queues=dict.fromkeys(options.closed_queue, 0),
            helpers=not options.no_helpers,
            **durations,
        ),
        targets={} if options.sql_dsn is None else {"own": own_target(options)},
    )


async def work(options: argparse.Namespace) -> None:
    """Work until SIGTERM."""
    app = App(settings=settings_of(options), observer=Told(), migrate=True)
    declare(app, Receiver(options.log))
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with app:
        print("working", flush=True)
        await app.work(stop)
    print("left", flush=True)


def main() -> int:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work(parse()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
