"""Result text and error text; the original's recorded cases are in tests/conformance/tasks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.model.task import GroupKey, Task
from gnomon.model.task.text import (
    LARGE,
    ErrorFields,
    ResultText,
    ResultTooLarge,
    as_text,
    error_text,
    plain_error,
)

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
PLAIN: dict[str, Any] = {
    "header": True, "string": True, "delimiter": "\t", "quote": "", "escape": "", "null": "\\N",
}  # fmt: skip


def result(bytes_max: int = 1_000, **columns: Any) -> ResultText:
    task = Task(
        id=1, key=GroupKey("group"), input="", plan=MOMENT, start=MOMENT, max=0, count=0,
        live_s=0.0, timeout=timedelta(0), save=False, **{**PLAIN, **columns},
    )  # fmt: skip
    return ResultText(task, bytes_max=bytes_max)


def rendered(rows: list[list[bytes | None]], **columns: Any) -> str | None:
    text = result(**columns)
    text.begin([b"a", b"b"][: len(rows[0])], [True, False][: len(rows[0])])
    text.add(rows)
    return text.text()


def test_nothing_at_all_is_none() -> None:
    """No statement, or only such as return no rows: no text, not an empty one."""
    text = result()
    assert text.text() is None
    text.begin([b"a"], [True])
    text.add([])
    assert text.text() is None


def test_an_empty_value_is_an_empty_text() -> None:
    assert "" == rendered([[b""]])


def test_a_line_break_comes_only_after_something() -> None:
    """Leading empty values vanish, those that follow do not: the original's rule."""
    assert "x\n" == rendered([[b""], [b""], [b"x"], [b""]])


def test_names_are_shown_from_two_columns_on_and_only_with_rows() -> None:
    assert "a\tb\n1\t2" == rendered([[b"1", b"2"]])
    assert "1\t2" == rendered([[b"1", b"2"]], header=False)


def test_rows_of_one_statement_have_one_header() -> None:
    """Also when they come in pieces."""
    text = result()
    text.begin([b"a", b"b"], [True, True])
    text.add([[b"1", b"2"]])
    text.add([[b"3", b"4"]])
    text.tag(b"UPDATE 2")
    assert "a\tb\n1\t2\n3\t4\nUPDATE 2" == text.text()


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"quote": '"'}, '"a"\t"b"\n"x"\t1'),
        ({"quote": '"', "string": False}, '"a"\t"b"\n"x"\t"1"'),
        ({"string": False}, "a\tb\nx\t1"),
        ({"delimiter": "; "}, "a;b\nx;1"),
        ({"delimiter": "→"}, "a\ufffdb\nx\ufffd1"),
        ({"delimiter": ""}, "a"),
        ({"delimiter": "\udce2"}, "a\ufffdb\nx\ufffd1"),
    ],
)
def test_columns_of_the_row_form_the_text(columns: dict[str, Any], expected: str) -> None:
    """Of quote, escape and delimiter the first byte counts; an empty delimiter ends the text."""
    assert expected == rendered([[b"x", b"1"]], **columns)


@pytest.mark.parametrize(
    ("quote", "escape", "expected"),
    [
        ('"', "\\", '"a\\"b\\\\c"'),
        ('"', '"', '"a""b\\c"'),
        ('"', "", '"a"b\\c"'),
        ("", "\\", 'a"b\\c'),
    ],
)
def test_escape_works_within_quotes_only(quote: str, escape: str, expected: str) -> None:
    assert expected == rendered([[b'a"b\\c']], quote=quote, escape=escape)


def test_null_is_never_quoted() -> None:
    assert '"a"\t"b"\nnil\t"x"' == rendered([[None, b"x"]], quote='"', string=False, null="nil")


def test_copied_rows_are_taken_as_they_are() -> None:
    text = result()
    text.raw(b"1\t2\n")
    assert "1\t2\n" == text.text()


