"""What all verbs of the entity store have."""

from __future__ import annotations

from gnomon.contracts.clock import Clock, Entropy
from gnomon.contracts.store.entities import Entity
from gnomon.stores.sqlite.connection import Runner
from gnomon.stores.sqlite.entities.rows import Connection, EntityRow
from gnomon.stores.sqlite.queries import SQL
from gnomon.stores.sqlite.verbs import SqliteVerbs, write_entry


class EntityVerbs(SqliteVerbs):
    """Besides: who did what, and where rows begin."""

    def __init__(self, runner: Runner, clock: Clock, entropy: Entropy) -> None:
        super().__init__(runner, clock)
        self._entropy = entropy

    def _audit(self, connection: Connection, verb: str, actor: str, name: str) -> None:
        """Who did what to an entity or a stage."""
        write_entry(connection, verb, actor, name, at=self._now_us(), guid=self._entropy.guid())

    def _new_seq(self) -> int:
        """Where the `seq` of rows begins that a verb makes: 48 random bits."""
        return self._entropy.token().int >> 80


def load_entity(connection: Connection, entity_key: str) -> Entity | None:
    """The entity or its tombstone."""
    row = connection.execute(SQL["get_entity"], {"entity_key": entity_key}).fetchone()
    return None if row is None else EntityRow._make(row).entity()
