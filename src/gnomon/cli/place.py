"""On which installation a command acts: said in one line, before it does anything."""

from __future__ import annotations

from pathlib import Path

from gnomon.app import sqlite_path
from gnomon.cli.output import say
from gnomon.config import DEFAULT, Settings


def installation_text(settings: Settings) -> str:
    """Engine, place and schema without the password, and who named it."""
    database = settings.database
    source = settings.source_of("database.url")
    by = "by default" if source == DEFAULT else f"by {source}"
    if database.is_memory:
        return f"SQLite in memory, {by}"
    if database.engine == "sqlite":
        return f"SQLite {Path(sqlite_path(database.url)).absolute()}, {by}"
    return f"PostgreSQL {database.url_shown}, schema {database.schema}, {by}"


def say_installation(settings: Settings) -> None:
    """Which one this command opens."""
    say(f"on {installation_text(settings)}")


def say_server(url: str) -> None:
    """Which server this command calls; that one knows its database."""
    say(f"on the server {url}")
