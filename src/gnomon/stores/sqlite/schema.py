"""The schema's version and its migrations, in order."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from importlib import resources
from typing import NamedTuple

VERSION = 2  # what this program needs
FLOOR = 1  # the oldest program that can use what this one installs

_FILE = re.compile(r"(?P<version>\d{4})_(?P<name>\w+)\.sql")


class SqliteMigration(NamedTuple):
    """One step of the schema."""

    version: int
    name: str
    statements: tuple[str, ...]


def migrations() -> list[SqliteMigration]:
    """All steps, oldest first."""
    steps = []
    for entry in resources.files(f"{__package__}.migrations").iterdir():
        match = _FILE.fullmatch(entry.name)
        if match:
            statements = tuple(split(entry.read_text("utf-8")))
            steps.append(SqliteMigration(int(match["version"]), entry.name[:-4], statements))
    return sorted(steps)


def split(script: str) -> Iterator[str]:
    """The statements of a script; `executescript` would commit what is open."""
    statement = ""
    for line in script.splitlines(keepends=True):
        if not statement and (not line.strip() or line.startswith("--")):
            continue
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement.strip()
            statement = ""
