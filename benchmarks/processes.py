"""The bench's side of its worker processes: start, count, stop."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec

ROOT = Path(__file__).parents[1]
READY_S = 60.0
STOP_S = 40.0
LOOK_EVERY_S = 0.002
LINE_BYTES_MAX = 64 * 1024 * 1024  # the last word may list when each of many actions began


class WorkerDied(RuntimeError):  # noqa: N818 - what happened, not a kind of error
    """A worker process ended while it was needed."""


class Program(NamedTuple):
    """A module that is run in a process of its own, by our interpreter or by another's."""

    module: str
    options: Mapping[str, Any]
    python: Path = Path(sys.executable)


class Used(msgspec.Struct, frozen=True):
    """What a peer's call gave, and what it took."""

    wall_s: float
    python_s: float
    value: int | None = None


class ChildProcess:
    """A process that tells the bench about itself in JSON objects, one a line."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log
        self._ready = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, program: Program, log: Path) -> Self:
        """Start `python -m module`; it is not ready yet."""
        with log.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                program.python,
                *("-m", program.module, msgspec.json.encode(program.options).decode()),
                cwd=ROOT,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                limit=LINE_BYTES_MAX,
                start_new_session=True,  # Ctrl-C is ours; they end with their input
            )
        return cls(process, log)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ready(self) -> None:
        waiting = asyncio.create_task(self._ready.wait())
        await asyncio.wait({waiting, self._reading}, timeout=READY_S, return_when="FIRST_COMPLETED")
        waiting.cancel()
        if not self._ready.is_set():
            raise WorkerDied(f"a process is not ready; its log:\n{self.errors}")

    def check(self) -> None:
        """It must still be there."""
        if self._process.returncode is not None:
            raise WorkerDied(f"a process ended; its log:\n{self.errors}")

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()

    @property
    def errors(self) -> str:
        return self._log.read_text(errors="replace")[-1500:]

    def _tell(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word.encode() + b"\n")

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            message = msgspec.json.decode(line)
            if message["event"] == "ready":
                self._ready.set()
            else:
                self._heard(message)

    def _heard(self, message: dict[str, Any]) -> None:
        raise NotImplementedError


class WorkerProcess(ChildProcess):
    """One worker process."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.count = 0
        self.port = 0  # where it listens, if it does
        self.last_word: dict[str, Any] = {}
        super().__init__(process, log)

    def go(self) -> None:
        self._tell("go")

    async def stop(self) -> dict[str, Any]:
        """Ask it to end; its last word."""
        if self._process.returncode is None:
            self._tell("stop")
        try:
            await asyncio.wait_for(self._process.wait(), STOP_S)
        except TimeoutError:
            self._process.kill()
            raise WorkerDied(f"a worker did not end; its log:\n{self.errors}") from None
        await self._reading
        if self._process.returncode or not self.last_word:
            raise WorkerDied(f"a worker failed; its log:\n{self.errors}")
        return self.last_word

    def memory_mb(self, field: str = "VmRSS") -> float:
        """Resident memory as Linux counts it; `VmHWM` is its highest so far."""
        text = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(rf"^{field}:\s+(\d+) kB", text, re.MULTILINE)
        assert found is not None
        return int(found[1]) / 1024

    def _heard(self, message: dict[str, Any]) -> None:
        match message["event"]:
            case "port":
                self.port = message["value"]
            case "count":
                self.count = message["value"]
            case "bye":
                self.count = message["count"]
                self.last_word = message


class AskedProcess(ChildProcess):
    """A process that answers, one question at a time."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._answers: asyncio.Queue[Used] = asyncio.Queue()
        super().__init__(process, log)

    async def ask(self, **asked: Any) -> Used:
        self._tell(msgspec.json.encode(asked).decode())
        answering = asyncio.create_task(self._answers.get())
        await asyncio.wait({answering, self._reading}, return_when="FIRST_COMPLETED")
        if not answering.done():
            answering.cancel()
            raise WorkerDied(f"{asked['verb']}: the process ended; its log:\n{self.errors}")
        return answering.result()

    async def end(self) -> None:
        """It ends with its input."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), STOP_S)
        except TimeoutError:
            self._process.kill()

    def _heard(self, message: dict[str, Any]) -> None:
        self._answers.put_nowait(msgspec.convert(message, Used))


class Call(NamedTuple):
    """One action that a worker performed; times in seconds since 1970."""

    name: str
    due: float | None  # None: at once
    at: float

    @property
    def late_s(self) -> float:
        assert self.due is not None
        return self.at - self.due


class Crew:
    """The worker processes of one side."""

    def __init__(self, workers: Sequence[WorkerProcess]) -> None:
        self.workers = workers
        self.last_words: list[dict[str, Any]] = []

    @property
    def count(self) -> int:
        """How many actions they have performed together."""
        return sum(worker.count for worker in self.workers)

    def go(self) -> None:
        for worker in self.workers:
            worker.go()

    async def performed(self, count: int, *, within_s: float = 60.0) -> None:
        """Wait until they have performed that many, as long as they come forward."""
        seen, end = self.count, time.monotonic() + within_s
        while self.count < count:
            self.check()
            if self.count > seen:
                seen, end = self.count, time.monotonic() + within_s
            if time.monotonic() > end:
                raise TimeoutError(f"no progress for {within_s} s, {seen} of {count} performed")
            await asyncio.sleep(LOOK_EVERY_S)

    def check(self) -> None:
        """All must still be there."""
        for worker in self.workers:
            worker.check()

    async def stop(self) -> None:
        self.last_words = [await worker.stop() for worker in self.workers]

    @property
    def calls(self) -> list[Call]:
        """What was called when, as the workers told at their end."""
        return [Call(*told) for word in self.last_words for told in word["calls"]]

    @property
    def pids(self) -> list[int]:
        return [worker.pid for worker in self.workers]

    @property
    def first_at(self) -> float | None:
        """When the first was performed, as told at the end."""
        return min((word["first_at"] for word in self.last_words if word["first_at"]), default=None)


@asynccontextmanager
async def crew_of(*programs: Program, size: int = 1, folder: Path) -> AsyncIterator[Crew]:
    """Start `size` workers of each program, ready and waiting for `go`; none is left behind."""
    workers = [
        await WorkerProcess.start(program, folder / f"{program.module.rpartition('.')[2]}-{n}.log")
        for n, program in enumerate(programs * size)
    ]
    try:
        for worker in workers:
            await worker.ready()
        crew = Crew(workers)
        yield crew
        if not crew.last_words:
            await crew.stop()
    finally:
        for worker in workers:
            worker.kill()
