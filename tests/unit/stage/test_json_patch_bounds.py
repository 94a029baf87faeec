"""A small JSON patch makes no large document, no deep one, and no long work."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.model.errors import InvalidRequest
from gnomon.model.stage.json_patch import (
    DOCUMENT_BYTES_MAX,
    OPERATIONS_MAX,
    apply_json_patch,
)
from gnomon.model.stage.patch import touched_paths
from gnomon.model.stage.paths import PATH_CHARS_MAX, changed_paths, covers, same

LARGE = {"a": "x" * (DOCUMENT_BYTES_MAX * 2 // 5)}


@pytest.mark.parametrize(
    ("document", "patch", "reason"),
    [
        pytest.param(
            {"a": list(range(10))},
            [{"op": "copy", "from": "", "path": f"/k{n}"} for n in range(18)],
            "larger than",
            id="each copy doubles it",
        ),
        pytest.param(
            LARGE,
            [{"op": "copy", "from": "/a", "path": "/b"}, {"op": "remove", "path": "/b"}] * 15
            + [{"op": "copy", "from": "/a", "path": f"/{n}"} for n in "bc"],
            "larger than",
            id="what was removed is not counted twice",
        ),
        pytest.param(
            LARGE,
            [{"op": "copy", "from": "/a", "path": "/b"}] * 30,
            "copies and moves more",
            id="the same copy for ever",
        ),
        pytest.param(
            {},
            [{"op": "copy", "from": "", "path": "/a" * n} for n in range(1, 40)],
            "nested deeper",
            id="each copy lies deeper",
        ),
        pytest.param(
            {},
            [{"op": "add", "path": "", "value": {"a": 1}}] * (OPERATIONS_MAX + 1),
            "operations, at most",
            id="too many operations",
        ),
        pytest.param(
            {"a": [1]},
            [{"op": "remove", "path": "/a/" + "9" * 5_000}],
            "there is no",
            id="an index that Python does not read",
        ),
    ],
)
def test_a_patch_has_bounds(document: object, patch: list[dict[str, Any]], reason: str) -> None:
    """What would make too much is refused before it is made, with a short message."""
    kept = msgspec.json.encode(document)
    with pytest.raises(InvalidRequest, match=reason) as caught:
        apply_json_patch(document, patch)
    assert 300 > len(str(caught.value))
    assert kept == msgspec.json.encode(document)


def test_a_large_document_may_be_replaced_by_a_large_one() -> None:
    """Only what is there counts, not what was there."""
    patch = [{"op": "replace", "path": "/a", "value": "y" * len(LARGE["a"])}] * 5
    assert {"a": "y" * len(LARGE["a"])} == apply_json_patch(LARGE, patch)
    one_by_one: list[dict[str, Any]] = [
        {"op": "replace", "path": "/a", "value": [LARGE["a"]]},
        {"op": "add", "path": "/a/-", "value": LARGE["a"]},
        {"op": "replace", "path": "/a/1", "value": LARGE["a"]},
        {"op": "remove", "path": "/a/0"},
        {"op": "add", "path": "/a/0", "value": LARGE["a"]},
    ]
    assert {"a": [LARGE["a"]] * 2} == apply_json_patch(LARGE, one_by_one)


POINTERS = st.sampled_from(["", "/a", "/b", "/a/0", "/a/-", "/a/b", "/a/b/0", "/b/a", "/a/0/b"])
VALUES = st.sampled_from([1, [], [1], {}, {"b": [2]}, {"a": {"b": []}}, "text"])
OPERATIONS = st.one_of(
    st.builds(lambda p, v: {"op": "add", "path": p, "value": v}, POINTERS, VALUES),
    st.builds(lambda p, v: {"op": "replace", "path": p, "value": v}, POINTERS, VALUES),
    st.builds(lambda p: {"op": "remove", "path": p}, POINTERS),
    st.builds(lambda f, p: {"op": "copy", "from": f, "path": p}, POINTERS, POINTERS),
    st.builds(lambda f, p: {"op": "move", "from": f, "path": p}, POINTERS, POINTERS),
)


@given(VALUES, st.lists(OPERATIONS, max_size=8))
def test_a_copy_is_a_value_of_its_own(document: object, patch: list[dict[str, Any]]) -> None:
    """Sharing inside shows nowhere: each operation on copies of everything gives the same."""
    kept, wanted = deepcopy((document, patch)), document
    done: list[dict[str, Any]] = []
    for operation in patch:
        try:
            wanted = apply_json_patch(deepcopy(wanted), [deepcopy(operation)])
        except InvalidRequest:
            continue
        done.append(operation)
    assert same(wanted, apply_json_patch(document, done))
    assert kept == (document, patch)


def test_a_long_key_is_not_repeated_for_each_key_below_it() -> None:
    """Else 600 kB of keys made 25 GB of paths; what lies above a long path stands for it."""
    before = {"k" * 500_000: {str(n): n for n in range(9_000)}, "b": {"c" * 2_000: 1}}
    after = {"k" * 500_000: {str(n): 0 for n in range(9_000)}, "b": {"c" * 2_000: 2}}
    assert ("",) == changed_paths(before, after) == touched_paths(after)
    assert ("b",) == changed_paths({**before, "b": 1}, {**before, "b": {"c" * 2_000: 2}})
    [path] = touched_paths([{"op": "remove", "path": "/a" * 10_000}])
    assert PATH_CHARS_MAX >= len(path)
    assert covers("a.a", path)
