"""The outbox: saved versions on their way to a sink, in order for each entity.

A *sink* is who is told of saves: a stage's `after_save` (the sink has the stage's name), or the
relay (`RELAY_SINK`). Rows are written by `EntityStore.write` and `QueueStore.commit` with the save
itself.

A save that a stage does not take at all is quarantined: it, what is behind it and what comes behind
it later wait until `QueueStore.release` or a raised revision of the stage (`declare`) frees them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol
from uuid import UUID

from gnomon.contracts.store.batches import bytes_of
from gnomon.contracts.store.entities import StageState
from gnomon.contracts.store.value import Value
from gnomon.contracts.store.work import HeldShard

RELAY_SINK = ""


class OutboxRow(Value, frozen=True):
    """An outbox row: a saved version on its way out."""

    shard: int
    n: int  # of the entity's saves: higher than before with each, also of a state alone, for ever
    sink: str
    entity_key: str
    epoch: int
    version: int
    author: str
    root: UUID  # of the chain that the save belongs to, as in its change note
    paths: tuple[str, ...]
    doc: str | None  # None: deleted
    state: StageState | None
    key: str  # the receiver may recognise a repeat by it: `model.ids.save_key`
    attempts: int
    at: datetime

    @property
    def size(self) -> int:
        """Bytes of the document and the state: what bounds a batch."""
        return bytes_of(self.doc) + (0 if self.state is None else len(self.state.body))


class SinkQueue(NamedTuple):
    """What waits for one sink in the held shards."""

    sink: str
    age: timedelta  # of the oldest save
    due_in: timedelta  # until one of them may leave; negative: one could have so long ago


class SinkBacklog(Value, frozen=True):
    """What waits for one sink in the whole installation."""

    sink: str
    count: int
    oldest_at: datetime
    error: str | None  # why one of them did not arrive
    quarantined: int = 0  # so many of them wait for a person


class OutboxStore(Protocol):
    """Saves on their way out. An owner's verbs take holdings as their fence.

    Nobody waits for somebody whose open transaction holds an entity: nothing is written of its
    rows, and the caller is told so."""

    async def waiting_sinks(self, holdings: Sequence[HeldShard]) -> Sequence[SinkQueue]:
        """What waits in the held shards, in order of the sinks, but for what is quarantined; cheap,
        however much that is."""
        ...

    async def due_saves(
        self,
        holdings: Sequence[HeldShard],
        sink: str,
        *,
        limit: int,
        skip: Collection[str] = (),
    ) -> Sequence[OutboxRow]:
        """Rows for a sink that are due, in order, but for those of entities to `skip`; of one
        entity never a later version before an earlier one that is still there. What is quarantined
        is never due. The row by which documents and states reach `BATCH_BYTES_MAX` is the last, if
        no earlier one is (over several places, each gives its part of that)."""
        ...

    async def remove(self, rows: Sequence[OutboxRow]) -> None:
        """They have arrived: remove them. Repeating it is harmless."""
        ...

    async def put_off(
        self, rows: Sequence[OutboxRow], *, delay: timedelta, error: str, counts: bool
    ) -> frozenset[str]:
        """They have not: try again after the delay. Of a row that is gone or quarantined nothing is
        written, nor of those behind it. The entities that are held."""
        ...

    async def quarantine(self, row: OutboxRow, *, error: str) -> bool:
        """It has not, and is not tried again before it is freed, nor are those behind it. Counts as
        a failure. Of a row that is gone or quarantined nothing is written, nor of those behind.
        False if the entity is held."""
        ...

    async def backlog(self) -> Sequence[SinkBacklog]:
        """What waits in all shards, quarantined or not, in order of the sinks. Reads the whole
        outbox."""
        ...
