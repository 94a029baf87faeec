"""Writes what was committed from SQLite's log into its file, beside the writer.

SQLite leaves that to whoever commits, every thousand pages: he waits for the disk three times
instead of once, and pages that change often are written again and again. Here a thread of its own
does it while the writer goes on. The log begins anew only at a moment when all of it is in
the file, and that is for the writer to find: its own bound (`LOG_PAGES_MAX`) is what keeps the log
from growing for ever, and little is left to do when it is reached. Only who reads one snapshot for
long makes it longer; it is cut back when it begins anew.
"""

from __future__ import annotations

import sqlite3
import threading

from gnomon.contracts.observer import Observer

LOG_PAGES_MAX = 16_384  # 64 MiB
# When it is time: about a thousand pages, of which a commit writes some and every few rows one.
# More at once makes commits wait: five times as many stopped them for 0.2 s (a million rows).
CHANGES_MAX = 5_000
COMMIT_COUNTS = 20  # as many changed rows


class Checkpointer:
    """The thread and its connection."""

    def __init__(
        self, writer: sqlite3.Connection, connection: sqlite3.Connection, observer: Observer
    ) -> None:
        """`writer`: who commits, and calls `note` after it."""
        (page_bytes,) = writer.execute("PRAGMA page_size").fetchone()
        writer.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES_MAX}")
        writer.execute(f"PRAGMA journal_size_limit = {LOG_PAGES_MAX * page_bytes}")
        self._connection = connection
        self._observer = observer
        self._changes = 0
        self._changed = writer.total_changes
        self._is_time = threading.Event()
        self._is_closed = False
        self._thread = threading.Thread(
            target=self._keep, name="gnomon-sqlite-checkpointer", daemon=True
        )
        self._thread.start()

    def note(self, writer: sqlite3.Connection) -> None:
        """There was a commit. For the writer's thread."""
        changed = writer.total_changes
        self._changes += changed - self._changed + COMMIT_COUNTS
        self._changed = changed
        if self._changes >= CHANGES_MAX:
            self._changes = 0
            self._is_time.set()

    def close(self) -> None:
        """End it; blocks until then."""
        self._is_closed = True
        self._is_time.set()
        self._thread.join()

    def _keep(self) -> None:
        while True:
            self._is_time.wait()
            self._is_time.clear()
            if self._is_closed:
                self._connection.close()
                return
            try:
                self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            except sqlite3.Error as exc:  # the writer meets the same disk, and tells its callers
                self._observer.event("store_checkpoint_failed", error=str(exc))
