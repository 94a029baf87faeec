"""The PostgreSQL schema and its upkeep: migrate, open, identity, doctor, figures."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from gnomon.contracts.clock import Entropy
from gnomon.contracts.store import (
    Finding,
    HeldShard,
    Installation,
    InstallationFigures,
    StoreMeasures,
)
from gnomon.model.errors import SchemaMismatch, StoreUnavailable, check
from gnomon.queries import in_schema
from gnomon.stores._upkeep import OVERRUN, Migration, check_past_due, skip_of
from gnomon.stores.postgres.cluster import (
    COLOCATION_RULE,
    NODE_RULE,
    check_coordinator,
    check_whole,
    cluster_findings,
    distribute,
    make_functions,
    read_placement,
)
from gnomon.stores.postgres.connection import Database, PoolSession, read_now
from gnomon.stores.postgres.figures import read_figures
from gnomon.stores.postgres.in_place import FOREVER, move_begun_in
from gnomon.stores.postgres.measures import read_measures
from gnomon.stores.postgres.migrations import FLOOR, VERSION, migrations
from gnomon.stores.postgres.partitions import PartitionJanitor
from gnomon.stores.postgres.rows import Decoder
from gnomon.stores.postgres.work import PostgresWork

MIGRATE_PATIENCE = timedelta(minutes=10)
DOCTOR_PATIENCE = timedelta(minutes=5)
FINDINGS_MAX = 1_000
ADOPT_BATCH = 500
ADOPTER = "adopt"
# What SQL functions know of it: see the migration.
SHARD_COUNT = """
CREATE OR REPLACE FUNCTION /*schema*/shard_count() RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT {} $$
"""

SURE_COMMITS = ("on", "remote_apply")
LOCAL_COMMITS = ("on", "local", "remote_write", "remote_apply")


class Identity(NamedTuple):
    """Which database this is: a copy or a restore is another one."""

    system_identifier: int
    timeline: int
    database_oid: int


class PostgresInstallation:
    """The `InstallationStore` of this engine."""

    def __init__(
        self,
        database: Database,
        decoder: Decoder,
        work: PostgresWork,
        *,
        entropy: Entropy,
        attempts_kept_for: timedelta,
        audit_kept_for: timedelta,
    ) -> None:
        self._database = database
        self._decoder = decoder
        self._work = work
        self._entropy = entropy
        self._janitor = PartitionJanitor(
            database,
            entropy=entropy,
            attempts_kept_for=attempts_kept_for,
            audit_kept_for=audit_kept_for,
        )

    # -- schema -----------------------------------------------------------------------------------

    async def migrate(self, *, shard_count: int) -> Sequence[str]:
        schema = self._database.schema
        async with self._database.transaction(
            "migrate", wide=True, patience=MIGRATE_PATIENCE
        ) as session:
            is_citus = (await session.fetch("has_citus"))[0]["found"]
            # There two at once would wait for each other's catalogue on different nodes.
            alone = "gnomon" if is_citus else f"gnomon {schema}"
            await session.fetch("migrate_lock", zlib.crc32(alone.encode()))
            version = await self._version(session, is_citus=is_citus)
            if version > VERSION:
                raise SchemaMismatch(found=version, expected=VERSION)
            missing = [step for step in migrations() if step.version > version]
            undistributed = [step.version for step in missing]
            if is_citus:
                undistributed += await self._undistributed(session, version, missing)
            for step in missing:
                await self._apply(session, step)
            if is_citus:
                await distribute(session, schema, sorted(undistributed))
                await make_functions(session, schema)
            if version == 0:
                await self._install(session, shard_count)
            elif missing:
                await session.fetch("migrate_set_version", VERSION)
        await self._janitor.make_room()
        return [step.name for step in missing]

    async def _version(self, session: PoolSession, *, is_citus: bool) -> int:
        schema = self._database.schema
        if not (await session.fetch("migrate_has_schema", schema))[0]["found"]:
            if is_citus:
                await check_coordinator(session)
            await session.fetch("migrate_create_schema")
        if not (await session.fetch("migrate_has_tables", schema))[0]["found"]:
            return 0
        rows = await session.fetch("open")
        check(len(rows) == 1, "the installation has not exactly one row", rows=len(rows))
        return int(rows[0]["schema_version"])

    async def _apply(self, session: PoolSession, step: Migration) -> None:
        await session.execute(in_schema(step.script, self._database.schema))
        await session.fetch("migrate_record", step.version, step.name)

    async def _install(self, session: PoolSession, shard_count: int) -> None:
        token = self._entropy.token()
        await session.fetch("migrate_install", token, shard_count, VERSION, FLOOR)
        await session.fetch("migrate_install_locks", shard_count)
        text = SHARD_COUNT.format(shard_count)
        await session.execute(in_schema(text, self._database.schema))

    async def _undistributed(
        self, session: PoolSession, version: int, missing: Sequence[Migration]
    ) -> list[int]:
        """The steps before these whose tables Citus does not know: all, or none of them."""
        if missing:
            await check_coordinator(session)
            await session.fetch("migrate_in_order")
        if version == 0:
            return []
        placement = await read_placement(session, self._database.schema, version)
        await check_whole(session, placement, self._database.schema)
        if not placement.nowhere:
            return []
        await check_coordinator(session)
        return list(range(1, version + 1))

    async def placement(self) -> str | None:
        async with self._database.transaction("placement", wide=True) as session:
            if not (await session.fetch("has_citus"))[0]["found"]:
                return None
            return str(await read_placement(session, self._database.schema, VERSION))

    async def open(self) -> Installation:
        rows = await self._database.fetch("open")
        if not rows:
            raise SchemaMismatch(found=0, expected=VERSION)
        (row,) = rows
        if row["schema_version"] < VERSION:
            raise SchemaMismatch(found=row["schema_version"], expected=VERSION)
        if row["floor"] > VERSION:
            raise SchemaMismatch(found=row["floor"], expected=VERSION)
        self._database.installation_id = row["id"]
        await self._database.learn_parts()
        await self._database.learn_homes()
        return Installation(
            id=row["id"],
            shard_count=row["shard_count"],
            schema_version=row["schema_version"],
            durability=await self._durability(),
            engine="postgres",
        )

    async def _durability(self) -> str:
        """What a commit survives, as the server is set."""
        (row,) = await self._database.fetch("open_durability")
        if row["fsync"] != "on":
            return "none"
        if row["standbys"] and row["commit"] in SURE_COMMITS:
            return "replicated"
        return "local" if row["commit"] in LOCAL_COMMITS else "none"

    # -- identity ---------------------------------------------------------------------------------

    async def verify_identity(self) -> str | None:
        stored, present = await self._identities()
        if stored == present:
            return None
        if stored._replace(timeline=present.timeline) == present:
            # A standby of the same system was promoted: every commit we relied on is here, or
            # was lost in a way that random ids fence.
            self._database.observer.event("store_timeline_adopted", timeline=present.timeline)
            await self._database.fetch("adopt_identity", *present)
            return None
        return (
            f"this is database {present.database_oid} of system {present.system_identifier}, "
            f"installed was {stored.database_oid} of {stored.system_identifier}"
        )

    async def _identities(self) -> tuple[Identity, Identity]:
        """The identity that the installation was made with, and that of the database it is in
        now."""
        rows = await self._database.fetch("verify_identity")
        check(len(rows) == 1, "the installation has not exactly one row", rows=len(rows))
        (row,) = rows
        present = Identity(row["present_system"], row["present_timeline"], row["present_oid"])
        return (
            Identity(row["system_identifier"], row["timeline"], row["database_oid"]),
            await self._coordinator() or present,
        )

    async def _coordinator(self) -> Identity | None:
        """Whom another node of a Citus cluster belongs to; None if this one speaks for itself."""
        if not (await self._database.fetch("has_citus"))[0]["found"]:
            return None
        if (await self._database.fetch("cluster_entry"))[0]["is_coordinator"]:
            return None
        (told,) = await self._database.fetch("cluster_identity")
        if not told["success"]:
            raise StoreUnavailable(f"the coordinator does not tell who it is: {told['result']}")
        return Identity(*map(int, told["result"].split()))

    async def adopt(self, *, past_due: str) -> int:
        check_past_due(past_due)
        skipped = 0
        if past_due == "skip":
            moment = await self.now()
            for shard in range(await self._database.shard_count()):
                skipped += await self._skip_shard(shard, moment)
        # Last: while it is unfinished, nobody begins anything.
        _, present = await self._identities()
        await self._database.fetch("adopt_identity", *present)
        return skipped

    async def _skip_shard(self, shard: int, moment: datetime) -> int:
        """Settle what came due in a shard; its lock is held meanwhile, whoever had it."""
        lease = self._entropy.token()
        await self._database.fetch("adopt_lock", shard, lease, ADOPTER)
        holding = HeldShard(shard=shard, lease_guid=lease)
        while (await self._work.move([holding], limit=ADOPT_BATCH)).more:
            pass
        only = self._database.only(shard)
        async with self._database.transaction("adopt") as session:
            await move_begun_in(session, [shard], only, until=FOREVER)
        count = 0
        while rows := await self._database.fetch_wide("adopt_overdue", shard, moment, ADOPT_BATCH):
            overdue = [self._decoder.lapsed_of(row) for row in rows]
            settled = await self._work.settle([skip_of(lapsed) for lapsed in overdue])
            if not settled:
                raise StoreUnavailable(f"adopt: a transaction holds actions of shard {shard}")
            count += settled
        await self._database.fetch("release", [shard], [lease], [None], *only)
        return count

    # -- upkeep -----------------------------------------------------------------------------------

    async def now(self) -> datetime:
        return await read_now(self._database)

    async def doctor(self, shards: Sequence[int] | None = None) -> Sequence[Finding]:
        count = await self._database.shard_count()
        async with self._database.transaction(
            "doctor", wide=True, patience=DOCTOR_PATIENCE, reads=True
        ) as session:
            findings: list[Finding] = []
            if (await session.fetch("has_citus"))[0]["found"]:
                findings += await cluster_findings(session, self._database.schema, VERSION)
                if any(finding.rule in (NODE_RULE, COLOCATION_RULE) for finding in findings):
                    return findings  # what is away, or apart, cannot be looked at
            some = range(count) if shards is None else shards
            rows = await session.fetch("doctor", OVERRUN, FINDINGS_MAX, some, count)
            (counted,) = await session.fetch("doctor_locks")
        findings += [
            Finding(rule=row["rule"], subject=row["subject"], detail=row["detail"]) for row in rows
        ]
        if counted["locks"] != counted["shard_count"]:
            detail = f"{counted['locks']} lock rows for {counted['shard_count']} shards"
            findings.append(Finding(rule="lock_rows", subject="shard_lock", detail=detail))
        return findings

    async def figures(self, *, limit: int, alive_for: timedelta) -> InstallationFigures:
        return await read_figures(self._database, limit=limit, alive_for=alive_for)

    async def measure(self) -> StoreMeasures:
        return await read_measures(self._database)

    async def purge(self, *, limit: int) -> int:
        return await self._janitor.purge(limit)
