"""An input as SQLite reads it: where its statements end, and what each of them is called.

SQLite performs one statement at a time and gives no command tags, so both are worked out here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_TOKEN = re.compile(
    r"""
    (?P<space>\s+ | --[^\n]* | /\*.*?(?:\*/|\Z))
    | (?P<quoted>
        '[^']*(?:''[^']*)*(?:'|\Z) | "[^"]*(?:""[^"]*)*(?:"|\Z)
        | `[^`]*(?:``[^`]*)*(?:`|\Z) | \[[^\]]*(?:\]|\Z)
    )
    | (?P<word>[^\W\d][\w$]*)
    | (?P<mark>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_AFTER_WITH = frozenset({"SELECT", "VALUES", "INSERT", "REPLACE", "UPDATE", "DELETE"})
_ADJECTIVES = frozenset({"TEMP", "TEMPORARY", "UNIQUE", "VIRTUAL"})
_WORDS_KEPT = 6  # CREATE TEMP TRIGGER …: enough to know what a statement is
_COUNTED = {"INSERT": "INSERT 0 ", "REPLACE": "INSERT 0 ", "UPDATE": "UPDATE ", "DELETE": "DELETE "}
_SAME = {"END": "COMMIT"}


class ParsedStatement(NamedTuple):
    """One statement of an input."""

    text: str
    verb: str  # its first word, of a WITH the one after the list; capital letters
    object: str = ""  # of CREATE, DROP and ALTER: TABLE, INDEX, …; of ROLLBACK: TO

    def tag(self, changed: int) -> str:
        """What PostgreSQL would say when it is done."""
        if self.verb in _COUNTED:
            return f"{_COUNTED[self.verb]}{max(changed, 0)}"
        if self.verb in ("CREATE", "DROP", "ALTER"):
            return f"{self.verb} {self.object}".rstrip()
        return self.verb


class _Open:
    """The statement that is being read."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.words: list[str] = []  # the first ones outside parentheses
        self.verb = ""
        self.depth = 0
        self.last_two = ("", "")
        self.is_empty = True

    def add(self, piece: str, *, is_word: bool) -> None:
        self.is_empty = False
        if piece == "(":
            self.depth += 1
        elif piece == ")":
            self.depth -= 1
        word = piece.upper() if is_word else piece
        self.last_two = (self.last_two[1], word)
        if is_word and self.depth == 0:
            self._add_word(word)

    def _add_word(self, word: str) -> None:
        if len(self.words) < _WORDS_KEPT:
            self.words.append(word)
        if not self.verb and (self.words[0] != "WITH" or word in _AFTER_WITH):
            self.verb = _SAME.get(word, word)

    @property
    def ends_here(self) -> bool:
        """Whether a semicolon ends it; that of a trigger does only after END."""
        is_trigger = "TRIGGER" in self.words[:4] and "CREATE" in self.words[:3]
        return not is_trigger or self.last_two == (";", "END")

    def closed(self, text: str) -> ParsedStatement:
        rest = [word for word in self.words[1:] if word not in _ADJECTIVES]
        if self.verb == "ROLLBACK":
            return ParsedStatement(text, self.verb, "TO" if "TO" in rest else "")
        return ParsedStatement(text, self.verb, rest[0] if rest else "")


def split(text: str) -> Iterator[ParsedStatement]:
    """The statements of an input, without what is only space and comment."""
    current = _Open(0)
    for token in _TOKEN.finditer(text):
        kind, piece = token.lastgroup, token[0]
        if kind == "space":
            continue
        if piece == ";" and current.ends_here:
            if not current.is_empty:
                yield current.closed(text[current.start : token.start()].strip())
            current = _Open(token.end())
        else:
            current.add(piece, is_word=kind == "word")
    if not current.is_empty:
        yield current.closed(text[current.start :].strip())
