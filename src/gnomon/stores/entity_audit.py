"""What the audit says of entities, the same in every engine."""

from __future__ import annotations

from collections.abc import Iterable

from gnomon.contracts.store.entities import EntityWrite

PUT = "put_entity"
DELETE = "delete_entity"


def audited(stored: Iterable[EntityWrite]) -> dict[tuple[str, str], list[EntityWrite]]:
    """Writes by (author, verb): one entry for each."""
    entries: dict[tuple[str, str], list[EntityWrite]] = {}
    for write in stored:
        verb = DELETE if write.doc is None else PUT
        entries.setdefault((write.author, verb), []).append(write)
    return entries
