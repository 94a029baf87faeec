"""What every worker program of the benchmarks has in common: how it speaks with the bench.

A worker is a child process. It reads `go` and `stop` on its standard input (the end of the input
is a `stop` too, so that none outlives the bench) and writes one JSON object a line: that it is
ready, how many actions it has performed so far, when each was called if asked, and a last word.

The standard library only: the peers' programs use it in environments of their own.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

TELL_EVERY_S = 0.005
ORPHAN_S = 5.0  # after the bench is gone


class Tally:
    """Counts performed actions and tells the bench, from a thread of its own."""

    def __init__(self) -> None:
        self.count = 0
        # What was called when, if asked: its id, and in seconds since 1970 when it was due (None:
        # at once) and when it was called.
        self.calls: list[tuple[str, float | None, float]] = []
        self.first_at: float | None = None
        self._go = threading.Event()
        self._stop = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def add(self) -> None:
        """One more was performed."""
        if self.first_at is None:
            self.first_at = time.time()
        self.count += 1

    def add_call(self, due: float | None, name: str = "") -> None:
        """One more was performed; remember when it was due and that it was called now."""
        self.calls.append((name, due, time.time()))
        self.add()

    def wait_go(self) -> None:
        """Say that we are ready and wait for the word."""
        say({"event": "ready"})
        self._go.wait()
        threading.Thread(target=self._keep_telling, daemon=True).start()

    def wait_stop(self) -> None:
        self._stop.wait()

    @property
    def is_stopped(self) -> bool:
        return self._stop.is_set()

    def bye(self, **fields: Any) -> None:
        """The last word: everything that is worth telling at the end."""
        last = {"count": self.count, "first_at": self.first_at, "calls": self.calls}
        say({"event": "bye", **last, **fields})

    def _listen(self) -> None:
        for line in sys.stdin:
            if line.strip() == "go":
                self._go.set()
            elif line.strip() == "stop":
                self._end()
        self._end()
        time.sleep(ORPHAN_S)  # a worker whose store never answers would drain for ever
        os._exit(1)

    def _end(self) -> None:
        self._go.set()
        self._stop.set()

    def _keep_telling(self) -> None:
        told = 0
        while not self._stop.is_set():
            time.sleep(TELL_EVERY_S)
            if self.count != told:
                told = self.count
                say({"event": "count", "value": told})


def say(message: dict[str, Any]) -> None:
    """One line to the bench."""
    sys.stdout.buffer.write(json.dumps(message, default=str).encode() + b"\n")
    sys.stdout.buffer.flush()


def options() -> dict[str, Any]:
    """What the bench wants of this worker: the JSON object that is the only argument."""
    found: dict[str, Any] = json.loads(sys.argv[1])
    return found
