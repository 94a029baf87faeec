"""Spec and JSON: how a spec is stored, and how untrusted JSON becomes one.

Stored form: compact JSON without defaults, durations in ISO 8601. Input form: the same, and
durations also as people write them. Untrusted text goes through `parse_json`, which refuses
what Python's own parser lets through: duplicate keys, NaN, NUL, lone surrogates, giant numbers,
and nesting that would exhaust the stack.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, NoReturn, cast, get_args

import msgspec

from gnomon.model.action import Attempt
from gnomon.model.duration import parse_duration
from gnomon.model.errors import InvalidRequest, InvalidSpec, UnknownField, short
from gnomon.model.spec import CatchUp, Effect, Policy, Retry, Spec, Unreadable

BODY_BYTES_MAX = 64 * 1024
DEPTH_MAX = 32
KEYS_MAX = 1_000
DIGITS_MAX = 18

# A string, whole: what looks like a bracket in it is none.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_AS_BRACKET = bytes.maketrans(b"{}", b"[]")
_NO_BRACKET = bytes(set(range(256)) - set(b"[]{}"))
_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Spec)


class _Told(msgspec.Struct):
    action: Unreadable


_UNREADABLE_DECODER = msgspec.json.Decoder(_Told)
_ATTEMPT_DECODER = msgspec.json.Decoder(Attempt)


def encode_spec(spec: Spec) -> str:
    """The stored form."""
    return _ENCODER.encode(spec).decode()


def decode_spec(text: str | bytes) -> Spec:
    """Read the stored form back. Trusted: it was written by `encode_spec`."""
    return _DECODER.decode(text)


def stored_form(spec: Spec) -> str:
    """The stored form of a spec that was made in Python and may hold anything."""
    try:
        return encode_spec(spec)
    except (TypeError, ValueError, RecursionError) as exc:
        raise InvalidSpec("spec", f"cannot be stored as JSON: {short(str(exc))}") from None


def read_back(text: str) -> Spec:
    """The spec that a stored form will be read as; a value of another type is refused."""
    try:
        return decode_spec(text)
    except msgspec.ValidationError as exc:
        raise _translated(exc) from None


def read_spec(text: str | bytes) -> Spec:
    """Read what others may have written, too; what cannot be read becomes a spec that says so."""
    try:
        return decode_spec(text)
    except (msgspec.MsgspecError, RecursionError) as exc:
        unreadable = _told(text) or Unreadable(error=f"invalid spec: {short(str(exc))}")
        return Spec(action=cast("Effect", unreadable))


def _told(text: str | bytes) -> Unreadable | None:
    """What a server says that could not read it either."""
    try:
        return _UNREADABLE_DECODER.decode(text).action
    except (msgspec.MsgspecError, RecursionError):
        return None


def read_attempt(text: str | None) -> Attempt | None:
    """An attempt as it was stored. One that cannot be read is not shown: it is history, and no
    reason to hold up what it belongs to."""
    if text is None:
        return None
    try:
        return _ATTEMPT_DECODER.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return None


def parse_json(body: bytes, *, bytes_max: int = BODY_BYTES_MAX, keys_max: int = KEYS_MAX) -> Any:
    """Read untrusted JSON strictly. Errors: InvalidRequest, saying what is wrong with it."""
    if len(body) > bytes_max:
        raise InvalidRequest(f"the body has {len(body)} bytes; at most {bytes_max} are accepted")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise InvalidRequest(f"the body is not UTF-8 (byte {exc.start})") from None
    if text.startswith("\ufeff"):
        raise InvalidRequest("the body begins with a byte order mark; send plain UTF-8")
    check_depth(text)
    keys = 0

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal keys
        keys += len(items)
        if keys > keys_max:
            raise InvalidRequest(f"the body has more than {keys_max} keys")
        mapping = dict(items)
        if len(mapping) != len(items):
            counts = Counter(name for name, _ in items)
            twice = next(name for name, count in counts.items() if count > 1)
            raise InvalidRequest(f"the key {short(twice)} stands twice in one object")
        return mapping

    try:
        value = json.loads(
            text, object_pairs_hook=pairs, parse_constant=_no_constant, parse_int=_small_int,
            parse_float=_finite,
        )  # fmt: skip
    except json.JSONDecodeError as exc:
        raise InvalidRequest(f"the body is not JSON: {exc.msg} at character {exc.pos}") from None
    if "\\u" in text:
        _check_text(value)
    return value


def check_depth(text: str, what: str = "the body", *, depth_max: int = DEPTH_MAX) -> None:
    """Refuse JSON that is nested too deep, before anything recurses into it."""
    if text.count("[") + text.count("{") <= depth_max:
        return  # nearly every body, without a walk in Python
    brackets = _STRING.sub(b"", text.encode()).translate(_AS_BRACKET, _NO_BRACKET)
    for _ in range(depth_max):  # each pass takes the innermost level away
        outer = brackets.replace(b"[]", b"")
        if len(outer) == len(brackets):
            break  # nothing is left, or what is not balanced: the parser says where
        brackets = outer
    if b"[]" in brackets or brackets.count(b"[") > depth_max:
        raise InvalidRequest(f"{what} is nested deeper than {DEPTH_MAX} levels")


def _no_constant(name: str) -> NoReturn:
    raise InvalidRequest(f"{name} is not a number in JSON")


def _small_int(digits: str) -> int:
    if len(digits.lstrip("-")) > DIGITS_MAX:
        raise InvalidRequest(f"a whole number has more than {DIGITS_MAX} digits")
    return int(digits)


def _finite(digits: str) -> float:
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        raise InvalidRequest("a number is too large")
    return value


def _check_text(value: object) -> None:
    """Escapes can smuggle in what UTF-8 cannot hold and what PostgreSQL cannot store."""
    match value:
        case str():
            if "\x00" in value or any("\ud800" <= char <= "\udfff" for char in value):
                raise InvalidRequest("a string holds NUL or half of a surrogate pair")
        case dict():
            for key, item in value.items():
                _check_text(key)
                _check_text(item)
        case list():
            for item in value:
                _check_text(item)


# -- builtins to Spec -----------------------------------------------------------------------------

_DURATIONS = {
    "": ("timeout", "active", "jitter", "retention"),
    "policy": ("period",),
    "retry": ("min_period", "max_period"),
    "action": ("hang", "ttl"),
}
# Which struct a `type` names, in the two sections that have one.
_TAGGED: Mapping[str, Mapping[str, type]] = {
    section: {kind.__struct_config__.tag: kind for kind in get_args(union)}
    for section, union in (("action", Effect), ("policy", Policy))
}
_PLAIN: Mapping[str, type] = {"retry": Retry, "catch_up": CatchUp}


def build_spec(value: object) -> Spec:
    """A spec out of parsed JSON. Errors name the field, the rule and the value."""
    if not isinstance(value, dict):
        raise InvalidSpec("spec", "must be an object", got=value)
    plain = dict(value)
    _reject_unknown("spec", plain, Spec)
    for section, names in _DURATIONS.items():
        part = plain if not section else plain.get(section)
        if not isinstance(part, dict):
            continue
        part = dict(part) if section else part
        for name in names:
            if part.get(name) is not None:
                path = f"spec.{section}.{name}" if section else f"spec.{name}"
                part[name] = parse_duration(part[name], path)
        if section:
            plain[section] = part
    for section, kinds in _TAGGED.items():
        _check_tagged(plain, section, kinds)
    for section, kind in _PLAIN.items():
        if isinstance(plain.get(section), dict):
            _reject_unknown(f"spec.{section}", plain[section], kind)
    try:
        return msgspec.convert(plain, Spec)
    except msgspec.ValidationError as exc:
        raise _translated(exc) from None


def _check_tagged(plain: dict[str, Any], section: str, kinds: Mapping[str, type]) -> None:
    part = plain.get(section)
    if part is None:
        if section == "action":
            raise InvalidSpec("spec.action", "is required: what is to be done?")
        return
    if not isinstance(part, dict):
        raise InvalidSpec(f"spec.{section}", "must be an object with a `type`", got=part)
    kind = part.get("type")
    if not isinstance(kind, str) or kind not in kinds:
        known = ", ".join(sorted(kinds))
        raise InvalidSpec(f"spec.{section}.type", f"must be one of {known}", got=kind)
    rest = {key: item for key, item in part.items() if key != "type"}
    _reject_unknown(f"spec.{section}", rest, kinds[kind])


def _reject_unknown(path: str, given: dict[str, Any], known: type[msgspec.Struct]) -> None:
    names = known.__struct_encode_fields__
    for key in given:
        if key not in names:
            close = get_close_matches(str(key), names, n=1)
            shown = short(key)[1:-1]  # escaped: a key must not forge a line of the log
            raise UnknownField(f"{path}.{shown}", suggestion=close[0] if close else None)


def _translated(exc: msgspec.ValidationError) -> InvalidSpec:
    problem, _, where = str(exc).partition(" - at `$")
    path = "spec" + where.rstrip("`") if where else "spec"
    return InvalidSpec(path, problem[:1].lower() + problem[1:])
