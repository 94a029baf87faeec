"""A mixed fleet: not every worker serves everything, and what one serves changes when it starts
anew, as in a rolling deploy and in one that is rolled back."""

from __future__ import annotations

import random
from dataclasses import replace

from gnomon.model.spec import Effect, Http, Mock, Python
from gnomon.worker import WorkerConfig
from tests.simulation.drawing import QUEUES
from tests.simulation.history import History

MIXED_WORLDS = (0.3, 0.15, 0.55)  # by effects, by queues, not at all
KINDS: tuple[type[Effect], ...] = (Mock, Python, Http)
# No two lack the same: of every kind there is somebody who serves it.
LACKING: dict[str, type[Effect]] = {"w1": Python, "w2": Mock, "w3": Http}
LACKS = 0.7  # so often it does, when it starts
REFUSED = {"w1": "bulk", "w2": "default"}  # of the queues


class Fleet:
    """Who serves what. Drawn apart, so that the worlds of other seeds stay what they are."""

    def __init__(self, seed: int, history: History) -> None:
        self._dice = random.Random(f"mixed {seed}")
        self._history = history
        # Not both at once: of each action there must be somebody who serves it.
        self._is_by_kind, self._is_by_queue = self._dice.choices(
            ((True, False), (False, True), (False, False)), MIXED_WORLDS
        )[0]

    @property
    def refused_queues(self) -> frozenset[str]:
        """Those that some worker may refuse."""
        return frozenset(REFUSED.values() if self._is_by_queue else ())

    def config_of(self, node: str, config: WorkerConfig) -> WorkerConfig:
        """The settings of a worker which starts now: it may refuse a queue."""
        queue = REFUSED.get(node)
        if not self._is_by_queue or queue is None or self._dice.random() > LACKS:
            return config
        self._history.reach("a worker refuses a queue")
        if self._dice.random() < 0.5:
            return replace(config, queues={queue: 0})
        return replace(config, only_queues=tuple(sorted({*QUEUES} - {queue})))

    def kinds_of(self, node: str) -> frozenset[type[Effect]]:
        """The effects that a worker serves which starts now."""
        if not self._is_by_kind or self._dice.random() > LACKS:
            return frozenset(KINDS)
        self._history.reach("a worker lacks something")
        return frozenset(KINDS) - {LACKING[node]}
