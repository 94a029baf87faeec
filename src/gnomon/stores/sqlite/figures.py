"""The figures of an installation in SQLite: steps from lane to lane, and counts with an end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from gnomon.contracts.store import InstallationFigures, Lane
from gnomon.contracts.store.figures import LANES_MAX, limit_for
from gnomon.stores._figures import FiguresTally, Presence, arrivals_looked_at
from gnomon.stores.sqlite.begin import lane_row
from gnomon.stores.sqlite.queries import fetch, fetch_one
from gnomon.stores.sqlite.rows import micros, moment
from gnomon.stores.sqlite.verbs import Connection
from gnomon.stores.sqlite.work import lanes_of


def read_figures(
    connection: Connection, *, now: datetime, limit: int, alive_for: timedelta
) -> InstallationFigures:
    """On one consistent state."""
    presence = _presence(connection, now - alive_for)
    lanes = [lane for shard in range(presence.shards) for lane, _ in lanes_of(connection, shard)]
    limit = limit_for(len({lane.queue for lane in lanes}), limit)
    reader = _FiguresReader(connection, now, limit)
    reader.add_lanes(lanes)
    for shard in range(presence.shards):
        reader.add_arrived(shard, arrivals_looked_at(limit, presence.shards))
        reader.add_running(shard)
        reader.add_stages(shard)
    reader.add_dead()
    reader.add_parked()
    return reader.tally.total(presence)


def _presence(connection: Connection, alive_since: datetime) -> Presence:
    since = {"alive_since": micros(alive_since)}
    (locks,) = fetch(connection, "figures_locks", since)
    (alive,) = fetch(connection, "heartbeat_alive", since | {"fresh_since": None})
    return Presence(alive["workers"], locks["shards"], int(locks["unowned"]))


class _FiguresReader:
    """Adds up, one shard after the other; a queue that has reached the limit is not counted on."""

    def __init__(self, connection: Connection, now: datetime, limit: int) -> None:
        self._connection = connection
        self._limit = limit
        self._bounds: dict[str, object] = {"now": micros(now), "limit": limit}
        self.tally = FiguresTally(at=now, limit=limit)

    def add_lanes(self, lanes: Sequence[Lane]) -> None:
        for lane in lanes[:LANES_MAX]:
            self._add_lane(lane)
        self.tally.partial |= len(lanes) > LANES_MAX

    def _add_lane(self, lane: Lane) -> None:
        known = self.tally.queue(lane.queue)
        row = lane_row(lane) | self._bounds
        # One row at least: the oldest may be in this lane.
        row["limit"] = max(1, self._limit - known.overdue)
        (due,) = fetch(self._connection, "figures_overdue", row)
        row["limit"] = self._limit - known.waiting
        (later,) = fetch(self._connection, "figures_waiting", row)
        self.tally.add_queue(
            lane.queue,
            waiting=later["count"],
            overdue=due["count"],
            since=_moment(due["since"]),
        )

    def add_arrived(self, shard: int, looked_at: int) -> None:
        seen = 0
        row = self._bounds | {"shard": shard, "limit": looked_at}
        for arrived in fetch(self._connection, "figures_arrived", row):
            seen += arrived["count"]
            overdue = int(arrived["overdue"])
            self.tally.add_queue(
                arrived["queue"],
                waiting=arrived["count"] - overdue,
                overdue=overdue,
                since=_moment(arrived["since"]),
            )
        self.tally.partial |= seen >= looked_at

    def add_running(self, shard: int) -> None:
        for running in fetch(self._connection, "figures_running", self._bounds | {"shard": shard}):
            self.tally.add_queue(running["queue"], running=running["count"])

    def add_dead(self) -> None:
        last: dict[str, object] = {"queue": ""}
        while row := fetch_one(self._connection, "figures_dead_after", last):
            last = {"queue": row["queue"]}
            (dead,) = fetch(self._connection, "figures_dead", self._bounds | last)
            self.tally.add_queue(row["queue"], dead=dead["count"])

    def add_stages(self, shard: int) -> None:
        for part in self._stage_lanes(shard):
            (ready,) = fetch(self._connection, "figures_ready", self._bounds | part)
            self.tally.add_stage(
                str(part["stage"]), overdue=ready["count"], since=_moment(ready["since"])
            )

    def _stage_lanes(self, shard: int) -> Iterator[dict[str, object]]:
        last: dict[str, object] = {"shard": shard, "stage": "", "lane": -1}
        while row := fetch_one(self._connection, "figures_stages_after", last):
            last = {"shard": shard, "stage": row["stage"], "lane": row["lane"]}
            yield last

    def add_parked(self) -> None:
        for parked in fetch(self._connection, "figures_parked", self._bounds):
            self.tally.add_stage(parked["stage"], parked=parked["count"])


def _moment(since: int | None) -> datetime | None:
    return None if since is None else moment(since)
