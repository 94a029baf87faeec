"""What the audit says of entities, the same in every engine."""

from __future__ import annotations

from collections.abc import Iterable

from gnomon.contracts.store.entities import EntityWrite
from gnomon.contracts.store.tokens import Actor

PUT = "put_entity"
DELETE = "delete_entity"


def audited(stored: Iterable[EntityWrite]) -> list[tuple[Actor, str, list[EntityWrite]]]:
    """Writes by author, face and verb: one entry for each."""
    entries: dict[tuple[str, str, str], list[EntityWrite]] = {}
    for write in stored:
        verb = DELETE if write.doc is None else PUT
        entries.setdefault((write.author, write.face, verb), []).append(write)
    return [(Actor(author, face), verb, some) for (author, face, verb), some in entries.items()]
