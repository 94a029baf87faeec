"""Where a fault test plays: a database, worker processes on it, and the receiver's log."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from inspect import isawaitable
from pathlib import Path
from typing import Any

from gnomon.app import App
from gnomon.contracts.store import ChangeResult, Selection
from gnomon.model.action import Action, Attempt, State
from gnomon.model.errors import GnomonError, Unavailable
from gnomon.model.spec import Effect, Spec
from gnomon.scheduler import Request
from tests.fault.history import History, Run, Violation, check, read_runs
from tests.fault.program import let_go_file, parse, settings_of
from tests.fixtures.processes import ChildProcess, Processes

POLL_S = 0.02
WAIT_S = 60.0  # for what hangs; a busy machine is no reason to fail
TIMEOUT = timedelta(seconds=1)  # of an attempt, unless a test needs more
GRACE = timedelta(seconds=1)  # of the program's default settings
AT_ONCE = 50
CREATED_AT_ONCE = 1_000
START = b'"event": "start"'


class Stage:
    """One database and the worker processes that a test starts on it."""

    def __init__(self, url: str, schema: str, *, folder: Path, processes: Processes) -> None:
        self.url = url
        self.schema = schema
        self.log = folder / "receiver.log"
        self._processes = processes
        self.deaths: dict[int, datetime] = {}

    def app(self, *, url: str | None = None) -> App:
        """An app of the test's own on the same database."""
        options = ["--url", url or self.url, "--schema", self.schema, "--log", str(self.log)]
        return App(settings=settings_of(parse(options)), migrate=True)

    def launch(self, *options: str, url: str | None = None) -> ChildProcess:
        """Start a worker process; it may not be at work yet."""
        where = ("--url", url or self.url, "--schema", self.schema, "--log", str(self.log))
        return self._processes.start_python(
            "-m", "tests.fault.program", *where, *options, name="worker"
        )

    def launch_brood(self, *options: str) -> ChildProcess:
        """Start a process that keeps several workers alive."""
        where = ("--url", self.url, "--schema", self.schema, "--log", str(self.log))
        return self._processes.start_python(
            "-m", "tests.fault.brood", *where, *options, name="brood"
        )

    def start_program(self, module: str, *options: str) -> ChildProcess:
        """Start another program of the tests."""
        return self._processes.start_python("-m", module, *options, name="worker")

    async def worker(self, *options: str, url: str | None = None) -> ChildProcess:
        """Start a worker process and wait until it has opened the store."""
        child = self.launch(*options, url=url)
        await asyncio.to_thread(child.wait_for_line, "^working$")
        return child

    def kill(self, victim: ChildProcess) -> None:
        """SIGKILL; from its end on, nothing that it did is under way."""
        victim.kill()
        self.note_death(victim)

    def note_death(self, victim: ChildProcess) -> None:
        """It has ended by itself."""
        assert not victim.is_running
        self.deaths[victim.process_id] = datetime.now(UTC)

    # -- the receiver -----------------------------------------------------------------------------

    def runs(self) -> list[Run]:
        return read_runs(self.log)

    def start_count(self) -> int:
        """How many attempts were started so far; cheap."""
        return self.log.read_bytes().count(START) if self.log.exists() else 0

    def latest_process(self) -> int:
        """Which process wrote the latest whole line."""
        line = self.log.read_bytes().rpartition(b"\n")[0].rpartition(b"\n")[2]
        return int(json.loads(line)["pid"])

    def let_go(self) -> None:
        """End the attempts that hold."""
        let_go_file(self.log).touch()

    async def started(self, count: int, *, timeout_s: float = WAIT_S) -> None:
        """Wait until the receiver saw that many starts, for as long as there are more."""
        while (seen := self.start_count()) < count:
            more = partial(lambda before: self.start_count() > before, seen)
            await until(more, f"start after {seen} of {count}", timeout_s=timeout_s)

    # -- the store --------------------------------------------------------------------------------

    async def history(
        self, app: App, acknowledged: Collection[str], *, timeout: timedelta = TIMEOUT, **more: Any
    ) -> History:
        """Both witnesses' stories, when all is over."""
        actions = await all_actions(app)
        return History(
            acknowledged=acknowledged,
            runs=self.runs(),
            actions=actions,
            attempts=await all_attempts(app, sorted({*actions, *acknowledged})),
            findings=await app.store.installation.doctor(),
            reservation=timeout + GRACE,
            deaths=self.deaths,
            **more,
        )

    async def assert_kept(self, app: App, acknowledged: Collection[str], **more: Any) -> History:
        """Check the history and print its numbers."""
        history = await self.history(app, acknowledged, **more)
        print(f"\n  {history.numbers()}")
        shown(check(history))
        return history


