"""How far running attempts are, in SQLite."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from uuid import UUID

from gnomon.contracts.store import Progress
from gnomon.stores.sqlite.queries import SQL
from gnomon.stores.sqlite.verbs import Connection, SqliteVerbs, write


class SqliteProgress(SqliteVerbs):
    """The `ProgressStore` of this engine."""

    @write
    def report(self, connection: Connection, reports: Sequence[Progress]) -> Collection[UUID]:
        now = self._now_us()
        return {
            one.attempt_id
            for one in reports
            if connection.execute(
                SQL["report"],
                {
                    "id": one.id,
                    "guid": one.guid.bytes,
                    "attempt_id": one.attempt_id.bytes,
                    "now": now,
                    "fraction": one.fraction,
                    "said": one.text,
                },
            ).rowcount
        }

    @write
    def forget_reports(self, connection: Connection, reports: Sequence[Progress]) -> None:
        ended = [{"id": one.id, "attempt_id": one.attempt_id.bytes} for one in reports]
        connection.executemany(SQL["forget_reports"], ended)
