"""What every value that crosses the seam has in common."""

from __future__ import annotations

import msgspec


class Value(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A value that crosses the seam between the core and an engine. Values hold values, never
    each other in a circle, so the garbage collector need not look at them."""


class Capabilities(Value, frozen=True):
    """What an engine can do beyond the common contract. Tests branch on this, never on a name."""

    engine: str
    parallel_writers: bool  # several worker processes on one database make sense
    wakeups: bool  # hints cross process borders
    caller_transactions: bool  # `joining` works
    many_shards: bool  # one statement may touch several shards
    pace_s: float = 0.0  # so long a worker gathers what it does next, where statements are dear
