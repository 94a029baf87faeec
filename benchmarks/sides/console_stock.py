"""An installation as an operator finds it after months: many actions that wait, in several queues
and with labels, a tenth as many that ended, some dead, some to be tried again, schedules, SQL
tasks, entities, an audit. One of each is made by the product itself; the rest are copies."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import asyncpg
import msgspec

from benchmarks.loader import FINISHED, LIVE, Told, load_copies, tell_nobody
from benchmarks.processes import ROOT
from benchmarks.sides.gnomon import held
from benchmarks.stand import Stand
from gnomon.app import App
from gnomon.contracts.observer import SilentObserver
from gnomon.executors.python import AttemptContext
from gnomon.model.action import Action, State
from gnomon.model.spec import Cron, Periodic, Python, Retry, Spec
from gnomon.scheduler import Request

QUEUES = ("default", "mail", "reports", "search", "billing")
ERRORS = (
    "TimeoutError: the receiver did not answer within 30 s",
    "ConnectionRefusedError: [Errno 111] Connection refused",
    "ValueError: no such customer: 4711",
    "HTTP 503: try again later",
)
FAR = timedelta(days=40)
ENTITIES = 2_000
ENTITY_KIND = "ad"
READY = b"task_table_owned"
WAIT_S = 60.0
LOOK_S = 0.05


class Share(NamedTuple):
    """Copies of one action."""

    request: Request
    copies: int
    tables: tuple[str, ...]
    ends: State | None = None  # the first one ends like this before it is copied
    fails: bool = False  # it is tried once, in vain, before it is copied


def shares_of(count: int) -> Iterator[Share]:
    """`count` pending ones, a tenth as many finished ones, some to be tried again, schedules."""
    far = datetime.now(UTC) + FAR
    for queue in QUEUES:
        spec = Spec(
            action=Python(function="noop", kwargs={"customer": 4711}),
            queue=queue, labels={"team": queue}, start_at=far,
        )  # fmt: skip
        yield Share(Request(id=f"order-{queue}", spec=spec), count // len(QUEUES), LIVE)
        done = Spec(action=Python(function="noop"), queue=queue, retention=FAR)
        yield Share(
            Request(id=f"sent-{queue}", spec=done), count // 11 // len(QUEUES), FINISHED,
            ends=State.DONE,
        )  # fmt: skip
    for number, error in enumerate(ERRORS):
        effect = Python(function="fail", args=[error])
        spec = Spec(action=effect, queue=QUEUES[number], retention=FAR)
        yield Share(
            Request(id=f"lost-{number}", spec=spec), count // 110 // len(ERRORS), FINISHED,
            ends=State.DEAD,
        )  # fmt: skip
        again = Retry(max=5, min_period=timedelta(days=1), max_period=timedelta(days=1))
        spec = Spec(action=effect, queue=QUEUES[number], retry=again)
        yield Share(
            Request(id=f"again-{number}", spec=spec), count // 1_000 // len(ERRORS), LIVE,
            fails=True,
        )  # fmt: skip
    for name, policy in (
        ("nightly", Cron(expression="30 2 * * *", timezone="Europe/Berlin")),
        ("hourly", Periodic(period=timedelta(hours=1))),
    ):
        spec = Spec(action=Python(function="noop"), policy=policy, start_at=far)
        yield Share(Request(id=name, spec=spec), max(100, count // 500), LIVE)


async def stock(stand: Stand, app: App, url: str, count: int) -> Mapping[str, str]:
    """Fill a database where nobody works yet; the settings by which its SQL tasks are found."""
    await fill(app, url, count, teller=lambda name: told_by(stand, name))
    documents = {f"{number:06d}": {"price": number} for number in range(ENTITIES)}
    await app.entities.put_many(ENTITY_KIND, documents)
    tasks = await stock_tasks(stand, url, max(1_000, count // 10))
    await stand.analyze(url)
    return tasks


async def fill(
    app: App, url: str, count: int, *, teller: Callable[[str], Told] = lambda _: tell_nobody
) -> None:
    """The actions alone."""
    shares = list(shares_of(count))
    firsts = await first_of_each(app, shares)
    for share, first in zip(shares, firsts, strict=True):
        name = first.meta.id
        await load_copies(
            app, url, first.meta.guid, share.copies,
            tables=share.tables, prefix=name, told=teller(name),
        )  # fmt: skip


def told_by(stand: Stand, name: str) -> Told:
    began = time.perf_counter()

    def told(loaded: int) -> None:
        stand.say(f"{loaded:,} of {name} after {time.perf_counter() - began:.1f} s")

    return told


async def first_of_each(app: App, shares: list[Share]) -> list[Action]:
    """Each as a worker leaves it, and moved."""
    async with App(settings=app.settings, observer=SilentObserver()) as working:

        @working.action(name="noop")
        async def noop(_attempt: AttemptContext, /, **_kwargs: object) -> None: ...

        @working.action(name="fail")
        async def fail(_attempt: AttemptContext, /, error: str) -> None:
            raise RuntimeError(error)

        stop = asyncio.Event()
        work = asyncio.create_task(working.work(stop))
        for share in shares:
            await app.scheduler.create(share.request)
        found = [await settled(app, share) for share in shares]
        stop.set()
        await work
    async with held(app, range(app.installation.shard_count)) as holdings:
        await app.store.work.move(holdings, limit=1_000)
    return found


async def settled(app: App, share: Share) -> Action:
    """The first action of a share when it is as it is to be copied."""
    end = time.monotonic() + WAIT_S
    while True:
        action = await app.scheduler.get(share.request.id or "")
        status = action.status
        if share.ends is not None:
            is_there = status.state is share.ends
        else:
            is_there = not share.fails or (status.failed > 0 and status.current_attempt is None)
        if is_there:
            return action
        if time.monotonic() > end:
            raise TimeoutError(f"{share.request.id} is not as it should be: {status}")
        await asyncio.sleep(LOOK_S)


# -- SQL tasks ------------------------------------------------------------------------------------

TASK_ROWS = """
INSERT INTO task (state, "group", input)
WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < {count})
SELECT CAST(
        CASE WHEN n % 100 = 0 THEN 'FAIL' WHEN n % 2 = 0 THEN 'STOP' ELSE 'DONE' END AS {kind}
    ),
    CASE WHEN n % 2 = 0 THEN 'mail' ELSE 'nightly' END, 'SELECT 1'
