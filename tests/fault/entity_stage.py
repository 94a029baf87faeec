"""Where a fault test of stages plays: a database, worker processes, a cluster, and writers."""

from __future__ import annotations

import asyncio
import json
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

from gnomon.app import App
from gnomon.executors.kafka import KafkaTarget
from gnomon.stages import Stages
from gnomon.stages.codec import decode_document
from gnomon.stages.entities import Entities
from tests.fault.entity_program import TOPIC, computed, parse, stage_settings
from tests.fault.stage import Stage, until
from tests.fixtures.kafka import consumed
from tests.fixtures.processes import ChildProcess

PAGE = 1_000


class Saves:
    """What the cluster got: the versions of each entity in the order of their first arrival."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self.versions: defaultdict[str, list[int]] = defaultdict(list)
        self.authors: dict[tuple[str, int], str] = {}
        self.count = 0

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Saves]:
        """Listen while the block goes on: the cluster drops old records."""
        task = asyncio.create_task(self._listen())
        try:
            yield self
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _listen(self) -> None:
        options = KafkaTarget(name="cluster", bootstrap=self._bootstrap).options()
        async with aclosing(consumed(options, TOPIC)) as records:
            async for record in records:
                message = json.loads(record.value or b"{}")
                assert f"{message['kind']}/{message['id']}".encode() == record.key
                self._note(message["id"], message["version"], message["author"])

    def _note(self, entity_id: str, version: int, author: str) -> None:
        self.count += 1
        if version not in self.versions[entity_id]:
            self.versions[entity_id].append(version)
            self.authors[entity_id, version] = author

    def gaps(self, latest: dict[str, int]) -> list[str]:
        """Entities whose versions did not come as 1, 2, 3, … up to the latest."""
        return [
            f"{entity_id}: {self.versions[entity_id]} of {version}"
            for entity_id, version in latest.items()
            if self.versions[entity_id] != list(range(1, version + 1))
        ]

    async def complete(self, latest: dict[str, int], *, timeout_s: float) -> None:
        """Wait until all versions have come."""
        try:
            await until(lambda: not self.gaps(latest), "every version", timeout_s=timeout_s)
        except AssertionError:
            gaps = self.gaps(latest)
            raise AssertionError(f"{len(gaps)} with gaps: {gaps[:5]}") from None

    def of(self, stage: str) -> set[tuple[str, int]]:
        """The saves that a stage made."""
        return {place for place, author in self.authors.items() if author == f"stage:{stage}"}


class EntityStage:
    """The stages of `entity_program` on a database."""

    def __init__(self, stage: Stage, bootstrap: str | None = None) -> None:
        self._stage = stage
        self._bootstrap = bootstrap
        self.wanted: dict[str, int] = {}  # the last `n` that was acknowledged

    def _where(self) -> list[str]:
        stage = self._stage
        where = ["--url", stage.url, "--schema", stage.schema, "--log", str(stage.log)]
        return where + (["--kafka", self._bootstrap] if self._bootstrap else [])

    async def worker(self, *options: str) -> ChildProcess:
        """Start a worker process and wait until it has opened the store."""
        child = self._stage.start_program("tests.fault.entity_program", *self._where(), *options)
        await asyncio.to_thread(child.wait_for_line, "^working$")
        return child

    @asynccontextmanager
    async def app(self) -> AsyncIterator[tuple[App, Entities]]:
        """The test's own way to the entities; it serves no stages."""
        async with App(settings=stage_settings(parse(self._where())), migrate=True) as app:
            yield app, Stages(app, "ad").entities

    # -- writers ----------------------------------------------------------------------------------

    async def create(self, entities: Entities, count: int) -> None:
        self.wanted |= {f"e{number}": number for number in range(count)}
        await entities.put_many("ad", {name: {"n": n} for name, n in self.wanted.items()})

    @asynccontextmanager
    async def changing(self, entities: Entities, dice: random.Random) -> AsyncIterator[None]:
        """Change one after the other while the block goes on; the last one has its answer then."""
        names, is_over = sorted(self.wanted), asyncio.Event()

        async def keep_changing() -> None:
            while not is_over.is_set():
                await self.change(entities, dice.choice(names), dice.randrange(10_000))
                await asyncio.sleep(0.002)

        async with asyncio.TaskGroup() as group:
            group.create_task(keep_changing())
            try:
                yield
            finally:
                is_over.set()

    async def change(self, entities: Entities, name: str, n: int) -> None:
        await entities.patch("ad", name, {"n": n})
        self.wanted[name] = n

    # -- witnesses --------------------------------------------------------------------------------

    async def wrong(self, entities: Entities) -> list[str]:
        """Entities that are not where the model says."""
        return [
            f"{name} v{version}: {document}"
            for name, (version, document) in (await documents(entities)).items()
            if name in self.wanted and document != computed({"n": self.wanted[name]})
        ]

    async def is_right(self, entities: Entities, name: str) -> bool:
        """Whether one entity is where the model says."""
        found = decode_document((await entities.get("ad", name)).doc or "{}")
        return found == computed({"n": self.wanted[name]})

    async def all_right(self, entities: Entities, *, timeout_s: float) -> None:
        async def is_right() -> bool:
            return not await self.wrong(entities)

        try:
            await until(is_right, "end of the work", timeout_s=timeout_s, poll_s=0.5)
        except AssertionError:
            wrong = await self.wrong(entities)
            waiting = [await entities.explain("ad", line.split(" ")[0]) for line in wrong[:3]]
            raise AssertionError(f"{len(wrong)} wrong: {wrong[:3]} {waiting}") from None

    def told(self) -> set[tuple[str, int]]:
        """The saves that the receiver of `after_save` heard of."""
        if not self._stage.log.exists():
            return set()
        lines = self._stage.log.read_text().splitlines()
        return {(name, int(version)) for name, version in (line.split(" ") for line in lines)}


async def documents(entities: Entities) -> dict[str, tuple[int, dict[str, Any]]]:
    """All entities: version and document."""
    found: dict[str, tuple[int, dict[str, Any]]] = {}
    after: str | None = None
    while True:
        page = await entities.list("ad", after=after, limit=PAGE)
        for entity in page:
            found[entity.id] = (entity.version, decode_document(entity.doc or "{}"))
        if len(page) < PAGE:
            return found
        after = page[-1].id


async def at_rest(entities: Entities) -> bool:
    """Whether no stage has anything to do."""
    return not any(
        record.waiting or record.background or record.sleeping for record in await entities.stages()
    )


def kill_points(total: int, count: int, dice: random.Random) -> Iterable[int]:
    """Places in a course of so many steps."""
    step = int(total * 0.8 / count)
    return [number * step - dice.randrange(step // 2) for number in range(1, count + 1)]


def names_of(rows: Sequence[Any]) -> set[str]:
    return {row.entity_id for row in rows}
