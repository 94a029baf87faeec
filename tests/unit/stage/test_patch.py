"""Patches: RFC 7396 and RFC 6902."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from gnomon.model.errors import InvalidRequest
from gnomon.model.stage.json_patch import apply_json_patch
from gnomon.model.stage.patch import apply_patch, touched_paths
from gnomon.model.stage.paths import meet, same
from tests.unit.stage.test_paths import DOCUMENTS


@pytest.mark.parametrize(
    ("document", "patch", "after"),
    [  # from RFC 7396, appendix A, where both are objects
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch_is_that_of_the_rfc(
    document: dict[str, Any], patch: dict[str, Any], after: dict[str, Any]
) -> None:
    """Null deletes, objects merge, everything else replaces; the given document stays."""
    kept = repr(document)
    assert after == apply_patch(document, patch)
    assert kept == repr(document)


@pytest.mark.parametrize(
    ("document", "patch", "after"),
    [
        ({"a": 1}, [{"op": "add", "path": "/b", "value": 2}], {"a": 1, "b": 2}),
        ({"a": [1, 2]}, [{"op": "add", "path": "/a/1", "value": 9}], {"a": [1, 9, 2]}),
        ({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
        ({"a": [1, 2]}, [{"op": "remove", "path": "/a/0"}], {"a": [2]}),
        ({"a": 1}, [{"op": "replace", "path": "/a", "value": None}], {"a": None}),
        ({"a": [1]}, [{"op": "replace", "path": "/a/0", "value": 3}], {"a": [3]}),
        ({"a": 1}, [{"op": "move", "from": "/a", "path": "/b"}], {"b": 1}),
        ({"a": {"x": 1}}, [{"op": "copy", "from": "/a/x", "path": "/b"}], {"a": {"x": 1}, "b": 1}),
        ({"a/b": 1}, [{"op": "replace", "path": "/a~1b", "value": 2}], {"a/b": 2}),
        ({"a": 1}, [{"op": "test", "path": "/a", "value": 1}], {"a": 1}),
    ],
)
def test_json_patch_is_that_of_the_rfc(
    document: dict[str, Any], patch: list[dict[str, Any]], after: dict[str, Any]
) -> None:
    """Each operation does what RFC 6902 says, and leaves the given document alone."""
    kept = repr(document)
    assert after == apply_patch(document, patch)
    assert kept == repr(document)


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/a", "value": True},
        {"op": "remove", "path": "/nothing"},
        {"op": "replace", "path": "/nothing", "value": 1},
        {"op": "add", "path": "/list/9", "value": 1},
        {"op": "add", "path": "/list/01", "value": 1},
        {"op": "add", "path": "a", "value": 1},
        {"op": "add", "path": "/b"},
        {"op": "move", "path": "/b"},
        {"op": "move", "from": "/list", "path": "/list/0"},
        {"op": "remove", "path": ""},
        {"op": "add", "path": "", "value": 3},
        {"op": "destroy", "path": "/a"},
        {},
    ],
)
def test_bad_json_patch_is_refused(operation: dict[str, Any]) -> None:
    """What cannot be applied says so, and changes nothing."""
    document = {"a": 1, "list": [0]}
    with pytest.raises(InvalidRequest):
        apply_patch(document, [operation])
    assert {"a": 1, "list": [0]} == document


@given(DOCUMENTS, DOCUMENTS, DOCUMENTS)
def test_disjoint_merge_patches_commute(
    document: dict[str, Any], one: dict[str, Any], other: dict[str, Any]
) -> None:
    """Patches that touch different paths give the same document in either order."""
    if meet(touched_paths(one), touched_paths(other)):
        return
    there = apply_patch(apply_patch(document, one), other)
    back = apply_patch(apply_patch(document, other), one)
    assert same(there, back)


@given(DOCUMENTS, DOCUMENTS)
def test_a_merge_patch_applied_twice_is_applied_once(
    document: dict[str, Any], patch: dict[str, Any]
) -> None:
    """Repeating a patch after an unknown answer is harmless."""
    once = apply_patch(document, patch)
    assert same(once, apply_patch(once, patch))


def test_touched_paths_of_a_json_patch_end_at_the_first_index() -> None:
    """Lists are leaves, and a test touches nothing."""
    patch: list[dict[str, Any]] = [
        {"op": "add", "path": "/a/0/b", "value": 1},
        {"op": "test", "path": "/z", "value": 1},
        {"op": "move", "from": "/c", "path": "/d/e"},
    ]
    assert ("a", "c", "d.e") == touched_paths(patch)


def test_a_list_at_the_top_can_be_patched_as_plain_json() -> None:
    """The RFC's patches know no entities."""
    assert [1, 2] == apply_json_patch([1], [{"op": "add", "path": "/-", "value": 2}])
