"""Patches: JSON merge patch (RFC 7396), which is the format, and JSON patch (RFC 6902)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, TypeAlias, cast

from gnomon.model.errors import InvalidRequest
from gnomon.model.stage.paths import WHOLE, join, same

Document: TypeAlias = dict[str, Any]
MergePatch: TypeAlias = Mapping[str, Any]
JsonPatch: TypeAlias = Sequence[Mapping[str, Any]]
Patch: TypeAlias = MergePatch | JsonPatch

OPERATIONS = ("add", "remove", "replace", "move", "copy", "test")


def apply_patch(document: Mapping[str, Any], patch: Patch) -> Document:
    """The document with a patch applied; the given one stays as it is."""
    if isinstance(patch, Mapping):
        return _merged(document, patch)
    found = apply_json_patch(document, patch)
    if not isinstance(found, dict):
        raise InvalidRequest("the patch leaves no object: an entity is a JSON object")
    return found


def _merged(target: object, patch: Mapping[str, Any]) -> Document:
    merged: Document = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            merged[key] = _merged(merged.get(key), value)
        else:
            merged[key] = value
    return merged


def touched_paths(patch: Patch) -> tuple[str, ...]:
    """What a patch may change: the leaves of a merge patch, the places of a JSON patch."""
    if isinstance(patch, Mapping):
        return tuple(sorted(_leaves(patch, WHOLE)))
    places = {
        _document_path(pointer)
        for operation in patch
        if operation.get("op") != "test"
        for pointer in (operation.get("path"), operation.get("from"))
        if isinstance(pointer, str)
    }
    return tuple(sorted(places))


def _leaves(patch: Mapping[str, Any], path: str) -> list[str]:
    found: list[str] = []
    for key, value in patch.items():
        here = join(path, key)
        if isinstance(value, Mapping) and value:
            found += _leaves(value, here)
        else:
            found.append(here)
    return found


def _document_path(pointer: str) -> str:
    """The path of a JSON pointer, up to the first list index: lists are leaves."""
    path = WHOLE
    for step in _steps(pointer):
        if step.isdigit() or step == "-":
            break
        path = join(path, step)
    return path


# -- RFC 6902 -------------------------------------------------------------------------------------


def apply_json_patch(document: object, patch: JsonPatch) -> object:
    """Perform the operations in order, all or none."""
    found = deepcopy(document)
    for operation in patch:
        found = _perform(found, operation)
    return found


def _perform(document: object, operation: Mapping[str, Any]) -> object:
    name, pointer = operation.get("op"), operation.get("path")
    if name not in OPERATIONS or not isinstance(pointer, str):
        raise InvalidRequest(f"a JSON patch operation needs a path and an op of {OPERATIONS}")
    match name:
        case "test":
            if not same(_get(document, pointer), _value(operation)):
                raise InvalidRequest(f"the patch's test of {pointer!r} failed")
            return document
        case "remove":
            return _removed(document, pointer)
        case "add":
            return _added(document, pointer, deepcopy(_value(operation)))
        case "replace":
            _get(document, pointer)
            return _replaced(document, pointer, deepcopy(_value(operation)))
    source = operation.get("from")
    if not isinstance(source, str):
        raise InvalidRequest(f"{name} needs a `from`")
    value = deepcopy(_get(document, source))
    if name == "move":
        if pointer.startswith(source + "/"):
            raise InvalidRequest("a value cannot be moved into itself")
        document = _removed(document, source)
    return _added(document, pointer, value)


def _value(operation: Mapping[str, Any]) -> object:
    if "value" not in operation:
        raise InvalidRequest(f"{operation.get('op')} needs a `value`")
    return operation["value"]


def _steps(pointer: str) -> list[str]:
    if not pointer:
        return []
    if not pointer.startswith("/"):
        raise InvalidRequest(f"{pointer!r} is not a JSON pointer: it begins with /")
    return [each.replace("~1", "/").replace("~0", "~") for each in pointer[1:].split("/")]


def _stepped(container: object, step: str, pointer: str) -> object:
    if isinstance(container, dict) and step in container:
        return container[step]
    if isinstance(container, list):
        return container[_index(step, len(container) - 1, pointer)]
    raise InvalidRequest(f"there is no {pointer!r} in the document")


def _index(step: str, highest: int, pointer: str) -> int:
    plain = step.isascii() and step.isdigit() and (step == "0" or step[0] != "0")
    if not plain or int(step) > highest:
        raise InvalidRequest(f"there is no {pointer!r} in the document")
    return int(step)


def _get(document: object, pointer: str) -> object:
    for step in _steps(pointer):
        document = _stepped(document, step, pointer)
    return document


def _parent(document: object, pointer: str) -> tuple[object, str]:
    *way, last = _steps(pointer)
    for step in way:
        document = _stepped(document, step, pointer)
    return document, last


def _added(document: object, pointer: str, value: object) -> object:
    if not pointer:
        return value
    parent, last = _parent(document, pointer)
    if isinstance(parent, dict):
        parent[last] = value
    elif isinstance(parent, list):
        place = len(parent) if last == "-" else _index(last, len(parent), pointer)
        parent.insert(place, value)
    else:
        raise InvalidRequest(f"there is no place for {pointer!r} in the document")
    return document


def _replaced(document: object, pointer: str, value: object) -> object:
    if not pointer:
        return value
    parent, last = _parent(document, pointer)
    if isinstance(parent, dict):
        parent[last] = value
    else:
        items = cast("list[object]", parent)
        items[_index(last, len(items) - 1, pointer)] = value
    return document


def _removed(document: object, pointer: str) -> object:
    if not pointer:
        raise InvalidRequest("the whole document cannot be removed by a patch")
    parent, last = _parent(document, pointer)
    _stepped(parent, last, pointer)
    if isinstance(parent, dict):
        del parent[last]
    else:
        items = cast("list[object]", parent)
        del items[_index(last, len(items) - 1, pointer)]
    return document
