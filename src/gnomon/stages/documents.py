"""The documents that stages are at work on, each decoded as seldom as can be.

A stage may change the value that it is given. So a call has one for itself, and what is shown to
several stages, to ask them, is compared with the engine's own before it is shown to the next one.
Patches are applied to the engine's own, which is given to nobody. A value is decoded from the text:
that takes a third to a half of the time that copying another one would.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import msgspec

from gnomon.contracts.store.entities import Entity
from gnomon.stages.codec import Document, EntityCodec, decode_document

CHARS_MAX = 4 << 20  # of the documents kept; what is decoded takes several times as much
COUNT_MAX = 4_096  # of them: small ones cost more than their characters


class LoadedDocument(msgspec.Struct):
    """A document's text and what it was decoded into, for the engine and for stages."""

    text: str
    _document: Document | None = None
    _typed_id: int = 0  # of the type of the next
    _typed: Any = None  # the engine's own as a declared type
    _shown_id: int = 0  # likewise
    _shown: Any = None  # the value that stages were asked about last
    _shown_to: str | None = None  # the one stage that was; None: several

    @property
    def document(self) -> Document:
        """The engine's own: whoever reads it must not change it. Errors: UndecodableError."""
        if self._document is None:
            self._document = decode_document(self.text)
        return self._document

    def to_ask(self, stage: str, codec: EntityCodec) -> Any:
        """The value that a stage is asked about. Errors: UndecodableError."""
        if self._shown_id == codec.type_id and self._shown == self._own(codec):
            if self._shown_to != stage:
                self._shown_to = None
        else:
            self._shown = codec.decode(self.text)
            self._shown_id, self._shown_to = codec.type_id, stage
        return self._shown

    def to_process(self, stage: str, codec: EntityCodec) -> Any:
        """The value that a stage is called with: what it was asked about, if nobody else has seen
        it. Errors: UndecodableError."""
        if self._shown_id != codec.type_id or self._shown_to != stage:
            return codec.decode(self.text)
        value, self._shown, self._shown_id = self._shown, None, 0
        return value

    def _own(self, codec: EntityCodec) -> Any:
        if codec.is_plain:
            return self.document
        if self._typed_id != codec.type_id:
            self._typed, self._typed_id = codec.decode(self.text), codec.type_id
        return self._typed


class LoadedDocuments:
    """The newest document of each entity that stages were asked about or called with lately."""

    def __init__(self, chars_max: int = CHARS_MAX) -> None:
        self._chars_left = chars_max
        self._loaded: OrderedDict[str, LoadedDocument] = OrderedDict()

    def of(self, entity: Entity) -> LoadedDocument:
        """The document of a living entity."""
        loaded = self._loaded.get(entity.key)
        if loaded is not None and loaded.text == entity.doc:
            return loaded
        return self.keep(entity)

    def keep(self, entity: Entity, document: Document | None = None) -> LoadedDocument:
        """Remember a living entity's document, instead of an older one; `document` is the decoded
        one, if it is known."""
        assert entity.doc is not None
        older = self._loaded.pop(entity.key, None)
        self._chars_left += len(older.text) if older else 0
        loaded = self._loaded[entity.key] = LoadedDocument(entity.doc, document)
        self._chars_left -= len(entity.doc)
        while self._chars_left < 0 or len(self._loaded) > COUNT_MAX:
            _, oldest = self._loaded.popitem(last=False)
            self._chars_left += len(oldest.text)
        return loaded

    def forget(self, entity: Entity) -> None:
        """No stage is about to see it."""
        loaded = self._loaded.pop(entity.key, None)
        self._chars_left += len(loaded.text) if loaded else 0
