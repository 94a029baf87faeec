"""The laws of a stage, checked on examples: pure, settled after one step, as declared."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from gnomon.model.stage.patch import apply_patch
from gnomon.model.stage.paths import WHOLE, changed_paths, join, meet, outside
from gnomon.stages.codec import decode_document, encode_document
from gnomon.stages.stage import KEEP, EntityView, Stage, Update, Wake
from gnomon.stages.stage_info import info_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = timedelta(hours=1)
EXAMPLE = "example"  # the kind and the id of all of them


class LawBrokenError(AssertionError):
    """A stage breaks a law: which one, on which example, and how."""


@dataclass(frozen=True, slots=True)
class Example:
    """An entity, and the stage's state beside it."""

    entity: Mapping[str, Any]
    state: Any = None
    now: datetime = NOW


def check_stage(
    stage: Stage[Any, Any], examples: Sequence[Mapping[str, Any] | Example] | Any
) -> None:
    """Check the laws on each example, or on what a Hypothesis strategy draws.

    1. Called twice, it answers the same. 2. Applied and called again, it changes nothing more.
    3. When `should_process` says no, `process` changes nothing. 4. It reads within `watch` and
    writes within `writes`. 5. An hour later, and nothing else, the patch is the same (no clock in
    the data) unless a timer was asked for in between. Errors: LawBrokenError.
    """
    info_of(EXAMPLE, stage)
    if hasattr(examples, "example") and hasattr(examples, "map"):
        _check_strategy(stage, examples)
        return
    for given in examples:
        example = given if isinstance(given, Example) else Example(given)
        asyncio.run(_check(stage, example))


def _check_strategy(stage: Stage[Any, Any], strategy: Any) -> None:
    from hypothesis import given

    @given(strategy)
    def check(drawn: Any) -> None:
        asyncio.run(_check(stage, drawn if isinstance(drawn, Example) else Example(drawn)))

    check()


async def _check(stage: Stage[Any, Any], example: Example) -> None:
    first = await _process(stage, example)
    again = await _process(stage, example)
    if first != again:
        raise _broken("called twice, it answers differently", example, first, again)
    document = dict(example.entity)
    after = apply_patch(document, first.patch)
    _check_writes(stage, example, document, after)
    state = example.state if first.state is KEEP else first.state
    settled = await _process(stage, Example(after, state, example.now))
    paths = changed_paths(after, apply_patch(after, settled.patch))
    if paths:
        raise _broken(f"applied and called again, it changes {', '.join(paths)}", example, settled)
    wanted = stage.should_process(_item(example, dict(example.entity)))
    if wanted is False and changed_paths(document, after):
        raise _broken("should_process says no, but process changes the entity", example, first)
    asked_for = wanted.at if isinstance(wanted, Wake) else None
    await _check_clock(stage, example, first, asked_for)
    await _check_reads(stage, example)


async def _check_clock(
    stage: Stage[Any, Any], example: Example, first: Update[Any], asked_for: datetime | None
) -> None:
    later = example.now + LATER
    moments = [first.wake, asked_for]
    if any(isinstance(at, datetime) and at <= later for at in moments):
        return  # it has asked to look again by then
    moved = await _process(stage, Example(example.entity, example.state, later))
    if moved.patch != first.patch:
        raise _broken("an hour later it writes something else", example, first, moved)


def _check_writes(
    stage: Stage[Any, Any],
    example: Example,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
) -> None:
    foreign = outside(changed_paths(before, after), info_of(EXAMPLE, stage).reach.writes)
    if foreign:
        raise _broken(f"it writes {', '.join(foreign)} outside `writes`", example)


async def _check_reads(stage: Stage[Any, Any], example: Example) -> None:
    reach = info_of(EXAMPLE, stage).reach
    if not reach.watch or WHOLE in reach.watch:
        return
    read: set[str] = set()
    view = ObservedDocument(dict(example.entity), WHOLE, read.add)
    stage.should_process(_item(example, view))
    await stage.process_many([_item(example, view)])
    allowed = (*reach.watch, *reach.writes)
    foreign = sorted(path for path in read if not meet([path], allowed))
    if foreign:
        raise _broken(f"it reads {', '.join(foreign)} outside `watch`", example)


async def _process(stage: Stage[Any, Any], example: Example) -> Update[Any]:
    entity = decode_document(encode_document(dict(example.entity)))
    [answer] = await stage.process_many([_item(example, entity)])
    if isinstance(answer, Exception):
        raise answer
    return answer or Update()


def _item(example: Example, entity: Any) -> EntityView[Any, Any]:
    return EntityView(
        kind=EXAMPLE,
        id=EXAMPLE,
        version=1,
        entity=entity,
        state=example.state,
        now=example.now,
        reasons=frozenset(),
        attempt=1,
    )


def _broken(problem: str, example: Example, *answers: object) -> LawBrokenError:
    shown = "".join(f"\n  answered {answer}" for answer in answers)
    return LawBrokenError(f"{problem}\n  entity {dict(example.entity)}{shown}")


class ObservedDocument(dict[str, Any]):
    """A document that notes which of its leaves are read."""

    def __init__(self, document: Mapping[str, Any], path: str, note: Callable[[str], None]) -> None:
        super().__init__(document)
        self._path = path
        self._note = note

    def _seen(self, key: str, value: Any) -> Any:
        here = join(self._path, key)
        if isinstance(value, dict):
            return ObservedDocument(value, here, self._note)
        self._note(here)
        return value

    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(key)
        return self._seen(key, value)

    def get(self, key: str, default: Any = None) -> Any:
        if key in self:
            return self._seen(key, super().__getitem__(key))
        self._note(join(self._path, key))
        return default

    def items(self) -> Any:
        return [(key, self[key]) for key in self]

    def values(self) -> Any:
        return [self[key] for key in self]

    def __iter__(self) -> Iterator[str]:
        return super().__iter__()


__all__ = ["Example", "LawBrokenError", "check_stage"]
