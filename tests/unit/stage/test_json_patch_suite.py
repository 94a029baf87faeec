"""JSON patch as others understand it: what the public suite of RFC 6902 asks for, in our words.

A case is a document, operations, and the document after them, or `None` where they are refused. An
operation is written `op path [value]`, `move` and `copy` as `op from path`.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import msgspec
import pytest

from gnomon.model.errors import InvalidRequest
from gnomon.model.stage.json_patch import apply_json_patch
from gnomon.model.stage.paths import same

REFUSED: Any = None


def operation(text: str) -> dict[str, Any]:
    name, first, *rest = text.split(" ", 2)
    if name in ("move", "copy"):
        return {"op": name, "from": first.strip("'"), "path": rest[0].strip("'")}
    value = {"value": msgspec.json.decode(rest[0])} if rest else {}
    return {"op": name, "path": first.strip("'"), **value}


CASES: list[tuple[Any, list[str], Any]] = [
    # adding
    ({}, [], {}),
    ({"foo": 1}, [], {"foo": 1}),
    ({}, ['add /foo "bar"'], {"foo": "bar"}),
    ({"foo": 1}, ["add /bar null"], {"foo": 1, "bar": None}),
    ({"foo": None}, ["add /foo 1"], {"foo": 1}),
    ({}, ["add / 1"], {"": 1}),
    ({"foo": {}}, ["add /foo/ 1"], {"foo": {"": 1}}),
    ({"1e0": "a"}, ['replace /1e0 "b"'], {"1e0": "b"}),
    ({"foo": {}}, ["add /foo/0 1"], {"foo": {"0": 1}}),
    ({"foo": "bar"}, ["add '' {\"baz\": 1}"], {"baz": 1}),
    ({"foo": [1, 3]}, ["add /foo/1 2"], {"foo": [1, 2, 3]}),
    ({"foo": [1]}, ["add /foo/0 0"], {"foo": [0, 1]}),
    ({"foo": [1]}, ["add /foo/1 2"], {"foo": [1, 2]}),
    ({"foo": [1]}, ["add /foo/- [2]"], {"foo": [1, [2]]}),
    ({"foo": [1, [2]]}, ["add /foo/1/- 3"], {"foo": [1, [2, 3]]}),
    (["foo"], ['add /- "bar"', 'add /0 "first"'], ["first", "foo", "bar"]),
    ({"foo": [1]}, ["add /foo/3 2"], REFUSED),
    ({"foo": [1]}, ["add /foo/-1 2"], REFUSED),
    ({"foo": [1]}, ["add /foo/1e0 2"], REFUSED),
    ({"foo": [1]}, ["add /foo/bar 2"], REFUSED),
    ({"foo": [1]}, ["add /foo/00 2"], REFUSED),
    ({"foo": 1}, ["add /foo/bar 2"], REFUSED),
    ({"foo": 1}, ["add /no/bar 2"], REFUSED),
    ({"foo": 1}, ["add /bar"], REFUSED),
    ({"foo": 1}, ["add bar 2"], REFUSED),
    # removing and replacing
    ({"foo": 1, "bar": [1, 2]}, ["remove /bar"], {"foo": 1}),
    ({"foo": None}, ["remove /foo"], {}),
    ({"foo": [1, [2], 3]}, ["remove /foo/1/0", "remove /foo/0"], {"foo": [[], 3]}),
    ({"foo": [1, 2, 3, 4]}, ["remove /foo/1", "remove /foo/2"], {"foo": [1, 3]}),
    ({"foo": 1}, ["remove /bar"], REFUSED),
    ({"foo": [1]}, ["remove /foo/1"], REFUSED),
    ({"foo": [1]}, ["remove /foo/-"], REFUSED),
    ({"foo": [1]}, ["remove /foo/1e0"], REFUSED),
    ({"foo": [1, 2]}, ["replace /foo/1 [3]"], {"foo": [1, [3]]}),
    ({"foo": 1}, ["replace /foo true"], {"foo": True}),
    ({"foo": 1}, ["replace '' [1]"], [1]),
    ({"foo": None}, ['replace /foo "truthy"'], {"foo": "truthy"}),
    ({"foo": 1}, ["replace /bar 1"], REFUSED),
    ({"foo": [1]}, ["replace /foo/1 1"], REFUSED),
    ({"foo": [1]}, ["replace /foo/- 1"], REFUSED),
    ({"foo": 1}, ["replace /foo"], REFUSED),
    # moving and copying
    ({"foo": 1, "baz": 2}, ["move /foo /bar"], {"bar": 1, "baz": 2}),
    ({"foo": None}, ["move /foo /bar"], {"bar": None}),
    ({"foo": 1}, ["move /foo /foo"], {"foo": 1}),
    ({"a": [1, 2, 3]}, ["move /a/0 /a/2"], {"a": [2, 3, 1]}),
    ({"a": {"b": 1}, "c": {}}, ["move /a/b /c/d"], {"a": {}, "c": {"d": 1}}),
    ({"a": {"b": 1}}, ["move /a/b /a"], {"a": 1}),
    ({"a": 1}, ["move /no /b"], REFUSED),
    ({"a": {"b": 1}}, ["move /a /a/b/c"], REFUSED),
    ({"foo": None}, ["copy /foo /bar"], {"foo": None, "bar": None}),
    ({"a": [1, {"b": 2}]}, ["copy /a/1 /c"], {"a": [1, {"b": 2}], "c": {"b": 2}}),
    ({"a": {"b": []}}, ["copy /a /c", "add /c/b/- 1"], {"a": {"b": []}, "c": {"b": [1]}}),
    ({"a": {"b": []}}, ["copy /a /c", "add /a/b/- 1"], {"a": {"b": [1]}, "c": {"b": []}}),
    ({"a": [1]}, ["copy /a /a/-"], {"a": [1, [1]]}),
    ({"a": 1}, ["copy /no /b"], REFUSED),
    # testing
    ({"foo": {"b": [1, 2], "a": None}}, ['test /foo {"a":null,"b":[1,2]}'], "the same"),
    ({"foo": None}, ["test /foo null"], "the same"),
    ({"foo": 1}, ["test '' {\"foo\":1}"], "the same"),
    ({"": 1}, ["test / 1"], "the same"),
    ({"foo": [1, 2]}, ["test /foo/1 2"], "the same"),
    ({"a": 1}, ["test /a 1", "add /b 2", "test /b 2"], {"a": 1, "b": 2}),
    ({"foo": {"b": [1, 2]}}, ["test /foo/b [2,1]"], REFUSED),
    ({"foo": {}}, ["test /foo []"], REFUSED),
    ({"foo": None}, ["test /foo false"], REFUSED),
    ({"foo": 0}, ["test /foo false"], REFUSED),
    ({"foo": "10"}, ["test /foo 10"], REFUSED),
    ({"foo": ["a"]}, ['test /foo/00 "a"'], REFUSED),
    ({"foo": 1}, ["test /bar 1"], REFUSED),
    ({"foo": 1}, ["test /foo"], REFUSED),
    ({"a": 1}, ["add /b 2", "test /a 9"], REFUSED),
    # pointers
    ({"a/b": 1, "m~n": 2}, ["test /a~1b 1", "test /m~0n 2"], "the same"),
    ({"~1": 1}, ["test /~01 1"], "the same"),
    ({"c%d": 1, "e^f": 2, 'k"l': 3}, ["test /c%d 1", "test /e^f 2", 'test /k"l 3'], "the same"),
    ({"a~x": 1}, ["remove /a~x"], REFUSED),
    ({"a~": 1}, ["remove /a~"], REFUSED),
    ({"foo": "bar"}, ['test /foo/0 "b"'], REFUSED),
]


@pytest.mark.parametrize(
    ("document", "operations", "after"), CASES, ids=[f"{case[0]} {case[1]}" for case in CASES]
)
def test_operations_do_what_the_suite_says(
    document: Any, operations: list[str], after: Any
) -> None:
    """All or none of them; the given document stays as it is."""
    given = deepcopy(document)
    patch = [operation(text) for text in operations]
    if after is REFUSED:
        with pytest.raises(InvalidRequest):
            apply_json_patch(document, patch)
    else:
        wanted = given if after == "the same" else after
        assert same(wanted, apply_json_patch(document, patch))
    assert same(given, document)


@pytest.mark.parametrize(
    "patch",
    [
        [{"path": "/a", "value": 1}],
        [{"op": "spam", "path": "/a", "value": 1}],
        [{"op": "ADD", "path": "/a", "value": 1}],
        [{"op": 3, "path": "/a", "value": 1}],
        [{"op": "add", "value": 1}],
        [{"op": "add", "path": None, "value": 1}],
        [{"op": "add", "path": ["a"], "value": 1}],
        [{"op": "copy", "path": "/a"}],
        [{"op": "move", "from": None, "path": "/a"}],
    ],
)
def test_what_is_no_operation_is_refused(patch: list[dict[str, Any]]) -> None:
    """Whatever is missing, or of another type."""
    with pytest.raises(InvalidRequest):
        apply_json_patch({"b": 1}, patch)


def test_members_that_nobody_knows_are_left_alone() -> None:
    """The RFC says so; a stage may have a note in its operations."""
    patch = [{"op": "replace", "path": "/a", "value": 2, "spurious": 1, "from": "/b"}]
    assert {"a": 2} == apply_json_patch({"a": 1}, patch)
