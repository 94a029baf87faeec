"""JSON patch (RFC 6902), within bounds: a small patch cannot make a large or deep document.

What an operation would make is measured before it is made, so the document stays within
`DOCUMENT_BYTES_MAX` after every operation, not only after the last. Nothing is copied but the
containers on the way to a change; all else is shared with the given document, which stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from gnomon.model.codec import DEPTH_MAX, check_depth
from gnomon.model.errors import InvalidRequest, short
from gnomon.model.stage.json_value import encode_json, own_json
from gnomon.model.stage.paths import same

JsonPatch: TypeAlias = Sequence[Mapping[str, Any]]

DOCUMENT_BYTES_MAX = 1 << 20
OPERATIONS_MAX = 1_000
# What the operations of one patch may copy and move altogether: some milliseconds of work.
WORK_BYTES_MAX = 8 * DOCUMENT_BYTES_MAX
OPERATIONS = ("add", "remove", "replace", "move", "copy", "test")

_INDEX_DIGITS_MAX = 9
_BAD_ESCAPE = re.compile("~(?![01])")


def apply_json_patch(document: object, patch: JsonPatch) -> object:
    """Perform the operations in order, all or none. Errors: InvalidRequest."""
    if len(patch) > OPERATIONS_MAX:
        raise InvalidRequest(f"the patch has {len(patch)} operations, at most {OPERATIONS_MAX}")
    patching = _Patching(document)
    for operation in patch:
        patching.perform(operation)
    return patching.document


def steps_of(pointer: str) -> list[str]:
    """The keys and indexes of a JSON pointer. Errors: InvalidRequest."""
    if not pointer:
        return []
    if not pointer.startswith("/"):
        raise InvalidRequest(f"{short(pointer)} is not a JSON pointer: it begins with /")
    if _BAD_ESCAPE.search(pointer):
        raise InvalidRequest(f"{short(pointer)} is not a JSON pointer: ~ is written ~0")
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer[1:].split("/")]


class _Patching:
    """A document on its way through a patch, its size, and the work that is left to it."""

    def __init__(self, document: object) -> None:
        self.document = document
        self._bytes = _measured(document)
        self._work_left = WORK_BYTES_MAX
        # Containers made here, by their id, and in one place of the document only: these may be
        # changed. Values of the patch are made here, too; all others the caller keeps alive, so
        # that no id comes twice.
        self._own: set[int] = set()

    def perform(self, operation: Mapping[str, Any]) -> None:
        name, pointer = operation.get("op"), operation.get("path")
        if name not in OPERATIONS or not isinstance(pointer, str):
            raise InvalidRequest(f"a JSON patch operation needs a path and an op of {OPERATIONS}")
        match name:
            case "test":
                if not same(self._get(pointer), _value(operation)):
                    raise InvalidRequest(f"the patch's test of {short(pointer)} failed")
            case "remove":
                self._remove(pointer)
            case "add":
                self._add(pointer, _value(operation))
            case "replace":
                self._get(pointer)
                self._add(pointer, _value(operation), replaces=True)
            case "copy":
                value = self._get(_source(operation))
                self._spend(_measured(value))
                self._own.clear()  # what is copied may be among them, and is in two places now
                self._add(pointer, value)
            case "move":
                self._move(_source(operation), pointer)

    def _move(self, source: str, pointer: str) -> None:
        if pointer.startswith(source + "/"):
            raise InvalidRequest("a value cannot be moved into itself")
        value = self._get(source)
        self._spend(_measured(value))
        if pointer == source:
            return
        self._remove(source)
        self._add(pointer, value)

    def _spend(self, work: int) -> None:
        self._work_left -= work
        if self._work_left < 0:
            raise InvalidRequest(f"the patch copies and moves more than {WORK_BYTES_MAX} bytes")

    def _grow(self, more: int) -> None:
        self._bytes += more
        if self._bytes > DOCUMENT_BYTES_MAX:
            raise InvalidRequest(
                f"an operation makes the document larger than {DOCUMENT_BYTES_MAX} bytes"
            )

    # -- reading ----------------------------------------------------------------------------------

    def _get(self, pointer: str) -> object:
        value = self.document
        for step in steps_of(pointer):
            value = _stepped(value, step, pointer)
        return value

    # -- changing ---------------------------------------------------------------------------------

    def _add(self, pointer: str, value: object, *, replaces: bool = False) -> None:
        steps = steps_of(pointer)
        more = _measured(value, above=len(steps))
        if not steps:
            self._grow(more - self._bytes)
            self.document = value
            return
        parent = self._parent(steps, pointer)
        last = steps[-1]
        if isinstance(parent, dict):
            gone = _measured(parent[last]) if last in parent else -len(last) - 4
            self._grow(more - gone)
            parent[last] = value
        elif replaces:
            place = _index(last, len(parent) - 1, pointer)
            self._grow(more - _measured(parent[place]))
            parent[place] = value
        else:
            place = len(parent) if last == "-" else _index(last, len(parent), pointer)
            self._grow(more + 1)
            parent.insert(place, value)

    def _remove(self, pointer: str) -> None:
        steps = steps_of(pointer)
        if not steps:
            raise InvalidRequest("the whole document cannot be removed by a patch")
        self._get(pointer)
        parent = self._parent(steps, pointer)
        if isinstance(parent, dict):
            self._bytes -= _measured(parent.pop(steps[-1])) + len(steps[-1]) + 4
        else:
            place = _index(steps[-1], len(parent) - 1, pointer)
            self._bytes -= _measured(parent.pop(place)) + 1

    def _parent(self, steps: Sequence[str], pointer: str) -> dict[str, Any] | list[Any]:
        """The container that the last step leads into, ours to change, as are all above it."""
        here = self.document = self._owned(self.document, pointer)
        for step in steps[:-1]:
            below = self._owned(_stepped(here, step, pointer), pointer)
            if isinstance(here, dict):
                here[step] = below
            else:
                here[int(step)] = below
            here = below
        return here

    def _owned(self, container: object, pointer: str) -> dict[str, Any] | list[Any]:
        if not isinstance(container, dict | list):
            raise InvalidRequest(f"there is no place for {short(pointer)} in the document")
        if id(container) in self._own:
            return container
        self._spend(len(container))
        mine = container.copy()
        self._own.add(id(mine))
        return mine


def _measured(value: object, *, above: int = 0) -> int:
    """How many bytes a value takes as JSON. Errors: InvalidRequest, also if it is too deep."""
    text = encode_json(value)
    check_depth(text.decode(), "the patched document", depth_max=DEPTH_MAX - above)
    return len(text)


def _value(operation: Mapping[str, Any]) -> object:
    if "value" not in operation:
        raise InvalidRequest(f"{operation.get('op')} needs a `value`")
    return own_json(operation["value"])


def _source(operation: Mapping[str, Any]) -> str:
    source = operation.get("from")
    if not isinstance(source, str):
        raise InvalidRequest(f"{operation.get('op')} needs a `from`")
    return source


def _stepped(container: object, step: str, pointer: str) -> object:
    if isinstance(container, dict) and step in container:
        return container[step]
    if isinstance(container, list):
        return container[_index(step, len(container) - 1, pointer)]
    raise InvalidRequest(f"there is no {short(pointer)} in the document")


def _index(step: str, highest: int, pointer: str) -> int:
    plain = step.isascii() and step.isdigit() and (step == "0" or step[0] != "0")
    if not plain or len(step) > _INDEX_DIGITS_MAX or int(step) > highest:
        raise InvalidRequest(f"there is no {short(pointer)} in the document")
    return int(step)
