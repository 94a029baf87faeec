"""The register of stages."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from operator import attrgetter
from uuid import UUID

from gnomon.contracts.clock import Entropy
from gnomon.contracts.store import LOCAL, HeldShard
from gnomon.contracts.store.queues import RowStatus, StageLane
from gnomon.contracts.store.register import (
    StageAttendance,
    StageDeclaration,
    StageRecord,
    UnservedShard,
)
from gnomon.model.stage.graph import Reach
from gnomon.model.stage.queue_merge import REASONS_MAX
from gnomon.stores._texts import read_texts, write_texts
from gnomon.stores.postgres.connection import Database, Row, Session, read_now
from gnomon.stores.postgres.entities.versions import (
    AuditRow,
    ShardedKey,
    touch_entities,
    write_entry,
)

SERVERS_KEPT_FOR = timedelta(minutes=10)
AUDIT_SHARD = 0  # of what belongs to no shard


class PostgresRegister:
    """The `StageRegister` of this engine."""

    def __init__(self, database: Database, *, entropy: Entropy) -> None:
        self._database = database
        self._entropy = entropy

    async def declare(self, stages: Sequence[StageDeclaration]) -> Mapping[str, int | None]:
        declared = {stage.name: stage for stage in sorted(stages, key=attrgetter("name"))}
        async with self._database.transaction("declare") as session:
            await _take_over(self._database, session, stages)
            known = await _declare(session, list(declared.values()))
            raised = [
                name
                for name, revision in known.items()
                if revision is not None and revision < declared[name].revision
            ]
            await _free_saves(self._database, session, raised)
            for name, stage in declared.items():
                reason = f"backfill r{stage.revision}"
                if known[name] is None and stage.backfill:
                    await session.fetch("begin_backfill", name, reason, None)
                elif name in raised:
                    await session.fetch("declare_raise", name, stage.revision)
                    await session.fetch("begin_backfill", name, reason, None)
                    await session.fetch(
                        "declare_free_rows", name, reason, self._entropy.token(), REASONS_MAX
                    )
        return known

    async def attend(
        self,
        worker: UUID,
        *,
        serves: Collection[str],
        holdings: Sequence[HeldShard],
        alive_for: timedelta,
    ) -> StageAttendance:
        rows = await self._database.fetch("registered")
        if not rows and not serves:  # there are no stages at all
            now = await read_now(self._database)
            return StageAttendance(now=now, register=(), servers={}, openings=())
        mine = sorted(serves)
        await self._database.fetch("attend_serve", worker, mine)
        await self._database.fetch("attend_drop_servers", worker, mine, SERVERS_KEPT_FOR)
        await _note_owner(self._database, worker, holdings)
        servers: dict[str, set[UUID]] = defaultdict(set)
        for stage, server in await self._database.fetch("attend_servers", alive_for):
            servers[stage].add(server)
        openings = await self._database.fetch("attend_openings", mine) if mine else ()
        now = rows[0]["now"] if rows else await read_now(self._database)
        return StageAttendance(
            now=now,
            register=[_record_of(row, {}) for row in rows],
            servers={stage: frozenset(workers) for stage, workers in servers.items()},
            openings=[UnservedShard(*row) for row in openings],
        )

    async def registered(self) -> Sequence[StageRecord]:
        return [_record_of(row, {}) for row in await self._database.fetch("registered")]

    async def stages(self) -> Sequence[StageRecord]:
        rows = await self._database.fetch_wide("registered")
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for stage, status, lane, count in await self._database.fetch_wide("stages"):
            counts[stage][_count_of(status, lane)] += count
        return [_record_of(row, counts[row["name"]]) for row in rows]

    async def forget(self, stage: str, *, actor: str = LOCAL) -> int:
        gone = 0
        async with self._database.transaction("forget") as session:
            for shard in range(await self._database.shard_count(session)):
                gone += len(await session.fetch("forget_queue", shard, stage))
                gone += len(await session.fetch("forget_states", shard, stage))
                await session.fetch("forget_outbox", shard, stage)
                await session.fetch("forget_backfill", shard, stage)
            await session.fetch("forget_servers", stage)
            await session.fetch("forget", stage)
            entry = AuditRow("forget_stage", actor, stage, self._entropy.guid())
            await write_entry(session, entry, AUDIT_SHARD)
        return gone

    async def begin_backfill(
        self,
        stage: str,
        *,
        reason: str,
        unless_within: timedelta | None = None,
        actor: str | None = None,
    ) -> bool:
        async with self._database.transaction("begin_backfill") as session:
            began = bool(await session.fetch("begin_backfill", stage, reason, unless_within))
            if began and actor is not None:
                entry = AuditRow("backfill_stage", actor, stage, self._entropy.guid())
                await write_entry(session, entry, AUDIT_SHARD)
        return began


async def _declare(session: Session, stages: Sequence[StageDeclaration]) -> dict[str, int | None]:
    """Store what is said of stages; the revisions known before."""
    rows = await session.fetch(
        "declare",
        [stage.name for stage in stages],
        [stage.reach.kind for stage in stages],
        [stage.revision for stage in stages],
        [stage.debounce for stage in stages],
        [write_texts(stage.reach.watch) for stage in stages],
        [write_texts(stage.reach.writes) for stage in stages],
        await read_now(session),
    )
    stored = {row["name"]: row for row in rows}
    for stage in stages:
        stage.check_kind(stored[stage.name]["kind"])
    return {name: None if row["is_new"] else row["revision"] for name, row in stored.items()}


async def _free_saves(database: Database, session: Session, raised: Sequence[str]) -> None:
    """Undelivered saves of stages are due. Before their queues: entities are locked first."""
    rows = await session.fetch("declare_undelivered", raised) if raised else ()
    keys = [ShardedKey(*row) for row in rows]
    for group in database.groups(key.shard for key in keys):
        chosen = [keys[place] for place in group.places]
        await touch_entities(session, chosen, group.shards)
        for key in chosen:
            for name in raised:
                await session.fetch("release_saves", *key, name)


async def _take_over(
    database: Database, session: Session, stages: Sequence[StageDeclaration]
) -> None:
    """All that an old name has becomes the new one's, if that is not known yet."""
    formerly = {stage.name: stage.formerly for stage in stages if stage.formerly is not None}
    if not formerly:
        return
    rows = await session.fetch("declare_known", [*formerly, *formerly.values()])
    known = {row["name"] for row in rows}
    for new, old in sorted(formerly.items()):
        if new in known or old not in known:
            continue
        if not await session.fetch("declare_rename_stage", old, new):
            continue
        for shard in range(await database.shard_count(session)):
            for table in ("queue", "states", "outbox", "backfill"):
                await session.fetch(f"declare_rename_{table}", shard, old, new)


