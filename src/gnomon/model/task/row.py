"""A task as its owner sees it."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec


class GroupKey(msgspec.Struct, frozen=True, order=True, gc=False):
    """What `max` counts in: the group together with where it is sent."""

    group: str
    remote: str | None = None


class DueTask(msgspec.Struct, frozen=True, gc=False):
    """A due row in PLAN: what decides when it may start, and on which session."""

    id: int
    max: int
    count: int = 0
    live_s: float = 0.0

    @property
    def allowed_beside(self) -> int:
        """How many others of its group may be performed while it starts."""
        return max(self.max, 0)


class Task(msgspec.Struct, frozen=True):
    """A task in WORK: what is needed to perform it and to write its result."""

    id: int
    key: GroupKey
    input: str
    plan: datetime
    start: datetime
    max: int
    count: int
    live_s: float
    timeout: timedelta
    save: bool
    header: bool
    string: bool
    delimiter: str
    quote: str
    escape: str
    null: str


class Outcome(msgspec.Struct, frozen=True):
    """How a task ended: its result text (None: nothing at all) and its error, if any."""

    output: str | None
    error: str | None = None


class RemoteRefused(Exception):  # noqa: N818 - an outcome with a name, not a fault
    """The `remote` of a task could not be reached, or is not allowed; the text is its error."""


class SessionLost(Exception):  # noqa: N818 - likewise
    """The connection that performed a task broke: how the task ended is not known."""


class RowRefused(Exception):  # noqa: N818 - likewise
    """The server does not let this row be changed; the text is its error."""
