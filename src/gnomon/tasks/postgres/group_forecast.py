"""Inputs of rows that will soon be taken, as they were when the rows were looked at.

With them a session sends the next input together with the end of the task before. They are only a
guess: the statement that takes a row says whether its input is still the same.
"""

from __future__ import annotations

from collections.abc import Mapping

from gnomon.model.task import GroupKey

INPUT_BYTES_MAX = 500  # longer ones are not worth their room: `window_…` leaves them out
INPUTS_MAX = 20_000


class GroupForecast:
    """What the last look at each group found; groups that were looked at long ago are forgotten."""

    def __init__(self) -> None:
        self._inputs: dict[GroupKey, dict[int, bytes]] = {}
        self._count = 0

    def note(self, key: GroupKey, inputs: Mapping[int, bytes]) -> None:
        """What was found replaces what was known of a group."""
        self._count -= len(self._inputs.pop(key, ()))
        if inputs:
            self._inputs[key] = dict(inputs)
            self._count += len(inputs)
        while self._count > INPUTS_MAX:
            self._count -= len(self._inputs.pop(next(iter(self._inputs))))

    def take(self, key: GroupKey, task_id: int) -> bytes | None:
        """The input of a row, once."""
        group = self._inputs.get(key)
        task_input = None if group is None else group.pop(task_id, None)
        self._count -= task_input is not None
        return task_input
