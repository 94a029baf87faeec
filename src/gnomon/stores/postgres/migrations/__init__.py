"""The schema's version and its migrations, in order."""

from __future__ import annotations

import re
from importlib import resources
from typing import NamedTuple

VERSION = 2  # what this program needs
FLOOR = 1  # the oldest program that can use what this one installs

_FILE = re.compile(r"(?P<version>\d{4})_\w+\.sql")


class PostgresMigration(NamedTuple):
    """One step of the schema."""

    version: int
    name: str
    script: str


def migrations() -> list[PostgresMigration]:
    """All steps, oldest first."""
    steps = []
    for entry in resources.files(__package__).iterdir():
        match = _FILE.fullmatch(entry.name)
        if match:
            name = entry.name.removesuffix(".sql")
            steps.append(PostgresMigration(int(match["version"]), name, entry.read_text("utf-8")))
    return sorted(steps)