def _record_of(row: Row, counts: Mapping[str, int]) -> StageRecord:
    reach = Reach(row["kind"], watch=read_texts(row["watch"]), writes=read_texts(row["writes"]))
    return StageRecord(
        name=row["name"],
        kind=reach.kind,
        revision=row["revision"],
        first_seen_at=row["first_seen_at"],
        last_seen_at=row["last_seen_at"],
        debounce=row["debounce"],
        own_echo=bool(reach.own_echo),
        watch=reach.watch,
        writes=reach.writes,
        **counts,
    )


async def _note_owner(database: Database, worker: UUID, holdings: Sequence[HeldShard]) -> None:
    """Only what is not known yet: leases are kept for long."""
    rows = await database.fetch("attend_owners", worker)
    known = {(shard, lease_guid) for shard, lease_guid in rows}
    new = [holding for holding in holdings if (holding.shard, holding.lease_guid) not in known]
    if new:
        new.sort(key=lambda holding: holding.shard)
        leases = [holding.lease_guid for holding in new]
        await database.fetch("attend_own", worker, [holding.shard for holding in new], leases)


def _count_of(status: str, lane: int) -> str:
    if status == RowStatus.READY:
        return "background" if lane == StageLane.BACKGROUND else "waiting"
    return "sleeping" if status == RowStatus.SLEEPING else "parked"
