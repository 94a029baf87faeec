"""The worker process of the fault tests of stages: `python -m tests.fault.entity_program …`.

Five stages in a row over numbers, some called alone and some in passes, the last with an
`after_save` that writes a line into the receiver's log; two that undo each other's work on entities
with an `x`. Every save goes to Kafka.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import uvloop

from gnomon.app import App
from gnomon.config import Settings
from gnomon.config.targets import TargetTable
from gnomon.stages import EntityView, SavedVersion, Stage, Stages, Update
from gnomon.stages.config import StagesConfig
from tests.fault.program import Told, settings_of
from tests.fault.program import parse as parse_program

Document = dict[str, Any]
It = EntityView[Document, Any]
TOPIC = "saves"


def computed(document: Document) -> Document:
    """What the five stages make of a document, one after the other: the model."""
    n = document["n"]
    first = n + 1
    second = first * 2
    third = first + second
    fourth = n * third
    return {**document, "s1": first, "s2": second, "s3": third, "s4": fourth, "s5": fourth % 97}


class Numbered(Stage[Document, Any]):
    """A step of the five: whoever is not numbered is not its business."""

    batch = 8
    pause_s = 0.001

    def should_process(self, it: It) -> bool:
        return all(name in it.entity for name in self.watch)

    async def process(self, it: It) -> Update[Any]:
        await asyncio.sleep(self.pause_s)
        return Update({self.name: self.value(it.entity)})

    def value(self, it: Document) -> int:
        raise NotImplementedError


class First(Numbered):
    name, watch, writes = "s1", ("n",), ("s1",)

    def value(self, it: Document) -> int:
        return int(it["n"]) + 1


class Second(Numbered):
    name, watch, writes = "s2", ("s1",), ("s2",)
    fuse = True

    def value(self, it: Document) -> int:
        return int(it["s1"]) * 2


class Third(Numbered):
    name, watch, writes = "s3", ("s1", "s2"), ("s3",)
    fuse = True

    def value(self, it: Document) -> int:
        return int(it["s1"]) + int(it["s2"])


class Fourth(Numbered):
    name, watch, writes = "s4", ("n", "s3"), ("s4",)

    def value(self, it: Document) -> int:
        return int(it["n"]) * int(it["s3"])


class Fifth(Numbered):
    """Remembers in its state, and tells the receiver of each save."""

    name, watch, writes = "s5", ("s4",), ("s5",)
    fuse = True

    def __init__(self, log: Path) -> None:
        self._file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    async def process(self, it: It) -> Update[Any]:
        return Update({"s5": int(it.entity["s4"]) % 97}, state={"seen": it.entity["s4"]})

    async def after_save(self, saved: SavedVersion[Document, Any]) -> None:
        if not saved.deleted:
            os.write(self._file, f"{saved.id} {saved.version}\n".encode())


class Fighting(Stage[Document, None]):
    """Wants its own value in `x`, whatever the other one wants."""

    watch, writes = ("x",), ("x",)
    value = 0

    def should_process(self, it: EntityView[Document, None]) -> bool:
        return bool(it.entity.get("x", self.value) != self.value)

    async def process(self, it: EntityView[Document, None]) -> Update[None] | None:
        return Update({"x": self.value}) if self.should_process(it) else None


class Up(Fighting):
    name, value = "up", 1


class Down(Fighting):
    name, value = "down", 0


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.fault.entity_program", add_help=False)
    parser.add_argument("--kafka", default=None)
    parser.add_argument("--revision", type=int, default=1)
    own, rest = parser.parse_known_args(arguments)
    options = parse_program(rest)
    vars(options).update(vars(own))
    return options


def stage_settings(options: argparse.Namespace) -> Settings:
    relay = None if options.kafka is None else "cluster"
    config = StagesConfig(
        poll=timedelta(seconds=0.2),
        retry_min=timedelta(seconds=0.2),
        relay=relay,
        relay_topic=TOPIC,
        relay_timeout=timedelta(seconds=2),
    )
    targets = {}
    if options.kafka is not None:
        brief = timedelta(seconds=1)
        given = {
            "bootstrap": options.kafka, "connect_timeout": brief, "request_timeout": brief,
        }  # fmt: skip
        targets["cluster"] = TargetTable("cluster", "kafka", given)
    return replace(settings_of(options), stages=config, targets=targets)


def stages_of(app: App, options: argparse.Namespace) -> Stages[Any]:
    stages: Stages[Any] = Stages(app, "ad")
    if options.revision > 1:  # its walk shall last for a while
        First.revision, First.parallel, First.pause_s = options.revision, 2, 0.005
    stages.add(First(), Second(), Third(), Fourth(), Fifth(options.log), Up(), Down())
    return stages


async def work(options: argparse.Namespace) -> None:
    """Work until SIGTERM."""
    app = App(settings=stage_settings(options), observer=Told(), migrate=True)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with app:
        stages_of(app, options)
        print("working", flush=True)
        await app.work(stop)
    print("left", flush=True)


def main() -> int:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work(parse()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
