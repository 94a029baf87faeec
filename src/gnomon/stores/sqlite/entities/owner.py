"""What the owner of a shard looks at: what there is to do, timers, feed, the heads of queues."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from heapq import merge
from operator import itemgetter
from typing import NamedTuple

from gnomon.contracts.store import HeldShard
from gnomon.contracts.store.batches import BATCH_BYTES_MAX, bytes_of
from gnomon.contracts.store.entities import ChangeNote, Entity, StageState
from gnomon.contracts.store.queues import (
    ChangedEntity,
    ClaimedEntity,
    Enqueue,
    LaneHead,
    NewRow,
    NextDue,
    NextWork,
    Routing,
    RowStatus,
    StageLane,
)
from gnomon.model.stage.queue_merge import SLEEPING
from gnomon.stores.sqlite.entities.enqueues import merged
from gnomon.stores.sqlite.entities.rows import (
    Connection,
    EntityRow,
    GoodLeases,
    StoredRow,
    encode_ids,
    first_of,
    held_shards,
    note_of,
    read_rows,
    state_of,
)
from gnomon.stores.sqlite.entities.snapshot import CommitSnapshot
from gnomon.stores.sqlite.entities.verbs import EntityVerbs
from gnomon.stores.sqlite.queries import SQL
from gnomon.stores.sqlite.rows import micros, moment, moment_or_none
from gnomon.stores.sqlite.verbs import read, write

TIMER = "timer"


class LoadedEntities(NamedTuple):
    """Living entities by key, with all that belongs to them."""

    entities: Mapping[str, Entity]
    states: Mapping[str, Mapping[str, StageState]]
    rows: Mapping[str, Mapping[str, StoredRow]]
    looked_at: int  # so many of the keys: see `BATCH_BYTES_MAX`


class SqliteOwner(EntityVerbs):
    """The part of the `QueueStore` by which an owner finds its work."""

    @read
    def next_work(self, connection: Connection, holdings: Sequence[HeldShard]) -> NextWork:
        shards = [holding.shard for holding in holdings]
        wanted = {"shards": encode_ids(shards)}
        times = connection.execute(SQL["next_work_times"], wanted).fetchall()
        timers = [timer_at for timer_at, _ in times if timer_at is not None]
        return NextWork(
            now=self._clock.now(),
            ready=_lanes(connection, shards),
            timer_at=moment_or_none(min(timers, default=None)),
            has_changes=any(is_fed for _, is_fed in times),
            backfills=connection.execute(SQL["next_work_backfills"], wanted).fetchall(),
        )

    # -- timers -----------------------------------------------------------------------------------

    @write
    def fire_timers(
        self, connection: Connection, holdings: Sequence[HeldShard], *, limit: int
    ) -> int:
        now_us = self._now_us()
        shards = held_shards(connection, holdings)
        due = first_of(connection, "fire_timers", shards, limit=limit, now=now_us)
        keys = [(entity_key, stage) for _, entity_key, stage, _ in due]
        snapshot = CommitSnapshot(connection, keys, now_us=now_us, seq=self._new_seq())
        for key in keys:
            row = snapshot.rows[key]._replace(timer_at=None)
            enqueue = Enqueue(stage=row.stage, reason=TIMER, root=self._entropy.token())
            snapshot.put_row(merged(row, enqueue, now_us))
        snapshot.write_back()
        return len(due)

    # -- feed -------------------------------------------------------------------------------------

    @read
    def changed_entities(
        self,
        connection: Connection,
        holdings: Sequence[HeldShard],
        *,
        limit: int,
        skip: Collection[str],
    ) -> Sequence[ChangedEntity]:
        return _changed_entities(connection, held_shards(connection, holdings), limit, skip)

    @write
    def route(
        self, connection: Connection, routings: Sequence[Routing]
    ) -> Sequence[tuple[NewRow, ...] | None]:
        leases = GoodLeases(connection)
        held = [leases.holds(answer.shard, answer.lease_guid) for answer in routings]
        told = [answer for answer, is_held in zip(routings, held, strict=True) if is_held]
        stored = store_enqueues(connection, told, now_us=self._now_us(), seq=self._new_seq())
        _note_asked(connection, [told[place] for place in stored])
        made = iter([stored.get(place, ()) for place in range(len(told))])
        return [next(made) if is_held else None for is_held in held]

    # -- claims -----------------------------------------------------------------------------------

    @read
    def lane_head(
        self,
        connection: Connection,
        holdings: Sequence[HeldShard],
        stage: str,
        lane: StageLane,
        *,
        limit: int,
        skip: Collection[str],
    ) -> LaneHead:
        now_us = self._now_us()
        heads = first_of(
            connection, "lane_head", held_shards(connection, holdings), limit=limit, skip=skip,
            until=now_us, stage=stage, lane=int(lane),
        )  # fmt: skip
        due = [entity_key for ready_at, entity_key, _ in heads if ready_at <= now_us]
        claims, count = self._claims(connection, due, stage)
        is_all = count == len(heads) < limit
        next_at = None if is_all else moment(heads[min(count, len(heads) - 1)][0])
        return LaneHead(claims, next_at)

    @read
    def claim(
        self, connection: Connection, holding: HeldShard, entity_key: str, stage: str
    ) -> ClaimedEntity | None:
        if not held_shards(connection, [holding]):
            return None
        claims, _ = self._claims(connection, [entity_key], stage)
        return claims[0] if claims else None

    def _claims(
        self, connection: Connection, keys: Sequence[str], stage: str
    ) -> tuple[list[ClaimedEntity], int]:
        """Claims of those that are ready for the stage, and how many of the keys were looked at."""
        now = self._clock.now()
        loaded = load(connection, keys)
        claims = (_claim(loaded, entity_key, stage, now) for entity_key in keys[: loaded.looked_at])
        return [claim for claim in claims if claim is not None], loaded.looked_at


def load(connection: Connection, keys: Sequence[str]) -> LoadedEntities:
    """Those of the entities that live: three statements, however many there are."""
    entities, states, count = _load_documents(connection, keys)
    rows: dict[str, dict[str, StoredRow]] = {}
    for row in read_rows(connection, "load_rows", {"entity_keys": encode_ids(keys[:count])}):
        rows.setdefault(row.entity_key, {})[row.stage] = row
    return LoadedEntities(entities, states, rows, count)


def _load_documents(
    connection: Connection, keys: Sequence[str]
) -> tuple[dict[str, Entity], dict[str, dict[str, StageState]], int]:
    """Entities and their states up to the bound, and how many of the keys were looked at. The
    cursors are lazy: no more is read than one row of each beyond that."""
    wanted = {"entity_keys": encode_ids(keys)}
    cursors = [connection.execute(SQL[name], wanted) for name in ("load_entities", "load_states")]
    entities: dict[str, Entity] = {}
    states: dict[str, dict[str, StageState]] = {}
    count, size = len(keys), 0
    for place, name, *row in merge(*cursors, key=itemgetter(0)):  # an entity, then its states
        if name in entities:
            stage, *state = row
            states.setdefault(name, {})[stage] = state_of(*state)
            size += len(states[name][stage].body)
        elif size >= BATCH_BYTES_MAX:
            count = place
            break
        else:
            entities[name] = EntityRow(name, *row).entity()
            size += bytes_of(entities[name].doc)
    for cursor in cursors:  # what is open here would be in the way of what is written next
        cursor.close()
    return entities, states, count


def _claim(
    loaded: LoadedEntities, entity_key: str, stage: str, now: datetime
) -> ClaimedEntity | None:
    rows = loaded.rows.get(entity_key, {})
    row = rows.get(stage)
    if entity_key not in loaded.entities or row is None or row.status != RowStatus.READY:
        return None
    now_us = micros(now)
    others = [other for other in rows.values() if other is not row and other.status != SLEEPING]
    ready = {
        other.stage: other.ready_at
        for other in others
        if other.ready_at is not None and other.ready_at <= now_us
    }
    due, place = frozenset(ready), (row.ready_at or 0, stage)
    return ClaimedEntity(
        entity=loaded.entities[entity_key],
        row=row.queue_row(),
        states=loaded.states.get(entity_key, {}),
        waiting=due,
        held_back=frozenset(other.stage for other in others) - due,
        ahead=frozenset(name for name, ready_at in ready.items() if (ready_at, name) < place),
        now=now,
    )


def store_enqueues(
    connection: Connection, answers: Sequence[Routing], *, now_us: int, seq: int
) -> dict[int, tuple[NewRow, ...]]:
    """Store what the stages want of the entities that are still those they were asked about; the
    rows made, by the places of these."""
    keys = [(answer.entity_key, "") for answer in answers]
    snapshot = CommitSnapshot(connection, keys, now_us=now_us, seq=seq)
    made: dict[int, tuple[NewRow, ...]] = {}
    for place, answer in enumerate(answers):
        entity = snapshot.entities.get(answer.entity_key)
        if entity is None or entity.epoch != answer.epoch:
            continue
        made[place] = snapshot.enqueue_all(
            answer.enqueues, shard=answer.shard, entity_key=answer.entity_key
        )
    snapshot.write_back()
    return made


def _note_asked(connection: Connection, answers: Sequence[Routing]) -> None:
    """Nothing is left to ask, or only what came after this version."""
    rows = [
        {
            "entity_key": answer.entity_key,
            "seq": answer.seq,
            "epoch": answer.epoch,
            "version": answer.version,
        }
        for answer in answers
    ]
    connection.executemany(SQL["route_done"], rows)
    connection.executemany(SQL["route_since"], rows)


def _changed_entities(
    connection: Connection, shards: Sequence[int], limit: int, skip: Collection[str]
) -> list[ChangedEntity]:
    rows = first_of(connection, "changed_entities", shards, limit=limit, skip=skip)
    loaded = load(connection, [entity_key for _, entity_key, *_ in rows])
    fed = []
    for _, entity_key, epoch, since, seq, _ in rows[: loaded.looked_at]:
        wanted = {"entity_key": entity_key, "epoch": epoch, "since": since}
        changes = tuple(note_of(row) for row in connection.execute(SQL["changes_since"], wanted))
        if entity_key in loaded.entities:
            fed.append(fed_of(loaded, entity_key, seq=seq, changes=changes))
    return fed


def fed_of(
    loaded: LoadedEntities, entity_key: str, *, seq: int = 0, changes: tuple[ChangeNote, ...] = ()
) -> ChangedEntity:
    return ChangedEntity(
        entity=loaded.entities[entity_key],
        seq=seq,
        changes=changes,
        states=loaded.states.get(entity_key, {}),
        waiting={stage: row.queue_row() for stage, row in loaded.rows.get(entity_key, {}).items()},
    )


def _lanes(connection: Connection, shards: Sequence[int]) -> list[NextDue]:
    """The earliest of each lane in all of the shards."""
    earliest: dict[tuple[str, int], int] = {}
    for shard in shards:
        lane = ("", -1)
        while row := connection.execute(
            SQL["next_work_lane"], {"shard": shard, "stage": lane[0], "lane": lane[1]}
        ).fetchone():
            lane = (row[0], row[1])
            earliest[lane] = min(row[2], earliest.get(lane, row[2]))
    return [
        NextDue(stage, StageLane(lane), moment(at))
        for (stage, lane), at in sorted(earliest.items())
    ]
