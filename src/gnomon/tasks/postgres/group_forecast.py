"""Rows that will soon be taken, as they were when they were looked at.

With that a session sends the next input together with the end of the task before. It is only a
guess: the statement that takes a row takes it only if it is still the same version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gnomon.model.task import GroupKey

INPUT_BYTES_MAX = 500  # longer ones are not worth their room: `window_…` leaves them out
INPUTS_MAX = 20_000


class ForeseenTask(NamedTuple):
    """A row in the server's words: what it sends, its version, and until when it may be begun."""

    input: bytes
    version: bytes
    look: bytes  # what it says besides, as `TableAccess.looks` knows it
    expiry_s: bytes


class GroupForecast:
    """What the last look at each group found; groups that were looked at long ago are forgotten."""

    def __init__(self) -> None:
        self._inputs: dict[GroupKey, dict[int, ForeseenTask]] = {}
        self._count = 0

    def note(self, key: GroupKey, inputs: Mapping[int, ForeseenTask]) -> None:
        """What was found replaces what was known of a group."""
        self._count -= len(self._inputs.pop(key, ()))
        if inputs:
            self._inputs[key] = dict(inputs)
            self._count += len(inputs)
        while self._count > INPUTS_MAX:
            self._count -= len(self._inputs.pop(next(iter(self._inputs))))

    def take(self, key: GroupKey, task_id: int) -> ForeseenTask | None:
        """What is known of a row, once."""
        group = self._inputs.get(key)
        foreseen = None if group is None else group.pop(task_id, None)
        self._count -= foreseen is not None
        return foreseen
