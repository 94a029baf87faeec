"""Failed actions out of rows, for both engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from gnomon.contracts.store import FailedAction
from gnomon.model.codec import read_attempt
from gnomon.model.need import function_need, kind_need, target_need

QUEUES_MAX = 50  # with dead actions; those of further ones are not looked at
OF_QUEUE_MIN = 20
ERROR_CHARS_MAX = 2_000
UNKNOWN = "unreadable"
_NAMES = msgspec.json.Decoder(tuple[str | None, str | None, str | None])


def part_of(limit: int, queues: Sequence[str]) -> int:
    """How many rows of each queue are looked at."""
    return max(OF_QUEUE_MIN, limit // max(len(queues), 1))


def failed_action(row: Any, *, is_dead: bool, moment: Callable[[Any], datetime]) -> FailedAction:
    """A row of `failures_dead` or `failures_retrying`."""
    attempt = read_attempt(row["last_attempt"])
    error = attempt.error if attempt is not None and attempt.error else row["reason"]
    ended_at = None if attempt is None or is_dead else attempt.ended_at
    return FailedAction(
        id=row["id"],
        queue=row["queue"],
        is_dead=is_dead,
        at=ended_at or moment(row["at"]),
        need=need_named(row["effect"]),
        error=(error or "no error was recorded")[:ERROR_CHARS_MAX],
    )


def need_named(effect: str | None) -> str:
    """The need of an effect by its names: type, function, target."""
    if effect is None:
        return UNKNOWN
    try:
        kind, function, target = _NAMES.decode(effect)
    except msgspec.MsgspecError:
        return UNKNOWN
    if function is not None and kind == "python":
        return function_need(function)
    if kind is None:
        return UNKNOWN
    return kind_need(kind) if target is None else target_need(kind, target)
