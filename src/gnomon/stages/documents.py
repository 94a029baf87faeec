"""The documents that stages are at work on, each decoded as seldom as can be.

A stage may change the value that it is given. So a call has one for itself, and what is shown to
several stages, to ask them, is compared with the engine's own before it is shown to the next one.
Patches are applied to the engine's own, which is given to nobody. A value is decoded from the text:
that takes a third to a half of the time that copying another one would.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from gnomon.contracts.store.entities import Entity
from gnomon.stages.codec import PLAIN, Document, EntityCodec

CHARS_MAX = 4 << 20  # of the documents kept; what is decoded takes several times as much


@dataclass(slots=True)
class _AskedValue:
    """A value, and the stages that were asked about it."""

    value: Any
    stages: set[str]


class LoadedDocument:
    """A document's text and what it was decoded into, for the engine and for stages."""

    __slots__ = ("_asked", "_own", "text")

    def __init__(self, text: str, document: Document | None = None) -> None:
        self.text = text
        # Both by the type of the value.
        self._own: dict[int, Any] = {} if document is None else {PLAIN.type_id: document}
        self._asked: dict[int, _AskedValue] = {}

    @property
    def document(self) -> Document:
        """The engine's own: whoever reads it must not change it. Errors: UndecodableError."""
        found: Document = self._own_of(PLAIN)
        return found

    def to_ask(self, stage: str, codec: EntityCodec) -> Any:
        """The value that a stage is asked about. Errors: UndecodableError."""
        asked = self._asked.get(codec.type_id)
        if asked is None or asked.value != self._own_of(codec):
            asked = self._asked[codec.type_id] = _AskedValue(codec.decode(self.text), set())
        asked.stages.add(stage)
        return asked.value

    def to_process(self, stage: str, codec: EntityCodec) -> Any:
        """The value that a stage is called with: what it was asked about, if nobody else has seen
        it. Errors: UndecodableError."""
        asked = self._asked.get(codec.type_id)
        if asked is None or asked.stages != {stage}:
            return codec.decode(self.text)
        return self._asked.pop(codec.type_id).value

    def _own_of(self, codec: EntityCodec) -> Any:
        if codec.type_id not in self._own:
            self._own[codec.type_id] = codec.decode(self.text)
        return self._own[codec.type_id]


class LoadedDocuments:
    """The newest document of each entity that stages were asked about or called with lately."""

    def __init__(self, chars_max: int = CHARS_MAX) -> None:
        self._chars_left = chars_max
        self._loaded: OrderedDict[str, LoadedDocument] = OrderedDict()

    def of(self, entity: Entity) -> LoadedDocument:
        """The document of a living entity."""
        loaded = self._loaded.get(entity.id)
        if loaded is not None and loaded.text == entity.doc:
            return loaded
        return self.keep(entity)

    def keep(self, entity: Entity, document: Document | None = None) -> LoadedDocument:
        """Remember a living entity's document, instead of an older one; `document` is the decoded
        one, if it is known."""
        assert entity.doc is not None
        older = self._loaded.pop(entity.id, None)
        self._chars_left += len(older.text) if older else 0
        loaded = self._loaded[entity.id] = LoadedDocument(entity.doc, document)
        self._chars_left -= len(entity.doc)
        while self._chars_left < 0:
            _, oldest = self._loaded.popitem(last=False)
            self._chars_left += len(oldest.text)
        return loaded
