"""Functions as the programs that serve them describe them: for forms, and for people.

A program publishes what it serves, again and again; what nobody has published for a while is
forgotten. Nothing is decided by it: an action may call a function that nobody has published.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

FUNCTIONS_MAX = 500  # of a program
PARAMETERS_MAX = 50
SUMMARY_CHARS_MAX = 200
SCHEMA_CHARS_MAX = 2_000  # a larger one is left out: then the form takes any JSON
DEFAULT_CHARS_MAX = 500
TEXT_CHARS_MAX = 256 * 1024  # of all functions of a program


class FunctionParameter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An argument that a function takes, besides its attempt."""

    name: str
    required: bool = False
    place: int | None = None  # None: by name only
    named: bool = True  # False: by place only
    schema: dict[str, Any] = msgspec.field(default_factory=dict)  # in JSON; empty: anything
    default: Any = msgspec.UNSET  # unset as well if it has no short form in JSON


class FunctionRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a function is called with."""

    name: str
    summary: str = ""  # the first line of what it says of itself
    parameters: tuple[FunctionParameter, ...] = ()
    takes_more: bool = False  # *args or **kwargs
    program: str = ""  # that serves it


class FunctionSet(msgspec.Struct, frozen=True):
    """What one release of a program serves, and since when."""

    program: str
    functions: tuple[FunctionRecord, ...]
    began_at: datetime


_DECODER = msgspec.json.Decoder(tuple[FunctionRecord, ...])


def encode_functions(functions: Sequence[FunctionRecord]) -> tuple[str, int]:
    """As they are stored, and how many were left out because there are too many."""
    kept: list[bytes] = []
    size = 2
    for function in sorted(functions, key=lambda one: one.name)[:FUNCTIONS_MAX]:
        text = msgspec.json.encode(function)
        size += len(text) + 1
        if size > TEXT_CHARS_MAX:
            break
        kept.append(text)
    return f"[{b','.join(kept).decode()}]", len(functions) - len(kept)


def read_functions(text: str) -> tuple[FunctionRecord, ...]:
    """The other way. What another version wrote otherwise is no reason to fail: then it is as if it
    had published nothing."""
    try:
        return _DECODER.decode(text)
    except msgspec.MsgspecError:
        return ()


def newest_functions(sets: Iterable[FunctionSet]) -> list[FunctionRecord]:
    """By name; of a name that several serve, as the one says that began last."""
    newest: dict[str, FunctionRecord] = {}
    for one in sorted(sets, key=lambda one: (one.began_at, one.program)):
        for function in one.functions:
            newest[function.name] = msgspec.structs.replace(function, program=one.program)
    return [newest[name] for name in sorted(newest)]
