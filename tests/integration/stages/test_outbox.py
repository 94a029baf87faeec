"""Workers whose receivers are slow or away, on both engines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gnomon.app import App
from gnomon.cli.doctor import late_sinks
from gnomon.config import DatabaseConfig, Settings, StagesConfig, WorkerConfig
from gnomon.contracts.store import Finding
from gnomon.stages import EntityView, Quarantine, SavedVersion, Stage, Stages, Update
from gnomon.stages.relays import FunctionRelay

WAIT_S = 60.0
CONFIG = StagesConfig(
    poll=timedelta(milliseconds=50),
    outbox_hold=timedelta(milliseconds=300),
    outbox_alarm=timedelta(milliseconds=600),
)
Document = dict[str, Any]


class Seen:
    """Remembers events, and the gauges as they are."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.gauges: dict[tuple[str, ...], float] = {}

    def event(self, name: str, /, **fields: object) -> None:
        self.events.append(name)

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        self.gauges[name, *labels.values()] = value

    def count(self, name: str, value: int = 1, /, **labels: str) -> None: ...

    def observe(self, name: str, value: float, /, **labels: str) -> None: ...


class Receiver:
    """A function that takes saves, slowly, or not at all."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.is_up = True
        self.told: list[str] = []

    async def __call__(self, saved: SavedVersion[Any, Any]) -> None:
        if not self.is_up:
            raise ConnectionError("down")
        await self.open.wait()
        self.told.append(saved.key)


class Copy(Stage[Document, Any]):
    """Copies `n`, and tells of it."""

    name, watch, writes = "copy", ("n",), ("m",)
    backfill = False

    def __init__(self) -> None:
        self.given: list[str] = []
        self.told: list[str] = []
        self.refused: set[str] = set()

    async def process(self, it: EntityView[Document, Any]) -> Update[Any]:
        self.given.append(it.id)
        return Update({"m": it.entity["n"]})

    async def after_save(self, saved: SavedVersion[Document, Any]) -> None:
        if saved.id in self.refused:
            raise Quarantine("a person, please")
        self.told.append(saved.id)


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> DatabaseConfig:
    if request.param == "sqlite":
        return DatabaseConfig(url=f"sqlite:///{tmp_path / 'gnomon.db'}", shard_count=4)
    dsn, schema = request.getfixturevalue("installed_schema")
    return DatabaseConfig(url=dsn, schema=schema, shard_count=4)


@asynccontextmanager
async def working(
    database: DatabaseConfig, receiver: Receiver, copy: Copy, seen: Seen
) -> AsyncIterator[tuple[App, Stages[Document]]]:
    settings = Settings(
        database=database, worker=WorkerConfig(poll=timedelta(milliseconds=100)), stages=CONFIG
    )
    async with App(settings=settings, observer=seen, migrate=True) as app:
        stages: Stages[Document] = Stages(app, "ad", relay=FunctionRelay(receiver))
        stages.add(copy)
        stop = asyncio.Event()
        at_work = asyncio.create_task(app.work(stop))
        try:
            yield app, stages
        finally:
            receiver.open.set()
            stop.set()
            await at_work


async def until(predicate: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not predicate():
            await asyncio.sleep(0.01)


async def finding_with(app: App, text: str) -> Finding:
    """What the doctor says of the one sink that is late, as soon as it says `text`."""
    async with asyncio.timeout(WAIT_S):
        while True:
            [finding] = late_sinks(
                await app.store.outbox.backlog(),
                now=await app.store.installation.now(),
                alarm=CONFIG.outbox_alarm,
            )
            if text in finding.detail:
                return finding
            await asyncio.sleep(0.01)


async def test_a_receiver_that_takes_its_time_delays_no_stage(database: DatabaseConfig) -> None:
    """`after_save` of many entities comes while the relay has not answered once."""
    receiver, copy = Receiver(), Copy()
    names = {f"e{n}" for n in range(20)}
    async with working(database, receiver, copy, Seen()) as (_, stages):
        for name in sorted(names):
            await stages.put(name, {"n": 1})
        await until(lambda: names == set(copy.told))
        assert [] == receiver.told
        receiver.open.set()
        await until(lambda: 2 * len(names) == len(set(receiver.told)))


async def test_a_broker_that_is_down_stops_the_background_lane_and_raises_the_alarm(
    database: DatabaseConfig,
) -> None:
    """Saves go on; a walk waits; all is told, the doctor finds it, and all of it recovers."""
    receiver, copy, seen = Receiver(), Copy(), Seen()
    receiver.open.set()
    receiver.is_up = False
    async with working(database, receiver, copy, seen) as (app, stages):
        await stages.put("first", {"n": 1})
        await until(lambda: "background_held" in seen.events)
        await until(lambda: "outbox_late" in seen.events)
        assert seen.gauges["outbox_age_seconds", "relay"] > 0.6
        await until(lambda: ["first"] == copy.given)
        copy.given.clear()
        await stages.backfill("copy")
        await stages.put("fresh", {"n": 1})
        await until(lambda: "fresh" in copy.told)
        await asyncio.sleep(5 * CONFIG.poll.total_seconds())  # time in which a walk would go on
        assert ["fresh"] == copy.given
        # Why is written after the try, and later yet where somebody holds the entity meanwhile.
        finding = await finding_with(app, "down")
        assert ("outbox_age", "relay") == (finding.rule, finding.subject)
        assert "saves that wait: 4," in finding.detail
        receiver.is_up = True
        await until(lambda: {"first", "fresh"} == set(copy.given))
        await until(lambda: {"outbox_recovered", "background_resumed"} <= set(seen.events))
        await until(lambda: 4 == len(receiver.told))
        assert 0.0 == seen.gauges["background_held",]


async def test_a_save_that_a_stage_does_not_take_waits_for_a_person(
    database: DatabaseConfig,
) -> None:
    """It grows old without an alarm, the doctor counts it, and `release` sends it at once."""
    receiver, copy, seen = Receiver(), Copy(), Seen()
    receiver.open.set()
    copy.refused = {"bad"}
    async with working(database, receiver, copy, seen) as (app, stages):
        await stages.put("bad", {"n": 1})
        await until(lambda: "outbox_quarantined" in seen.events)
        await stages.put("bad", {"n": 2})
        await stages.put("good", {"n": 1})
        await until(lambda: 6 == len(receiver.told) and ["good"] == copy.told)
        told = len(seen.events)  # on a slow machine a save may have been late before this
        await asyncio.sleep(2 * CONFIG.outbox_alarm.total_seconds())  # in which it would be told of
        assert "outbox_late" not in seen.events[told:]
        finding = await finding_with(app, "quarantined: 2")
        assert "copy" == finding.subject
        assert "saves that wait: 2, quarantined: 2, the oldest for " in finding.detail
        assert finding.detail.endswith("; Quarantine: a person, please")
        copy.refused.clear()
        assert 1 == await stages.entities.release("ad", "bad")
        await until(lambda: ["good", "bad", "bad"] == copy.told)
