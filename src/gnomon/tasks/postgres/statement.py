"""Whether an input may share a transaction with its result.

It may if it is one statement that reads or writes rows: nothing in it can end a transaction. A
small scanner decides it, by PostgreSQL's lexical rules; where it is in doubt, the answer is no, and
the server gets the input as it is.
"""

from __future__ import annotations

import re
from functools import lru_cache

SHARING = frozenset(
    {"select", "insert", "update", "delete", "merge", "with", "values", "table"}
)  # fmt: skip

# An input of more is a case of doubt: while it is read, nothing else happens, not even a beat.
TOKENS_MAX = 20_000
CHARS_MAX = 10_000_000
REMEMBERED_CHARS_MAX = 1_000  # tasks of a group are often alike

_START = r"A-Za-z_\x80-\U0010ffff"
_TOKEN = re.compile(
    rf"""
    (?P<space>\s+|--[^\n\r]*)
    |(?P<comment>/\*)
    |(?P<escaped>[eE]'[^'\\]*+(?:(?:''|\\.)[^'\\]*+)*+')
    |(?P<string>'[^']*+(?:''[^']*+)*+')
    |(?P<name>"[^"]*+(?:""[^"]*+)*+")
    |(?P<dollar>\$(?:[{_START}][{_START}0-9]*)?\$)
    |(?P<parameter>\$[0-9]+)
    |(?P<word>[{_START}][{_START}0-9$]*)
    |(?P<number>[0-9][{_START}0-9.]*)
    |(?P<end>;)
    |(?P<opening>\()
    |(?P<other>[^'"])
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_EMPTY = frozenset({"space", "comment"})


def shares_transaction(text: str, *, plain_strings: bool = True) -> bool:
    """Whether the input is one statement that a transaction may hold.

    `plain_strings` is the server's `standard_conforming_strings`: without it a backslash in any
    string counts, and a string with one is a case of doubt.
    """
    if len(text) > CHARS_MAX:
        return False
    if len(text) > REMEMBERED_CHARS_MAX:
        return _scan(text, plain_strings)
    return _remembered(text, plain_strings)


@lru_cache(maxsize=1_000)
def _remembered(text: str, plain_strings: bool) -> bool:  # noqa: FBT001
    return _scan(text, plain_strings)


def _scan(text: str, plain_strings: bool) -> bool:  # noqa: FBT001
    at, is_begun, is_ended = 0, False, False
    for _ in range(TOKENS_MAX):
        if at >= len(text):
            return is_begun
        token = _TOKEN.match(text, at)
        if token is None:  # an open quote
            return False
        kind, at = token.lastgroup, token.end()
        if kind == "comment":
            at = _comment_end(text, at)
        elif kind == "dollar":
            at = text.find(token[0], at) + len(token[0])
            if at < len(token[0]):
                return False
        if kind in _EMPTY:
            if at < 0:
                return False
            continue
        if (is_ended and kind != "end") or _is_doubtful(kind, token[0], plain_strings):
            return False
        if not is_begun and kind not in {"opening", "end"}:
            if token[0].lower() not in SHARING:
                return False
            is_begun = True
        is_ended = is_ended or kind == "end"
    return False


def _is_doubtful(kind: str | None, token: str, plain_strings: bool) -> bool:  # noqa: FBT001
    return kind == "parameter" or (kind == "string" and not plain_strings and "\\" in token)


def _comment_end(text: str, at: int) -> int:
    """Behind the comment that begins before `at`; comments nest. -1 if it is open, or too deep."""
    depth = 1
    for _ in range(TOKENS_MAX):
        edge = _COMMENT_EDGE.search(text, at)
        if edge is None:
            return -1
        depth += 1 if edge[0] == "/*" else -1
        at = edge.end()
        if not depth:
            return at
    return -1
