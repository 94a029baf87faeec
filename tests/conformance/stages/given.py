"""Stages to test with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from gnomon.stages import EntityView, SavedVersion, Stage, Stages, Update, Wake, bound_stage
from gnomon.stages.relay import RelayTarget
from gnomon.stages.stage_info import StageInfo, info_of
from gnomon.testing.stage_bench import StageBench

Document = dict[str, Any]
It = EntityView[Document, Any]
Ask = Callable[[It], bool | Wake]
Process = Callable[[It], Update[Any] | None]


def stage(
    name: str,
    *,
    watch: str = "",
    writes: str = "",
    ask: Ask = lambda _: True,
    process: Process = lambda _: None,
    after: Callable[[SavedVersion[Any, Any]], None] | None = None,
    **options: Any,
) -> Any:
    """A stage out of functions; it counts what it is asked and given."""

    class Made(Stage[Document, Any]):
        def __init__(self) -> None:
            self.asked: list[It] = []
            self.given: list[It] = []
            self.told: list[SavedVersion[Any, Any]] = []

        def should_process(self, it: It) -> bool | Wake:
            self.asked.append(it)
            return ask(it)

        async def process(self, it: It) -> Update[Any] | None:
            self.given.append(it)
            return process(it)

    if after is not None:

        async def after_save(self: Any, saved: SavedVersion[Any, Any]) -> None:
            after(saved)
            self.told.append(saved)

        Made.after_save = after_save  # type: ignore[method-assign]
    Made.name = name
    Made.watch = tuple(watch.split())
    Made.writes = tuple(writes.split())
    for option, value in options.items():
        setattr(Made, option, value)
    return Made()


def fuse_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mark all stages `fuse` that may be."""

    def marked(kind: str, made: Any) -> StageInfo:
        info = info_of(kind, made)
        return replace(info, fuse=not info.alongside and not info.debounce)

    monkeypatch.setattr(bound_stage, "info_of", marked)


def times_of(given: Sequence[It]) -> list[datetime]:
    """When a stage was called."""
    return [it.now for it in given]


def serve_anew(bench: StageBench, *stages: Any, relay: RelayTarget | None = None) -> None:
    """The same store, as a program with other stages finds it."""
    bench.attached.clear()
    bench.stages = Stages(bench, "ad", relay=relay)
    bench.stages.add(*stages)
    bench.restart()


async def settled(*stages: Any, entities: dict[str, Document], **options: Any) -> StageBench:
    """A bench where these entities have been looked after."""
    bench = StageBench("ad", *stages, **options)
    for entity_id, document in entities.items():
        await bench.put(entity_id, document)
    await bench.run_due()
    return bench
