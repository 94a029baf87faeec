"""The schema's version and its migrations, in order."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from gnomon.stores._upkeep import Migration, load_migrations

VERSION = 2  # what this program needs
FLOOR = 1  # the oldest program that can use what this one installs


def migrations() -> list[Migration]:
    """All steps, oldest first."""
    return load_migrations(f"{__package__}.migrations")


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
