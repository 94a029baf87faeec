"""Many workers that are born quickly: `python -m tests.fault.brood --workers 4 <options>`.

The options are the program's. All is imported once; a worker is a fork, which opens the store in
some milliseconds. When one dies another is born, until SIGTERM. Prints `born <process id>` of each.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys

import uvloop

from tests.fault.program import parse, work


class Brood:
    """Keeps a number of workers alive."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._workers: set[int] = set()
        self._is_leaving = False

    def keep(self, worker_count: int) -> int:
        """Until SIGTERM; then 0 if all workers left in order."""
        signal.signal(signal.SIGTERM, self._leave)
        codes: list[int] = []
        while True:
            while len(self._workers) < worker_count and not self._is_leaving:
                self._bear()
            if not self._workers:
                return max(codes, default=1)
            process_id, status = os.wait()
            self._workers.discard(process_id)
            if self._is_leaving:
                codes.append(abs(os.waitstatus_to_exitcode(status)))

    def _bear(self) -> None:
        process_id = os.fork()
        if process_id:
            self._workers.add(process_id)
            return
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        print(f"born {os.getpid()}", flush=True)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(work(self._options))
        os._exit(0)

    def _leave(self, *_: object) -> None:
        self._is_leaving = True
        for process_id in self._workers:
            os.kill(process_id, signal.SIGTERM)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.fault.brood")
    parser.add_argument("--workers", type=int, required=True)
    own, rest = parser.parse_known_args()
    return Brood(parse(rest)).keep(own.workers)


if __name__ == "__main__":
    sys.exit(main())
