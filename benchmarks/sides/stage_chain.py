"""The stages that are measured: four in a row, each a function of the field before its own."""

from __future__ import annotations

from typing import Any, ClassVar

from gnomon.stages import EntityView, Stage, Update

Document = dict[str, Any]
CHAIN = 4
BATCH = 64
PADDING = {"title": "x" * 200, "text": "y" * 600}  # a document of about a kilobyte


class Link(Stage[Document, None]):
    """One of them; what it adds is nothing, what it costs is the engine."""

    backfill = False
    batch = BATCH
    source: ClassVar[str]

    def should_process(self, it: EntityView[Document, None]) -> bool:
        return self.source in it.entity

    async def process(self, it: EntityView[Document, None]) -> Update[None]:
        return Update({self.name: it.entity[self.source] + 1})


def chain(*, fused: bool) -> list[Stage[Document, None]]:
    """The four, in order."""
    made: list[Stage[Document, None]] = []
    for number in range(1, CHAIN + 1):
        name, source = f"s{number}", f"s{number - 1}" if number > 1 else "n"
        fields: dict[str, Any] = {"name": name, "source": source, "fuse": fused}
        fields |= {"watch": (source,), "writes": (name,)}
        made.append(type(f"Link{number}", (Link,), fields)())
    return made


class Remote(Link):
    """The one that another process serves."""

    name, source, watch, writes = "s1", "n", ("n",), ("s1",)
    batch = 256


def document(n: int) -> Document:
    return {"n": n, **PADDING}
