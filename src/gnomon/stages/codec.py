"""Entities and states between their stored text and what a stage is given.

An entity is a JSON object: a plain dict, or decoded into the type given (msgspec struct, dataclass,
TypedDict). A state is JSON of any type, or a protobuf message of the type the stage is declared
with: which type it is never comes from the stored data.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin

import msgspec

from gnomon.contracts.store.entities import StageState, StateWrite
from gnomon.model.codec import check_depth
from gnomon.model.errors import InvalidRequest, InvalidSpec
from gnomon.model.stage.json_patch import DOCUMENT_BYTES_MAX
from gnomon.model.stage.json_value import check_numbers
from gnomon.stages.stage import Stage

Document = dict[str, Any]

STATE_BYTES_MAX = 1 << 20
TYPE_CHARS_MAX = 255

_TYPE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*", re.ASCII)

_encode = msgspec.json.Encoder(order="deterministic").encode


class UndecodableError(Exception):
    """What is stored is not what the stage is declared to read."""


def decode_document(text: str) -> Document:
    """A stored document. Errors: UndecodableError, for one that others have spoilt."""
    document: Document = _PLAIN.decode(text)
    return document


def is_document(text: str) -> bool:
    """Whether a stored document can be shown to others."""
    try:
        decode_document(text)
    except UndecodableError:
        return False
    return True


def is_json_text(body: bytes) -> bool:
    """Whether a stored state that should be JSON can be shown as such."""
    try:
        msgspec.json.decode(body)
    except (ValueError, RecursionError):  # of msgspec: a ValueError
        return False
    return True


def encode_document(document: object) -> str:
    """A document for storing: keys sorted, so that equal documents are equal texts."""
    try:
        text = _encode(document)
    except (TypeError, ValueError, OverflowError, RecursionError) as exc:
        raise InvalidRequest(f"the entity is not JSON: {exc}") from None
    if len(text) > DOCUMENT_BYTES_MAX:
        raise InvalidRequest(f"the entity has {len(text)} bytes, more than {DOCUMENT_BYTES_MAX}")
    if not text.startswith(b"{"):
        raise InvalidRequest("an entity is a JSON object")
    check_numbers(document, text, "the entity")
    if b"\\u0000" in text:
        raise InvalidRequest("the entity has a NUL character, which PostgreSQL cannot store")
    stored = text.decode()
    check_depth(stored, "the entity")
    return stored


def canonical_json(body: bytes) -> bytes:
    """JSON of others, as we would have written it. Errors: InvalidRequest."""
    try:
        text = _encode(msgspec.json.decode(body))
    except (ValueError, OverflowError, RecursionError) as exc:  # of msgspec: a ValueError
        raise InvalidRequest(str(exc)) from None
    check_depth(text.decode(), "the state")
    return text


def check_type_name(name: str) -> str:
    """The full name of a protobuf message. Errors: InvalidSpec."""
    if len(name) > TYPE_CHARS_MAX or not _TYPE_NAME.fullmatch(name):
        raise InvalidSpec("type", "must name a protobuf message", got=name)
    return name


class EntityCodec:
    """How a stage sees documents."""

    def __init__(self, kind: Any) -> None:
        plain = kind in (dict, Any, object, Mapping) or get_origin(kind) in (dict, Mapping)
        self.is_plain = plain
        self._kind = dict if plain else kind  # alive, so that its id is nobody else's
        self.type_id = id(self._kind)  # the same for all who see documents as the same type
        self._decoder = msgspec.json.Decoder(dict[str, Any] if plain else kind)

    def decode(self, text: str) -> Any:
        """The document as the declared type. Errors: UndecodableError."""
        try:
            return self._decoder.decode(text)
        except (msgspec.MsgspecError, RecursionError) as exc:
            raise UndecodableError(f"the entity does not decode: {exc}") from None


_PLAIN = EntityCodec(dict)


class StateCodec:
    """A stage's private state."""

    def __init__(self, kind: Any, revision: int) -> None:
        self._revision = revision
        self._message = kind if _is_message_class(kind) else None
        plain = self._message is not None or kind in (Any, object, None, NoneType)
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Any if plain else kind)

    def decode(self, state: StageState, migrate: Any) -> Any:
        """The stored state; what an older revision wrote is migrated. Errors: UndecodableError."""
        try:
            value = self._value(state)
        except (msgspec.ValidationError, msgspec.DecodeError) as exc:
            raise UndecodableError(f"the state does not decode: {exc}") from None
        if state.revision < self._revision:
            return migrate(value, state.revision)
        return value

    def _value(self, state: StageState) -> Any:
        if state.type is None and self._message is None:
            return self._decoder.decode(state.body)
        wanted = None if self._message is None else self._message.DESCRIPTOR.full_name
        if self._message is None or state.type != wanted:
            raise UndecodableError(f"the state is {state.type or 'JSON'}, not {wanted or 'JSON'}")
        return _parsed(self._message(), state.body)

    def encode(self, value: Any) -> StateWrite:
        """A state for storing. Errors: InvalidRequest."""
        if _is_message_class(type(value)):
            if self._message is None or not isinstance(value, self._message):
                raise InvalidRequest(
                    "the state is a protobuf message the stage is not declared with"
                )
            body = value.SerializeToString(deterministic=True)
            kind = value.DESCRIPTOR.full_name
        else:
            body, kind = _json_state(value), None
        if len(body) > STATE_BYTES_MAX:
            raise InvalidRequest(f"the state has {len(body)} bytes, more than {STATE_BYTES_MAX}")
        return StateWrite(body=body, revision=self._revision, type=kind)


def _is_message_class(kind: Any) -> bool:
    """Whether it is protobuf's: whoever has such a class has loaded the library, an extra."""
    library = sys.modules.get("google.protobuf.message")
    return library is not None and isinstance(kind, type) and issubclass(kind, library.Message)


def _parsed(message: Any, body: bytes) -> Any:
    from google.protobuf.message import DecodeError

    try:
        message.ParseFromString(body)
    except DecodeError as exc:
        raise UndecodableError(f"the state does not decode: {exc}") from None
    return message


def _json_state(value: Any) -> bytes:
    try:
        body = _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as exc:
        raise InvalidRequest(f"the state is not JSON: {exc}") from None
    check_numbers(value, body, "the state")
    return body


def declared_types(stage: type[Stage[Any, Any]]) -> tuple[Any, Any]:
    """The E and S of `class Expire(Stage[E, S])`; what is not said is a plain JSON value."""
    for kind in stage.__mro__:
        for base in getattr(kind, "__orig_bases__", ()):
            if get_origin(base) is Stage:
                given = get_args(base)
                return tuple(Any if isinstance(arg, TypeVar) else arg for arg in given)  # type: ignore[return-value]
    return (Any, Any)
