"""Errors of one cause have one fingerprint."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.model.fingerprint import FINGERPRINT_CHARS_MAX, fingerprint_of


@pytest.mark.parametrize(
    ("one", "other", "fingerprint"),
    [
        (
            "HTTP 503 from https://a.example/x?id=1 after 12.5 s",
            "HTTP 502 from http://b.example:8080/ after 3 s",
            "HTTP <n> from <address> after <n> s",
        ),
        (
            "cannot connect to 10.0.0.7:5432",
            "cannot connect to [fe80::1]:5432",
            "cannot connect to <address>",
        ),
        ("KeyError: 'customer-17'", "KeyError: 'x'", "KeyError: <text>"),
        (
            "order 7f9c24e5-1b2d-4c3e-9f00-aabbccddeeff is gone",
            "order deadbeef01 is gone",
            "order <id> is gone",
        ),
        ("no mailbox ann@shop.example", "no mailbox bob.b@mail.example", "no mailbox <address>"),
        ("can't read\n  row 12", "can't read row 900", "can't read row <n>"),
        ("<Thing at 0x7f01>", "<Thing at 0xab>", "<Thing at <id>>"),
    ],
)
def test_what_differs_each_time_is_left_out(one: str, other: str, fingerprint: str) -> None:
    """Numbers, ids, addresses, quoted text, line breaks."""
    assert fingerprint == fingerprint_of(one) == fingerprint_of(other)


def test_words_tell_errors_apart() -> None:
    """`decade` and `facade` are no numbers in hexadecimal."""
    errors = ["connection refused", "connection reset", "no facade", "no decade", "effaced defaced"]
    assert len(errors) == len({fingerprint_of(error) for error in errors})


@given(st.text(max_size=5_000))
def test_whatever_the_text_it_is_short_and_in_one_line(error: str) -> None:
    """And stable: the fingerprint of a fingerprint is the same, unless it was cut."""
    found = fingerprint_of(error)
    assert len(found) <= FINGERPRINT_CHARS_MAX
    assert found.splitlines() in ([], [found])
    if len(found) < FINGERPRINT_CHARS_MAX - len("<address>"):
        assert found == fingerprint_of(found)


@pytest.mark.parametrize("part", ["'", '"a', "1.", "f", "a@", "a.", "://", "[:", "0x", "1" * 100])
def test_hostile_texts_cost_no_more_than_others(part: str) -> None:
    """Nobody holds up a server by what his service answers: a walk without end would not end."""
    assert len(fingerprint_of(part * (2_000_000 // len(part)))) <= FINGERPRINT_CHARS_MAX