def test_a_text_may_have_so_many_bytes_and_no_more() -> None:
    """Line breaks and bytes of COPY count too."""
    text = result(bytes_max=5)
    text.begin([b"a"], [True])
    text.add([[b"12"], [b"34"]])
    assert "12\n34" == text.text()
    with pytest.raises(ResultTooLarge, match="larger than 5 bytes"):
        text.tag(b"")
    with pytest.raises(ResultTooLarge):
        text.raw(b"x")
    with pytest.raises(ResultTooLarge):
        text.add([[b""]])


@given(st.lists(st.lists(st.one_of(st.none(), st.binary(max_size=5)), min_size=2, max_size=2)))
def test_any_bytes_give_a_text_that_can_be_stored(rows: list[list[bytes | None]]) -> None:
    """UTF-8 without a zero, whatever the database has."""
    text = result(bytes_max=1_000_000)
    text.begin([b"a", b"b"], [True, True])
    text.add(rows)
    found = text.text()
    assert (found is None) == (not rows)
    assert found is None or ("\x00" not in found and found.encode())


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert "a\ufffd" == as_text(b"a\xff\x00b")


FIELDS = ErrorFields(
    message="boom\nagain", sqlstate="22012", detail="d1\nd2", hint="h", query="SELECT 1",
    query_position="8", context="c", function="int4div", file="int.c", line="869",
)  # fmt: skip


def test_an_error_has_its_parts_in_the_order_of_the_log() -> None:
    """Two blanks after each colon, and a tab after each line break within a part."""
    expected = (
        "ERROR:  boom\n\tagain at character 8\nDETAIL:  d1\n\td2\nHINT:  h\nQUERY:  SELECT 1\n"
        "CONTEXT:  c\nSTATEMENT:  SELECT\n\t1"
    )
    assert expected == error_text(FIELDS, statement="SELECT\n1")


def test_verbosity_adds_and_drops_parts() -> None:
    terse = "ERROR:  boom\n\tagain at character 8\nSTATEMENT:  s"
    assert terse == error_text(FIELDS, statement="s", verbosity="terse")
    verbose = error_text(FIELDS, statement="s", verbosity="verbose")
    assert verbose.startswith("ERROR:  22012: boom\n")
    assert verbose.endswith("CONTEXT:  c\nLOCATION:  int4div, int.c:869\nSTATEMENT:  s")


def test_a_place_in_the_input_goes_before_one_in_a_query() -> None:
    fields = ErrorFields(message="m", position="3", query_position="8")
    assert "ERROR:  m at character 3" == error_text(fields)


@pytest.mark.parametrize("part", ["message", "detail", "hint", "query", "context", "statement"])
def test_a_part_of_an_error_is_cut_where_it_is_too_long(part: str) -> None:
    """No input and no server makes a step with an error text longer than it may be."""
    whole, cut = (error_with(part, "\n" * count) for count in (LARGE, LARGE + 1))
    shown = "\n\t" * LARGE
    assert shown in whole
    assert whole.replace(shown, f"{shown}… ({LARGE + 1} characters)") == cut


def error_with(part: str, text: str) -> str:
    if part == "statement":
        return error_text(ErrorFields(message="m"), statement=text)
    return error_text(ErrorFields(**{"message": "m", part: text}))


@pytest.mark.parametrize(("quote", "escape"), [("'", "'"), ("'", "\\"), ("'", "")])
def test_a_large_value_is_quoted_in_steps(quote: str, escape: str) -> None:
    """No step quotes more than LARGE bytes, and the text is the same as that of one step."""
    text = result(bytes_max=10 * LARGE, quote=quote, escape=escape)
    text.begin([b"a"], [True])
    steps = text.adding([[quote.encode() * (2 * LARGE + 1)]])
    assert 3 == sum(1 for _ in steps)
    assert f"{quote}{(escape + quote) * (2 * LARGE + 1)}{quote}" == text.text()


def test_errors_of_our_own_have_the_same_form() -> None:
    assert "ERROR:  m\nDETAIL:  d" == plain_error("m", "d")
