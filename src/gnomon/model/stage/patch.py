"""Patches: JSON merge patch (RFC 7396), which is the format, and JSON patch (RFC 6902)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from gnomon.model.errors import InvalidRequest, short
from gnomon.model.stage.json_patch import JsonPatch, apply_json_patch, steps_of
from gnomon.model.stage.json_value import SCALARS, own_json
from gnomon.model.stage.paths import PATH_CHARS_MAX, WHOLE, coarse, join

Document: TypeAlias = dict[str, Any]
MergePatch: TypeAlias = Mapping[str, Any]
Patch: TypeAlias = MergePatch | JsonPatch


def apply_patch(document: Mapping[str, Any], patch: Patch) -> Document:
    """The document with a patch applied. The given one stays as it is, and the new one has no
    container of the patch: it stays as it is, too, whatever becomes of that."""
    if type(patch) is dict or isinstance(patch, Mapping):  # the second is slow
        return _merged(document, patch)
    patched = apply_json_patch(document, patch)
    if not isinstance(patched, dict):
        raise InvalidRequest("the patch leaves no object: an entity is a JSON object")
    return patched


def _merged(target: object, patch: Mapping[str, Any]) -> Document:
    is_object = type(target) is dict or isinstance(target, Mapping)
    merged: Document = dict(target) if is_object else {}  # type: ignore[call-overload]
    for key, value in patch.items():
        if not isinstance(key, str):
            raise InvalidRequest(f"a key of an object must be a text, got {short(repr(key))}")
        if value is None:
            merged.pop(key, None)
        elif type(value) in SCALARS:
            merged[key] = value
        elif isinstance(value, Mapping):
            merged[key] = _merged(merged.get(key), value)
        else:
            merged[key] = own_json(value)
    return merged


def touched_paths(patch: Patch) -> tuple[str, ...]:
    """What a patch may change: the leaves of a merge patch, the places of a JSON patch."""
    return coarse(_leaves(patch, WHOLE) if isinstance(patch, Mapping) else _places(patch))


def _places(patch: JsonPatch) -> Iterator[str]:
    for operation in patch:
        for pointer in (operation.get("path"), operation.get("from")):
            if operation.get("op") != "test" and isinstance(pointer, str):
                yield _document_path(pointer)


def _leaves(patch: Mapping[str, Any], path: str) -> Iterator[str]:
    for key, value in patch.items():
        here = join(path, key)
        if len(here) > PATH_CHARS_MAX:
            yield path
        elif isinstance(value, Mapping) and value:
            yield from _leaves(value, here)
        else:
            yield here


def _document_path(pointer: str) -> str:
    """The path of a JSON pointer, up to the first list index: lists are leaves."""
    path = WHOLE
    for step in steps_of(pointer):
        below = join(path, step)
        if step.isdigit() or step == "-" or len(below) > PATH_CHARS_MAX:
            break
        path = below
    return path