def shown(violations: Sequence[Violation]) -> None:
    """Fail with the first violations."""
    text = "\n".join(map(str, violations[:20]))
    assert not violations, f"{len(violations)} violations:\n{text}"


async def until(
    predicate: Callable[[], object | Awaitable[object]],
    what: str,
    *,
    timeout_s: float = WAIT_S,
    poll_s: float = POLL_S,
) -> float:
    """Poll until it is true; how long it took, in seconds."""
    began = time.monotonic()
    while True:
        found = predicate()
        if isawaitable(found):
            found = await found
        elapsed = time.monotonic() - began
        if found:
            return elapsed
        assert elapsed < timeout_s, f"no {what} in {timeout_s} s"
        await asyncio.sleep(poll_s)


def request(name: str, effect: Effect, *, key: str | None = None, **fields: Any) -> Request:
    spec = Spec(action=effect, **{"timeout": TIMEOUT, "interruptions_max": 100, **fields})
    return Request(id=name, spec=spec, key=key)


async def create_all(app: App, requests: Sequence[Request]) -> list[str]:
    """Create many; the ids, all acknowledged. Not all in one call: it has five seconds, and a busy
    machine needs them for ten thousand."""
    names: list[str] = []
    for first in range(0, len(requests), CREATED_AT_ONCE):
        for answer in await app.schedule_many(requests[first : first + CREATED_AT_ONCE]):
            if isinstance(answer, GnomonError):
                raise answer
            names.append(answer.action.meta.id)
    return names


async def insist(
    call: Callable[[], Awaitable[ChangeResult]], *, timeout_s: float = WAIT_S
) -> ChangeResult:
    """Repeat a keyed change until it is answered: what a careful client does."""
    end = time.monotonic() + timeout_s
    while True:
        try:
            return await call()
        except Unavailable:
            assert time.monotonic() < end, f"not answered in {timeout_s} s"
            await asyncio.sleep(POLL_S)


async def stop_all(*workers: ChildProcess, timeout_s: float = WAIT_S) -> list[int]:
    """SIGTERM to all; their exit codes. Not on the loop: a proxy may be on it."""
    stopping = (asyncio.to_thread(worker.stop, timeout_s=timeout_s) for worker in workers)
    return await asyncio.gather(*stopping)


async def counted(app: App) -> Counter[State]:
    """How many actions are in each state; nothing while the store is down."""
    try:
        return Counter(dict(await app.store.actions.count()))
    except Unavailable:
        return Counter()


async def all_done(app: App, count: int, *, timeout_s: float = WAIT_S) -> None:
    """Wait until that many actions are done, for as long as there are more."""
    seen = 0

    async def more() -> bool:
        nonlocal seen
        before, seen = seen, max(seen, (await counted(app))[State.DONE])
        return seen > before

    try:
        while seen < count:
            await until(more, f"end of an action after {seen} of {count}", timeout_s=timeout_s)
    except AssertionError as exc:
        raise AssertionError(f"{exc}, but {dict(await counted(app))}") from None


async def all_actions(app: App) -> dict[str, Action]:
    found: dict[str, Action] = {}
    after: str | None = None
    while True:
        page = await app.scheduler.list(Selection(), after=after, limit=1_000)
        found |= {action.meta.id: action for action in page.actions}
        if page.next is None:
            return found
        after = page.next


async def all_attempts(app: App, names: Sequence[str]) -> dict[str, Sequence[Attempt]]:
    found: dict[str, Sequence[Attempt]] = {}
    for start in range(0, len(names), AT_ONCE):
        part = names[start : start + AT_ONCE]
        logs = await asyncio.gather(*(app.scheduler.attempts(name) for name in part))
        found |= dict(zip(part, logs, strict=True))
    return found


async def owners(app: App) -> Counter[int | None]:
    """How many shards each process holds; None: free."""
    return Counter(
        None if lock.owner is None else int(lock.owner.split("/")[-2])
        for lock in await app.store.leases.list_locks()
    )
