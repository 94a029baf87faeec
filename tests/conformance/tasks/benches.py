"""Both engines behind one face: what the shared tests are written against."""

from __future__ import annotations

from tests.conformance.tasks.driving import Driver

ENGINES = ("postgres", "sqlite")


class PostgresBench(Driver):
    """The driver of PostgreSQL, with what the shared tests need besides."""

    endless = "SELECT pg_sleep(1000)"

    def do(self, text: str, /) -> None:
        self.user.execute(text.encode())
