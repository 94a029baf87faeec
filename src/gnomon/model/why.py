"""Why something waits: a word for programs, a sentence for people, and what it was seen by."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec


class WaitReason(StrEnum):
    """What keeps it from beginning; the first that holds."""

    ENDED = "ended"
    PAUSED = "paused"
    RUNNING = "running"
    LAPSED = "lapsed"  # an attempt began, and nothing was heard of it when its time was over
    CLOCK = "clock"  # due by the clock of this machine, but not by that of the database
    RETRYING = "retrying"
    NOT_DUE = "not_due"
    EXPIRED = "expired"
    NO_WORKER = "no_worker"
    UNSERVED = "unserved"
    UNOWNED = "unowned"  # its shard is nobody's
    LIMIT = "limit"
    BEHIND = "behind"
    GROUP = "group"  # of a SQL task: its group lets no more start
    SOON = "soon"


class Why(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why it waits, or that it does not."""

    id: str
    code: WaitReason
    sentence: str
    at: datetime  # of the look, by the database's clock
    until: datetime | None = None  # when it changes by itself, if that is known
    facts: Mapping[str, Any] = msgspec.field(default_factory=dict)
