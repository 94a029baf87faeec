"""Errors of `sqlite3` become ours here and nowhere else; the cause is kept."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from gnomon.model.errors import BugError, GnomonError, SchemaMismatch, StoreUnavailable
from gnomon.stores.sqlite.schema import VERSION


@contextmanager
def translated_errors() -> Iterator[None]:
    """Whatever the driver raises inside leaves as one of ours."""
    try:
        yield
    except sqlite3.Error as exc:
        raise translated(exc) from exc


def translated(exc: sqlite3.Error) -> GnomonError:
    """The error of ours that asks for the right reaction."""
    name = getattr(exc, "sqlite_errorname", "")
    match exc:
        case sqlite3.OperationalError() if str(exc).startswith("no such table"):
            return SchemaMismatch(found=0, expected=VERSION)
        case sqlite3.OperationalError() if name != "SQLITE_ERROR":
            return StoreUnavailable(f"SQLite did not do it: {exc} ({name}); safe to repeat")
        case sqlite3.ProgrammingError() if "closed" in str(exc):
            return StoreUnavailable("the store is closed")
        case sqlite3.IntegrityError():
            return BugError(f"stored data would break a rule of the schema: {exc}")
        case sqlite3.DatabaseError() if name in ("SQLITE_CORRUPT", "SQLITE_NOTADB"):
            return StoreUnavailable(f"the file cannot be read as a database: {exc}")
        case _:
            return BugError(f"SQLite refused a statement: {exc}")
