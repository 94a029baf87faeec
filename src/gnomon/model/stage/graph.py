"""Who can wake whom: the graph of stages by what they write and watch.

Used to order the stages of one entity, so that each sees the work of those before it, and to warn
of circles and shared fields when a program starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gnomon.model.stage.paths import meet


@dataclass(frozen=True, slots=True)
class Reach:
    """What a stage watches and may write of entities of its kind. An empty `watch` is all."""

    kind: str
    watch: tuple[str, ...]
    writes: tuple[str, ...]

    @property
    def own_echo(self) -> tuple[str, ...]:
        """What it may write of what it watches; its own changes do not wake it all the same."""
        return tuple(path for path in self.writes if self.is_woken_by((path,)))

    def is_woken_by(self, paths: Sequence[str]) -> bool:
        """Whether a change of these paths is its business."""
        return not self.watch or meet(self.watch, paths)


@dataclass(frozen=True, slots=True)
class Graph:
    """What follows from all stages together."""

    rank: Mapping[str, int]  # a stage comes after those that can wake it; circles share no order
    before: Mapping[str, frozenset[str]]  # all whose work can lead to a stage's, circles left out
    circles: tuple[tuple[str, ...], ...]  # stages that can wake each other for ever
    circling: frozenset[str]  # all of these
    shared: tuple[tuple[str, str], ...]  # pairs that may write the same field


def build_graph(stages: Mapping[str, Reach]) -> Graph:
    """Look at all stages at once."""
    names = sorted(stages)
    wakes = {
        name: [
            other
            for other in names
            if other != name
            and stages[name].writes
            and stages[name].kind == stages[other].kind
            and stages[other].is_woken_by(stages[name].writes)
        ]
        for name in names
    }
    components = _components(names, wakes)  # in reverse order: who is woken comes first
    rank = {name: place for place, part in enumerate(reversed(components)) for name in part}
    circles = tuple(tuple(sorted(part)) for part in reversed(components) if len(part) > 1)
    return Graph(
        rank=rank,
        before={name: _before(name, wakes, rank) for name in names},
        circles=circles,
        circling=frozenset(name for circle in circles for name in circle),
        shared=tuple(
            (one, other)
            for place, one in enumerate(names)
            for other in names[place + 1 :]
            if stages[one].kind == stages[other].kind
            and meet(stages[one].writes, stages[other].writes)
        ),
    )


def _before(
    name: str, wakes: Mapping[str, Sequence[str]], rank: Mapping[str, int]
) -> frozenset[str]:
    upstream: set[str] = set()
    waiting = [name]
    while waiting:
        woken = waiting.pop()
        wakers = {waker for waker in wakes if woken in wakes[waker]} - upstream
        upstream |= wakers
        waiting += wakers
    return frozenset(waker for waker in upstream if rank[waker] < rank[name])


def _components(names: Sequence[str], wakes: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Strongly connected components (Tarjan, without recursion), sinks first."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    components: list[list[str]] = []
    for start in names:
        if start in index:
            continue
        way = [(start, iter(wakes[start]))]
        index[start] = low[start] = len(index)
        stack.append(start)
        while way:
            name, rest = way[-1]
            for other in rest:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    way.append((other, iter(wakes[other])))
                    break
                if other in stack:
                    low[name] = min(low[name], index[other])
            else:
                way.pop()
                if way:
                    low[way[-1][0]] = min(low[way[-1][0]], low[name])
                if low[name] == index[name]:
                    place = stack.index(name)
                    components.append(stack[place:])
                    del stack[place:]
    return components
