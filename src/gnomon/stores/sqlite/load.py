"""What will be due, in SQLite: steps from lane to lane, and counts with an end."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from gnomon.contracts.store import DueLoad, Lane, RecurringAction
from gnomon.stores._figures import arrivals_looked_at
from gnomon.stores._load import LoadTally, recurring_actions
from gnomon.stores.sqlite.begin import lane_row
from gnomon.stores.sqlite.queries import fetch
from gnomon.stores.sqlite.rows import micros, moment
from gnomon.stores.sqlite.verbs import Connection, SqliteVerbs, read
from gnomon.stores.sqlite.work import lanes_of


class SqliteLoad(SqliteVerbs):
    """The part of the `ReportStore` that looks ahead."""

    @read
    def load(
        self, connection: Connection, times: Sequence[datetime], *, lanes: int, limit: int
    ) -> DueLoad:
        tally = LoadTally(times, limit=limit)
        shards = _shards(connection)
        some = _lanes(connection, shards, lanes)
        tally.partial = len(some) >= lanes
        for lane in some:
            _add_lane(connection, tally, lane, times)
        looked_at = arrivals_looked_at(limit, len(shards))
        for shard in shards:
            rows = fetch(connection, "load_arrived", {"shard": shard, "limit": looked_at})
            tally.partial |= sum(row["count"] for row in rows) >= looked_at
            for row in rows:
                tally.add_second(moment(row["at"]), row["count"])
        return tally.total(self._clock.now())

    @read
    def herd(
        self, connection: Connection, since: datetime, until: datetime, *, lanes: int, limit: int
    ) -> Sequence[str]:
        bounds = {"since": micros(since), "until": micros(until)}
        ids: list[str] = []
        for lane in _lanes(connection, _shards(connection), lanes):
            if len(ids) >= limit:
                break
            within = lane_row(lane) | bounds | {"limit": limit - len(ids)}
            ids += [row["id"] for row in fetch(connection, "herd_ids", within)]
        return ids

    @read
    def list_recurring(self, connection: Connection, *, limit: int) -> Sequence[RecurringAction]:
        rows = fetch(connection, "list_recurring", {"limit": limit})
        return recurring_actions(rows, [moment(row["occurrence_at"]) for row in rows])


def _shards(connection: Connection) -> range:
    (row,) = fetch(connection, "open")
    return range(row["shard_count"])


def _lanes(connection: Connection, shards: range, most: int) -> list[Lane]:
    lanes: list[Lane] = []
    for shard in shards:
        if len(lanes) >= most:
            break
        lanes += [lane for lane, _ in lanes_of(connection, shard)]
    return lanes[:most]


def _add_lane(
    connection: Connection, tally: LoadTally, lane: Lane, times: Sequence[datetime]
) -> None:
    bounds = [micros(at) for at in times]
    for place in range(len(times) - 1):
        room = tally.room(place)
        if not room:
            continue
        within = {"since": bounds[place], "until": bounds[place + 1], "limit": room}
        for row in fetch(connection, "load_due", lane_row(lane) | within):
            tally.add(place, row["count"], moment(row["at"]), row["count"])
