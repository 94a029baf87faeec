"""The measures of a SQLite file."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from gnomon.contracts.store import StoreMeasures
from gnomon.stores.sqlite.connection import MEMORY
from gnomon.stores.sqlite.queries import fetch
from gnomon.stores.sqlite.verbs import Connection


def read_measures(connection: Connection, *, path: str, now: datetime) -> StoreMeasures:
    """By the file's own head: how large single tables are is not known without reading them."""
    (pages,) = fetch(connection, "measure_pages")
    return StoreMeasures(
        engine="sqlite",
        at=now,
        bytes=pages["page_count"] * pages["page_size"],
        free_bytes=pages["freelist_count"] * pages["page_size"],
        log_bytes=_log_bytes(path),
    )


def _log_bytes(path: str) -> int:
    """The write-ahead log goes when the last connection does."""
    log = Path(f"{path}-wal")
    return log.stat().st_size if path != MEMORY and log.exists() else 0
