"""SQL tasks in a SQLite file of their own."""

from gnomon.tasks.sqlite.table import SqliteTaskTable

__all__ = ["SqliteTaskTable"]