FROM number
"""


async def stock_tasks(stand: Stand, url: str, count: int) -> dict[str, str]:
    """A table of SQL tasks that nobody owns any more; where it is."""
    settings = task_settings(stand, url)
    dsn = settings["tasks.dsn"]
    await make_task_table(stand, settings)
    kind = "TEXT" if dsn.startswith("sqlite") else "state"
    text = TASK_ROWS.format(count=count, kind=kind)
    if dsn.startswith("sqlite"):
        with contextlib.closing(sqlite3.connect(dsn.removeprefix("sqlite:///"))) as connection:
            connection.execute(text)
            connection.commit()
        return settings
    postgres = await asyncpg.connect(dsn)
    try:
        await postgres.execute(text, timeout=600)
    finally:
        await postgres.close()
    return settings


def task_settings(stand: Stand, url: str) -> dict[str, str]:
    if url.startswith("sqlite"):
        folder = Path(tempfile.mkdtemp(dir=stand.folder))
        return {"tasks.dsn": f"sqlite:///{folder / 'tasks.db'}"}
    name = urlsplit(url).path.removeprefix("/")
    table = {"data": name, "user": "postgres", "superuser": True}
    return {"tasks.dsn": url, "tasks.conf": msgspec.json.encode([table]).decode()}


async def make_task_table(stand: Stand, settings: Mapping[str, str]) -> None:
    """By `gnomon tasks`, which makes its table when it begins."""
    flags = [
        part for path, value in settings.items() for part in (f"--{path.partition('.')[2]}", value)
    ]
    log = stand.folder / "console-tasks.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gnomon", "tasks", *flags,
            cwd=ROOT, stderr=output, stdout=output, start_new_session=True,
        )  # fmt: skip
    try:
        async with asyncio.timeout(WAIT_S):
            while READY not in log.read_bytes():
                if process.returncode is not None:
                    raise RuntimeError(f"gnomon tasks ended:\n{log.read_text()}")
                await asyncio.sleep(LOOK_S)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
