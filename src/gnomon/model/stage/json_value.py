"""JSON values in memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import msgspec

from gnomon.model.errors import InvalidRequest, short

SCALARS = (str, int, float, bool, type(None))
_encode = msgspec.json.Encoder().encode


class _NotPlainError(Exception):
    """A value that becomes JSON only when it is written: a tuple, a date, a struct."""


def own_json(value: Any) -> Any:
    """A value as its JSON text would be read, in containers that nobody else has: whoever gave it
    may go on to change it. Errors: InvalidRequest, if it is not JSON."""
    try:
        return _copied(value)
    except _NotPlainError:
        text = encode_json(value)
        check_numbers(value, text, "the patch")
        return msgspec.json.decode(text)
    except RecursionError:
        raise InvalidRequest("the patch is not JSON: it is too deep") from None


def encode_json(value: Any) -> bytes:
    """A value of a patch as text. Errors: InvalidRequest."""
    try:
        return _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as exc:
        raise InvalidRequest(f"the patch is not JSON: {short(str(exc))}") from None


def _copied(value: Any) -> Any:
    if type(value) in SCALARS:
        return value
    if type(value) is list:
        return [_copied(item) for item in value]
    if type(value) is not dict or any(type(key) is not str for key in value):
        raise _NotPlainError
    return {key: _copied(item) for key, item in value.items()}


def check_numbers(value: Any, text: bytes, what: str) -> None:
    """NaN and infinity would be written as null. Only a text with a null can have had one. Errors:
    InvalidRequest."""
    if b"null" in text and _has_odd_number(value):
        raise InvalidRequest(f"{what} has a value that is not a finite number: JSON has none such")


def _has_odd_number(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, Mapping):
        return any(map(_has_odd_number, value.values()))
    if isinstance(value, list | tuple | set | frozenset):
        return any(map(_has_odd_number, value))
    if isinstance(value, msgspec.Struct):
        return any(_has_odd_number(getattr(value, name)) for name in value.__struct_fields__)
    if is_dataclass(value):
        return any(_has_odd_number(getattr(value, field.name)) for field in fields(value))
    return False
