"""The schema's version and its migrations, in order."""

from __future__ import annotations

from gnomon.stores._upkeep import Migration, load_migrations

VERSION = 2  # what this program needs
FLOOR = 1  # the oldest program that can use what this one installs


def migrations() -> list[Migration]:
    """All steps, oldest first."""
    return load_migrations(__name__)
