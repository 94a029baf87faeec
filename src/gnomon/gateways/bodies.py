"""Untrusted JSON becomes requests: the same way over HTTP, from files and from the terminal."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

import msgspec

from gnomon.model.codec import BODY_BYTES_MAX, build_spec, parse_json
from gnomon.model.errors import GnomonError, InvalidSpec, UnknownField
from gnomon.scheduler import Request

S = TypeVar("S", bound=msgspec.Struct)


def read_item(text: bytes) -> Request | GnomonError:
    """One of many: `{"id"?, "key"?, "spec"}`, or what is wrong with it."""
    try:
        body = read_object(text, ("id", "key", "spec"))
        return make_request(body, key=_text_or_none(body, "key"))
    except GnomonError as exc:
        return exc


def make_request(body: Mapping[str, Any], *, key: str | None) -> Request:
    """A request out of a parsed body."""
    if "spec" not in body:
        raise InvalidSpec("spec", "is required")
    return Request(id=_text_or_none(body, "id"), key=key, spec=build_spec(body["spec"]))


def read_object(
    text: bytes, known: Collection[str], *, bytes_max: int = BODY_BYTES_MAX
) -> dict[str, Any]:
    """A JSON object with known fields only."""
    value = parse_json(text, bytes_max=bytes_max)
    if not isinstance(value, dict):
        raise InvalidSpec("body", "must be an object", got=value)
    refuse_unknown("", value, known)
    return value


def refuse_unknown(prefix: str, given: Collection[str], known: Collection[str]) -> None:
    """Errors: UnknownField, with the name that was probably meant."""
    for name in given:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            raise UnknownField((prefix + name)[:200], suggestion=close[0] if close else None)


def read_struct(text: bytes, kind: type[S], *, bytes_max: int = BODY_BYTES_MAX) -> S:
    """A JSON object as a struct. Errors: UnknownField, InvalidSpec with the field's name."""
    value = read_object(text, kind.__struct_fields__, bytes_max=bytes_max)
    for field in msgspec.structs.fields(kind):
        if field.required and field.name not in value:
            raise InvalidSpec(field.name, "is required")
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as exc:
        problem, _, path = str(exc).partition(" - at `$.")
        name = path.rstrip("`")
        problem = problem[:1].lower() + problem[1:]
        raise InvalidSpec(name or "body", problem, got=value.get(name)) from None


def _text_or_none(body: Mapping[str, Any], name: str) -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidSpec(name, "must be a string", got=value)
    return value
