"""Arguments of actions as people name them in a filter: `customer.id=7`.

A path is names with dots between them; a number is a place in a list. It leads into what an effect
is given: a function's arguments by name or by place, the JSON of a request or a message, the
payload of a call or a push, the parameters of a statement.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from gnomon.model.errors import InvalidSpec

PATH_PARTS_MAX = 10
PATH_CHARS_MAX = 200
ARGUMENTS_MAX = 8  # conditions of one selection
VALUE_CHARS_MAX = 1_000

# Where an effect keeps what it is given.
BY_NAME = ("kwargs", "json", "payload")
BY_PLACE = ("args", "parameters", "json", "payload")

_NAME = re.compile(r"""[^\x00-\x20."'\\\[\]$=*]{1,100}""")
_PLACE = re.compile(r"0|[1-9][0-9]{0,5}", re.ASCII)
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,2})?", re.ASCII)
_WORDS = {"true": True, "false": False, "null": None}

Path = tuple[str | int, ...]
Scalar = str | int | float | bool | None


class ArgumentFilter(NamedTuple):
    """Where to look, and what is to be there: the text itself, or the number, `true`, `false` or
    `null` that it spells."""

    path: Path
    text: str
    has_plain: bool  # whether the text spells something that is no text
    plain: Scalar
    places: tuple[tuple[str, int], ...] = ()  # functions that take the argument by place, too

    @property
    def paths(self) -> list[Path]:
        """From the effect on."""
        roots = BY_NAME if isinstance(self.path[0], str) else BY_PLACE
        return [(root, *self.path) for root in roots]

    @property
    def paths_by_function(self) -> list[tuple[str, Path]]:
        """The same for calls of these functions alone."""
        return [(name, ("args", place, *self.path[1:])) for name, place in self.places]


def read_arguments(texts: Iterable[str], where: str) -> dict[str, str]:
    """`path=value` texts as a mapping. Errors: InvalidSpec."""
    arguments = {}
    for text in texts:
        path, equals, value = text.partition("=")
        if not equals:
            raise InvalidSpec(where, "must be path=value such as customer.id=7", got=text)
        filter_of(path, value, where)
        arguments[path] = value
    check_count(len(arguments), where)
    return arguments


def check_count(count: int, where: str) -> None:
    """Errors: InvalidSpec."""
    if count > ARGUMENTS_MAX:
        raise InvalidSpec(where, f"at most {ARGUMENTS_MAX} arguments can be asked for", got=count)


def filter_of(path: str, value: str, where: str = "arguments") -> ArgumentFilter:
    """What a path and a value ask for. Errors: InvalidSpec."""
    if len(value) > VALUE_CHARS_MAX or "\x00" in value:
        raise InvalidSpec(where, f"a value has at most {VALUE_CHARS_MAX} characters and no NUL")
    has_plain = value in _WORDS or _NUMBER.fullmatch(value) is not None
    return ArgumentFilter(read_path(path, where), value, has_plain, _plain(value))


def read_path(text: str, where: str) -> Path:
    """Errors: InvalidSpec."""
    parts = text.split(".")
    if len(text) > PATH_CHARS_MAX or len(parts) > PATH_PARTS_MAX:
        problem = f"a path has at most {PATH_PARTS_MAX} parts and {PATH_CHARS_MAX} characters"
        raise InvalidSpec(where, problem, got=text)
    if not all(_NAME.fullmatch(part) for part in parts):
        raise InvalidSpec(
            where, "a path is names with dots between them such as customer.id or items.0", got=text
        )
    return tuple(int(part) if _PLACE.fullmatch(part) else part for part in parts)


def _plain(text: str) -> Scalar:
    if text in _WORDS:
        return _WORDS[text]
    if not _NUMBER.fullmatch(text):
        return None
    whole = int(text) if text.lstrip("-").isdecimal() else None
    return float(text) if whole is None or abs(whole) >= 2**63 else whole
