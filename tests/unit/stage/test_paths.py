"""Paths: what a change touched, and whose business it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.model.stage.paths import PATHS_MAX, changed_paths, covers, join, meet, outside, same

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab.\\", max_size=2),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.text("ab.\\", max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)
DOCUMENTS = st.dictionaries(st.text("abc.\\", min_size=1, max_size=2), JSON, max_size=4)


@pytest.mark.parametrize(
    ("before", "after", "paths"),
    [
        ({}, {}, ()),
        ({"a": 1}, {"a": 1}, ()),
        ({"a": 1}, {"a": 2}, ("a",)),
        ({"a": 1}, {}, ("a",)),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, ("a.c",)),
        ({"a": [1, 2]}, {"a": [1, 3]}, ("a",)),
        ({"a": 1}, {"a": True}, ("a",)),
        ({"a": 1}, {"a": 1.0}, ("a",)),
        ({"a": None}, {}, ("a",)),
        ({"a.b": 1}, {"a.b": 2}, ("a\\.b",)),
    ],
)
def test_changed_paths_are_the_leaves_that_differ(
    before: object, after: object, paths: tuple[str, ...]
) -> None:
    """Each leaf that differs is named; lists are leaves; 1, 1.0 and true are different."""
    assert paths == changed_paths(before, after)


def test_many_changes_are_told_by_their_first_keys() -> None:
    """A change with more leaves than a note can hold is told more coarsely, never less."""
    after = {"wide": {str(n): n for n in range(PATHS_MAX + 1)}}
    assert ("wide",) == changed_paths({"wide": {}}, after)
    assert ("",) == changed_paths({}, {str(n): n for n in range(PATHS_MAX + 1)})


@given(DOCUMENTS, DOCUMENTS)
def test_no_changed_path_means_the_same_document(before: object, after: object) -> None:
    """The list is empty exactly for equal documents."""
    assert same(before, after) == (not changed_paths(before, after))


@given(st.lists(st.text("ab.\\", min_size=1, max_size=3), min_size=1, max_size=3), st.text("ab.\\"))
def test_a_key_lies_below_its_parent_whatever_it_is_called(keys: list[str], key: str) -> None:
    """Escaping keeps keys with dots and backslashes apart from nesting."""
    parent = ""
    for each in keys:
        parent = join(parent, each)
    assert covers(parent, join(parent, key))
    assert not covers(parent, parent + "x")


def test_paths_meet_when_one_contains_the_other() -> None:
    """Watching a field hears of its parts and of its whole, not of its namesakes."""
    assert meet(["photos"], ["photos.a"])
    assert meet(["photos.a"], ["photos"])
    assert meet([""], ["price"])
    assert not meet(["photo"], ["photos"])
    assert not meet([], ["photos"])


def test_outside_names_what_is_not_allowed() -> None:
    """A stage may write a declared path and below it, not its parent."""
    assert ["a", "c"] == outside(["a", "a.b", "a.b.x", "c"], ["a.b"])
    assert [] == outside(["a", "c"], [""])
