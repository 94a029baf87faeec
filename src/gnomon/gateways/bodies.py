"""Untrusted JSON becomes requests: the same way over HTTP, from files and from the terminal."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

from gnomon.model.codec import BODY_BYTES_MAX, build_spec, parse_json
from gnomon.model.errors import GnomonError, InvalidSpec, UnknownField
from gnomon.model.limits import Limit, limit_key
from gnomon.scheduler import Request


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


def read_limit(text: bytes, kind: str, name: str) -> Limit:
    """`{"parallel"?, "rate"?, "burst"?}` for the limit that the path names."""
    body = read_object(text, ("parallel", "rate", "burst"))
    key = limit_key(kind, name)
    return Limit(
        kind=key.kind,
        name=key.name,
        parallel=_count_or_none(body, "parallel"),
        rate=_number_or_none(body, "rate"),
        burst=_count_or_none(body, "burst"),
    )


def _count_or_none(body: Mapping[str, Any], name: str) -> int | None:
    value = body.get(name)
    if isinstance(value, bool) or not isinstance(value, int | None):
        raise InvalidSpec(name, "must be a whole number", got=value)
    return value


def _number_or_none(body: Mapping[str, Any], name: str) -> float | None:
    value = body.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float | None):
        raise InvalidSpec(name, "must be a number", got=value)
    return None if value is None else float(value)


def _text_or_none(body: Mapping[str, Any], name: str) -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidSpec(name, "must be a string", got=value)
    return value
