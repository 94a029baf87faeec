"""Entities: documents with a version, and the states that stages keep beside them.

Documents and states cross the seam as JSON text (or, for states, the bytes of a protobuf message
with its type); engines never look into them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, Protocol
from uuid import UUID

from gnomon.contracts.store.tokens import LOCAL, PYTHON
from gnomon.contracts.store.value import Value
from gnomon.model.ids import EntityKey

if TYPE_CHECKING:
    from gnomon.contracts.store.queues import Enqueue


class Entity(Value, frozen=True):
    """A stored entity. `doc` is None for a tombstone."""

    key: str  # `model.ids.EntityKey` as text, here and wherever it says `entity_key`
    shard: int
    epoch: int
    version: int
    doc: str | None
    changed_at: datetime

    @property
    def kind(self) -> str:
        """Of its key."""
        return self.key.partition("/")[0]  # it is asked for several times in each save

    @property
    def id(self) -> str:
        """Of its key."""
        return EntityKey.parse(self.key).id


class StageState(Value, frozen=True):
    """A stage's private state beside an entity: JSON text, or a protobuf message's bytes."""

    version: int
    revision: int  # of the stage that wrote it
    body: bytes
    type: str | None = None  # the protobuf type's full name; None: JSON


class StateWrite(Value, frozen=True):
    """A new state of the stage that commits."""

    body: bytes
    revision: int
    type: str | None = None


class ChangeNote(Value, frozen=True):
    """One version of an entity: what changed, by whom, in which causal chain."""

    version: int
    paths: tuple[str, ...]
    author: str  # `user`, a caller's name, or `stage:<name>`
    root: UUID
    depth: int
    at: datetime


class EntityWrite(Value, frozen=True):
    """A change from outside: a whole new document, or None for a delete."""

    key: str
    shard: int
    doc: str | None
    base: tuple[int, int] | None  # (epoch, version) it was made from; None: there was no entity
    paths: tuple[str, ...]
    author: str
    root: UUID
    face: str = PYTHON  # through which the author says that he came, for the audit


class EntityBatch(NamedTuple):
    """Those of many entities that are there, or were."""

    entities: Mapping[str, Entity]
    left: Mapping[str, int]  # not looked at yet, with their shards


class EntityStore(Protocol):
    """Entities as the outside sees them. What `write` and `swap_state` change has an entry in the
    audit (a call of `write` one for each author)."""

    async def write(self, writes: Sequence[EntityWrite]) -> Sequence[Entity | None]:
        """Store changes from outside, each by compare-and-set on its base; None where it moved.

        A stored one has version + 1 (a first one: version 1, epoch 1 or the tombstone's + 1), a
        change note with depth 0, a row for `QueueStore.changed_entities`, and an outbox row for the
        relay if the register knows one (`RELAY_SINK`: whoever has one declares it, like a stage).
        A delete leaves a tombstone, removes the entity from all queues, and writes an outbox row
        with no document for the relay and for every stage that has a state there; without a base
        there is nothing to delete. Writes are made as if one after the other.
        """
        ...

    async def get(self, entity_key: str, *, shard: int) -> Entity | None:
        """The entity or its tombstone; None if the key was never used."""
        ...

    async def get_many(self, entity_keys: Mapping[str, int]) -> EntityBatch:
        """Those of many that are there, or were, by their keys; given with their shards. The
        document by which they reach `BATCH_BYTES_MAX` is the last."""
        ...

    async def list(self, *, after: str | None, prefix: str, limit: int) -> Sequence[Entity]:
        """Living entities whose key begins so, in its order, from the one behind `after`."""
        ...

    async def state(
        self, entity_key: str, stage: str, *, shard: int
    ) -> tuple[Entity | None, StageState | None]:
        """A stage's state, with its entity; None for what there is not."""
        ...

    async def swap_state(
        self,
        entity_key: str,
        stage: str,
        *,
        shard: int,
        epoch: int,
        version: int,  # expected; 0: there is none
        state: StateWrite,
        enqueue: Enqueue | None,
        actor: str = LOCAL,
    ) -> StageState | None:
        """Compare-and-set on the state: what is stored then, or None if epoch or version differ.
        The entity's version is untouched; `enqueue` wakes that stage alone."""
        ...

    async def changes(self, entity_key: str, *, shard: int, limit: int) -> Sequence[ChangeNote]:
        """The newest change notes that are still kept, newest first."""
        ...

    async def purge(self, *, limit: int) -> int:
        """Remove change notes older than an hour that all stages were asked about, and the states
        of tombstones after seven days; up to `limit` of each. How many rows went; if that is
        `limit` or more, more may be left."""
        ...
