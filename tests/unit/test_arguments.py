"""Arguments as people name them in a filter."""

from __future__ import annotations

import pytest

from gnomon.model.arguments import ARGUMENTS_MAX, filter_of, read_arguments
from gnomon.model.errors import InvalidSpec


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("17", 17),
        ("-2.50", -2.5),
        ("1e3", 1000.0),
        ("true", True),
        ("false", False),
        ("null", None),
    ],
)
def test_a_value_is_a_text_and_what_it_spells(text: str, plain: object) -> None:
    """Who filters does not know which of them is stored."""
    match = filter_of("order", text)
    assert (text, True, plain) == (match.text, match.has_plain, match.plain)


@pytest.mark.parametrize("text", ["", "017", "1.", "+1", "0x1", "True", "1e999", "nan", "9" * 40])
def test_other_values_are_texts_alone(text: str) -> None:
    """A number that no engine could hold among them."""
    assert not filter_of("order", text).has_plain


def test_a_number_is_a_place_in_a_list() -> None:
    """First of all a place among those that are given without a name."""
    assert [("args", 0), ("parameters", 0), ("json", 0), ("payload", 0)] == filter_of(
        "0", "x"
    ).paths
    assert ("kwargs", "items", 3, "id") == filter_of("items.3.id", "x").paths[0]


def test_the_value_may_hold_what_a_path_may_not() -> None:
    """The first `=` divides them."""
    assert {"a.b": "c=d.e"} == read_arguments(["a.b=c=d.e"], "argument")


@pytest.mark.parametrize("text", ["", "order", "=17", ".a=1", "a.=1", "a b=1", "a'=1", "a.*=1"])
def test_what_is_no_argument_is_refused(text: str) -> None:
    """With the place where it was said."""
    with pytest.raises(InvalidSpec, match=r"^query\.argument: "):
        read_arguments([text], "query.argument")


def test_there_are_only_so_many() -> None:
    """Each costs a look at every row."""
    with pytest.raises(InvalidSpec, match="at most"):
        read_arguments([f"a{number}=1" for number in range(ARGUMENTS_MAX + 1)], "argument")
