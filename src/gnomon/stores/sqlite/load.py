"""What will be due, in SQLite: steps from lane to lane, and counts with an end."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from gnomon.contracts.store import DueLoad, Lane, RecurringAction
from gnomon.stores._figures import arrivals_looked_at
from gnomon.stores._load import (
    LOAD_ARRIVALS,
    LOOK_ROWS,
    LanesAhead,
    LoadTally,
    Look,
    recurring_actions,
)
from gnomon.stores.sqlite.begin import lane_row
from gnomon.stores.sqlite.queries import fetch
from gnomon.stores.sqlite.rows import micros, moment
from gnomon.stores.sqlite.verbs import Connection, SqliteVerbs, read
from gnomon.stores.sqlite.work import lanes_of


class SqliteLoad(SqliteVerbs):
    """The part of the `ReportStore` that looks ahead."""

    @read
    def load(self, connection: Connection, times: Sequence[datetime], *, lanes: int) -> DueLoad:
        tally = LoadTally(times)
        shards = _shards(connection)
        some = _lanes(connection, shards, lanes)
        tally.is_estimated = len(some) >= lanes
        _add_lanes(connection, tally, some)
        looked_at = arrivals_looked_at(LOAD_ARRIVALS, len(shards))
        for shard in shards:
            rows = fetch(connection, "load_arrived", {"shard": shard, "limit": looked_at})
            tally.is_estimated |= sum(row["count"] for row in rows) >= looked_at
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


def _add_lanes(connection: Connection, tally: LoadTally, lanes: Sequence[Lane]) -> None:
    """All of what lanes hold that hold little; of the others a part is looked at."""
    bounds = [micros(at) for at in tally.times]
    ahead = LanesAhead(lanes)
    _add_few(connection, tally, ahead, ahead.first)
    _add_few(connection, tally, ahead, ahead.others())
    sample, scale = tally.sample(ahead.full())
    for lane in sample:
        within = lane_row(lane) | {"limit": LOOK_ROWS}
        for place in range(len(bounds) - 1):
            within |= {"since": bounds[place], "until": bounds[place + 1]}
            for row in fetch(connection, "load_due", within):
                seen = Look(
                    seen=row["seen"], last_at=moment(row["last_at"]),
                    herd_at=moment(row["herd_at"]), herd=row["herd"],
                )  # fmt: skip
                tally.add_look(place, seen, scale)


def _add_few(
    connection: Connection, tally: LoadTally, ahead: LanesAhead, lanes: Sequence[Lane]
) -> None:
    """Look into some lanes: what is little is added, and which are full is noted."""
    bounds = {"since": micros(tally.times[0]), "until": micros(tally.times[-1])}
    for lane in lanes:
        rows = fetch(connection, "load_few", lane_row(lane) | bounds | {"limit": LOOK_ROWS})
        is_full = sum(row["count"] for row in rows) >= LOOK_ROWS
        ahead.add(lane, is_full=is_full)
        for row in () if is_full else rows:
            tally.add_second(moment(row["at"]), row["count"])
