"""What looks wrong, or is worth knowing, about the stages of a program: told when it starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gnomon.contracts.observer import Observer
from gnomon.model.stage.graph import Graph
from gnomon.stages.stage_info import StageInfo


def announce(
    observer: Observer, graph: Graph, infos: Sequence[StageInfo], known: Mapping[str, int | None]
) -> None:
    """Circles, shared fields, stages that write what they watch, and those that are out of date:
    `known` has the revisions of the register."""
    for info in infos:
        before = known.get(info.name)
        if before is not None and before > info.revision:
            observer.event("stage_outdated", stage=info.name, revision=info.revision, known=before)
    for circle in graph.circles:
        observer.event("stages_may_loop", stages=", ".join(circle))
    for one, other in graph.shared:
        observer.event("stages_share_fields", stages=f"{one}, {other}")
    for info in infos:
        if info.reach.own_echo:
            fields = ", ".join(path or "everything" for path in info.reach.own_echo)
            observer.event("stage_own_echo", stage=info.name, fields=fields)
