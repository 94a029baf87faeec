"""How often a document is decoded and encoded on its way through stages, on both engines."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gnomon.app import App
from gnomon.config import DatabaseConfig, Settings
from gnomon.stages import EntityView, Stage, Stages, Update, Wake, codec

WAIT_S = 60.0
CHAIN = 4
Document = dict[str, Any]


class Link(Stage[Document, None]):
    """One of a chain, each by the field of the one before."""

    backfill = False
    source: str

    def should_process(self, it: EntityView[Document, None]) -> bool | Wake:
        return self.source in it.entity

    async def process(self, it: EntityView[Document, None]) -> Update[None]:
        return Update({self.name: it.entity[self.source] + 1})


class UnaskedLink(Link):
    """It has no `should_process` of its own."""

    should_process = Stage.should_process


class PatchLink(Link):
    """It answers with a JSON patch."""

    async def process(self, it: EntityView[Document, None]) -> Update[None]:
        value = it.entity[self.source] + 1
        return Update([{"op": "add", "path": f"/{self.name}", "value": value}])


@dataclass
class Typed:
    """Documents as they are declared."""

    s0: int
    s1: int | None = None
    s2: int | None = None
    s3: int | None = None
    s4: int | None = None


class TypedLink(Stage[Typed, None]):
    """One of a chain over declared documents."""

    backfill = False
    source: str

    def should_process(self, it: EntityView[Typed, None]) -> bool:
        return getattr(it.entity, self.source) is not None

    async def process(self, it: EntityView[Typed, None]) -> Update[None]:
        return Update({self.name: getattr(it.entity, self.source) + 1})


def chain(kind: type[Stage[Any, Any]], *, fused: bool) -> list[Stage[Any, Any]]:
    made = []
    for number in range(1, CHAIN + 1):
        name, source = f"s{number}", f"s{number - 1}"
        fields: dict[str, Any] = {"name": name, "source": source, "fuse": fused}
        made.append(type(name, (kind,), fields | {"watch": (source,), "writes": (name,)})())
    return made


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> DatabaseConfig:
    if request.param == "sqlite":
        return DatabaseConfig(url=f"sqlite:///{tmp_path / 'gnomon.db'}", shard_count=4)
    dsn, schema = request.getfixturevalue("installed_schema")
    return DatabaseConfig(url=dsn, schema=schema, shard_count=4)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the codec of documents was called."""
    calls: Counter[str] = Counter()
    decode, encode = codec.EntityCodec.decode, codec._encode

    def decoded(*args: Any) -> Any:
        calls["decode"] += 1
        return decode(*args)

    def encoded(*args: Any) -> Any:
        calls["encode"] += 1
        return encode(*args)

    monkeypatch.setattr(codec.EntityCodec, "decode", decoded)
    monkeypatch.setattr(codec, "_encode", encoded)
    return calls


@asynccontextmanager
async def working(
    database: DatabaseConfig, stages: list[Stage[Any, Any]]
) -> AsyncIterator[Stages[Any]]:
    async with App(settings=Settings(database=database), migrate=True) as app:
        ads: Stages[Any] = Stages(app, "ad")
        ads.add(*stages)
        stop = asyncio.Event()
        at_work = asyncio.create_task(app.work(stop))
        try:
            yield ads
        finally:
            stop.set()
            await at_work


async def at_rest(stages: Stages[Any], entity_id: str, version: int) -> None:
    """Wait until it has come to a version, and is in no queue."""
    async with asyncio.timeout(WAIT_S):
        while (await stages.entities.get("ad", entity_id)).version < version:
            await asyncio.sleep(0.01)
        while (await stages.explain(entity_id)).stages:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("fused", [False, True], ids=["alone", "fused"])
@pytest.mark.parametrize(
    ("kind", "first"),
    [
        # Each stage is called with a value of its own. The engine has one, decoded once: patches
        # make all that follow. All four are asked about what is new, and share one for that; if it
        # is typed, one more is there to compare it with.
        pytest.param(UnaskedLink, CHAIN + 1, id="not asked"),
        pytest.param(Link, CHAIN + 2, id="asked"),
        pytest.param(PatchLink, CHAIN + 2, id="JSON patch"),
        pytest.param(TypedLink, CHAIN + 3, id="typed"),
    ],
)
async def test_a_document_is_decoded_once_for_each_who_reads_it(
    database: DatabaseConfig,
    counted: Counter[str],
    kind: type[Stage[Any, Any]],
    first: int,
    *,
    fused: bool,
) -> None:
    """A new document through a chain of four, and a change of it; encoded once for each save."""
    async with working(database, chain(kind, fused=fused)) as stages:
        await stages.put("e", {"s0": 1})
        await at_rest(stages, "e", 1 + CHAIN)
        assert {"decode": first, "encode": 1 + CHAIN} == counted

        counted.clear()
        await stages.patch("e", {"s0": 11})  # it is decoded for that, too
        await at_rest(stages, "e", 2 * (1 + CHAIN))
        assert {"decode": 1 + 1 + CHAIN, "encode": 1 + CHAIN} == counted
        assert {f"s{n}": 11 + n for n in range(CHAIN + 1)} == await stages.get("e")
