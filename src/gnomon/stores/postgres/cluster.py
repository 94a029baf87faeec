"""Citus: which tables live where, what is half done, and what the doctor says about the nodes.

Every table of an installation is either cut into parts by shard, beside `shard_lock`, or whole on
every node. The catalogue of Citus knows which; it is only asked where the extension is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gnomon.contracts.store import Finding
from gnomon.model.errors import ConfigurationError, InvalidRequest
from gnomon.queries import in_schema
from gnomon.stores.postgres.connection import PoolSession, Row, Session
from gnomon.stores.postgres.nodes import HOLD
from gnomon.stores.postgres.parts import ON_NODES

# Which tables each migration made: those by shard, and those that every node has whole.
DISTRIBUTED: Mapping[int, tuple[str, ...]] = {
    1: (
        "shard_lock",
        "scheduled_action",
        "incoming_queue",
        "processing_queue",
        "finished_action",
        "attempt_log",
        "audit",
        "sql_success",
        "declared_action",
        "attempt_progress",
    ),
    2: (
        "entity",
        "entity_change",
        "stage_state",
        "stage_queue",
        "changed_entity",
        "stage_outbox",
        "stage_backfill",
    ),
}
REFERENCE: Mapping[int, tuple[str, ...]] = {
    1: (
        "migration",
        "installation",
        "worker",
        "token",
        "work_limit",
        "limit_grant",
        "program",
        "function_set",
        "target_login",
        "history",
    ),
    2: ("stage", "stage_server", "stage_owner"),
}
BESIDE = "shard_lock"  # the table that the others live beside
PARTS_PER_NODE = 2  # unless `citus.shard_count` is set
LEFT_BEHIND = "5 minutes"  # as in `cluster_prepared`

COLOCATION_RULE = "cluster_colocation"
METADATA_RULE = "cluster_metadata"
NODE_RULE = "cluster_node"
PREPARED_RULE = "cluster_prepared"
VERSION_RULE = "cluster_version"


class Placement(NamedTuple):
    """Where the tables of an installation are."""

    by_shard: tuple[str, ...]
    everywhere: tuple[str, ...]
    nowhere: tuple[str, ...]  # Citus does not know them
    misplaced: tuple[str, ...]  # in other parts, or beside others, than `shard_lock`
    parts: int  # that `shard_lock` is cut into
    nodes: int  # that may have parts

    def __str__(self) -> str:
        return (
            f"on Citus: {len(self.by_shard)} tables by shard, in {self.parts} parts on "
            f"{self.nodes} nodes, and {len(self.everywhere)} whole on every node"
        )


def tables_until(version: int, tables: Mapping[int, tuple[str, ...]]) -> list[str]:
    """Of the migrations up to a version."""
    return [name for step, names in tables.items() if step <= version for name in names]


async def read_placement(session: Session, schema: str, version: int) -> Placement:
    """Where the tables of the migrations up to a version are."""
    names = [*tables_until(version, DISTRIBUTED), *tables_until(version, REFERENCE)]
    rows = await session.fetch("cluster_tables", schema, names)
    (counted,) = await session.fetch("cluster_size")
    return placement_of(rows, nodes=counted["nodes"])


def placement_of(rows: Iterable[Row], *, nodes: int) -> Placement:
    """Out of the rows of `cluster_tables`."""
    tables = {row["name"]: row for row in rows}
    first = tables.get(BESIDE)
    by_shard = [name for name, row in tables.items() if row["method"] == "h"]
    home = None if first is None else (first["colocation"], first["parts"])
    return Placement(
        by_shard=tuple(by_shard),
        everywhere=tuple(name for name, row in tables.items() if row["method"] == "n"),
        nowhere=tuple(name for name, row in tables.items() if row["method"] is None),
        misplaced=tuple(
            name for name in by_shard if home != (tables[name]["colocation"], tables[name]["parts"])
        ),
        parts=0 if first is None else first["parts"],
        nodes=nodes,
    )


def way_out(placement: Placement, schema: str, parts: int) -> str:
    """What puts tables where they belong; `parts`, if the first of them is to be cut anew."""
    whole = {name for tables in REFERENCE.values() for name in tables}
    tables = {
        name: in_schema(f"/*schema*/{name}", schema)
        for name in (BESIDE, *placement.misplaced, *placement.nowhere)
    }
    statements = [f"SELECT undistribute_table('{tables[name]}');" for name in placement.misplaced]
    names = {*placement.misplaced, *placement.nowhere}
    for name in sorted(names, key=lambda name: (name in whole, name != BESIDE, name)):
        if name in whole:
            statements.append(f"SELECT create_reference_table('{tables[name]}');")
        else:
            beside = f"colocate_with => '{tables[BESIDE]}'"
            if name == BESIDE:
                beside = f"shard_count => {parts}, colocate_with => 'none'"
            cut = f"'{tables[name]}', 'shard_id', {beside}"
            statements.append(f"SELECT create_distributed_table({cut});")
    return "Way out: stop all workers and servers, then on the coordinator: " + " ".join(statements)


async def check_whole(session: Session, placement: Placement, schema: str) -> None:
    """Errors: InvalidRequest where a part of the tables is distributed and a part is not."""
    if placement.misplaced:
        why = (
            f"on Citus {', '.join(placement.misplaced)} live apart from {BESIDE}: "
            "one action would be in two places"
        )
    elif placement.nowhere and (placement.by_shard or placement.everywhere):
        unknown = ", ".join(placement.nowhere)
        why = f"the schema is half distributed: Citus does not know {unknown}"
    else:
        return
    out = way_out(placement, schema, await _parts_wanted(session))
    raise InvalidRequest(f"{why}. {out}")


async def distribute(session: PoolSession, schema: str, versions: Iterable[int]) -> None:
    """All tables of some migrations beside each other by shard, so that one shard is one node's
    business; in one transaction with what made or changed them, and so one part after the other."""
    steps = list(versions)
    beside = in_schema(f"/*schema*/{BESIDE}", schema)
    for name in (name for version in steps for name in DISTRIBUTED.get(version, ())):
        table = in_schema(f"/*schema*/{name}", schema)
        if name == BESIDE:
            await session.fetch("migrate_cut", table, await _parts_wanted(session))
        else:
            await session.fetch("migrate_distribute", table, beside)
    for table in (name for version in steps for name in REFERENCE.get(version, ())):
        await session.fetch("migrate_reference", in_schema(f"/*schema*/{table}", schema))


async def make_functions(session: Session, schema: str) -> None:
    """What nodes do by themselves, unless it is there. Only the coordinator can make it, and who
    does not find it does without."""
    name, hold = (in_schema(f"/*schema*/{name}", schema) for name in (ON_NODES, HOLD))
    (entry,) = await session.fetch("cluster_entry")
    (known,) = await session.fetch("cluster_functions", name)
    if entry["is_coordinator"] and not known["found"]:
        await session.fetch("cluster_function_make")
        await session.fetch("cluster_function_hide")
        beside = in_schema(f"/*schema*/{BESIDE}", schema)
        await session.fetch("cluster_function_place", name, beside)
    (known,) = await session.fetch("cluster_functions", hold)
    if entry["is_coordinator"] and not known["found"]:
        await session.fetch("cluster_hold_make")
        await session.fetch("cluster_hold_hide")
        await session.fetch("cluster_hold_place", hold)


async def _parts_wanted(session: Session) -> int:
    """As `citus.shard_count` says, if somebody set it; else few, for a statement that is planned
    for each part costs more than what it finds there."""
    (row,) = await session.fetch("migrate_parts")
    return int(row["wanted"] or PARTS_PER_NODE * max(1, row["nodes"]))


async def check_coordinator(session: Session) -> None:
    """A table that is made on another node stays there alone. Errors: ConfigurationError."""
    (entry,) = await session.fetch("cluster_entry")
    check_entry(entry, "migrate")


def check_entry(entry: Row, doing: str) -> None:
    """Whether this is the coordinator, out of the row of `cluster_entry`. Errors:
    ConfigurationError."""
    if not entry["is_coordinator"]:
        at = f" at {entry['coordinator']}" if entry["coordinator"] else ""
        raise ConfigurationError(
            "database.url",
            f"this is a worker node of a Citus cluster: {doing} through its coordinator{at}",
        )


# -- doctor ---------------------------------------------------------------------------------------


async def cluster_findings(session: Session, schema: str, version: int) -> list[Finding]:
    """What is wrong with where the tables are, and with the nodes."""
    placement = await read_placement(session, schema, version)
    nodes = await session.fetch("cluster_nodes")
    told = await session.fetch("cluster_versions")
    prepared = await session.fetch("cluster_prepared")
    return [
        *placement_findings(placement),
        *node_findings(nodes),
        *answer_findings(told, prepared),
    ]


def placement_findings(placement: Placement) -> list[Finding]:
    place = f"{placement.parts} parts" if placement.parts else "place"
    apart = f"not in the same {place} as {BESIDE}: one shard is on two nodes"
    unknown = "Citus does not know it: see `gnomon migrate`"
    details = [(name, apart) for name in placement.misplaced]
    details += [(name, unknown) for name in placement.nowhere]
    return [Finding(rule=COLOCATION_RULE, subject=name, detail=detail) for name, detail in details]


def node_findings(nodes: Sequence[Row]) -> list[Finding]:
    """Out of the rows of `cluster_nodes`."""
    findings = []
    for node in nodes:
        if not node["isactive"]:
            why = "switched off: citus_activate_node() brings it back"
            findings.append(Finding(rule=NODE_RULE, subject=node["name"], detail=why))
        elif not (node["hasmetadata"] and node["metadatasynced"]):
            why = "does not know all tables: start_metadata_sync_to_node() tells it"
            findings.append(Finding(rule=METADATA_RULE, subject=node["name"], detail=why))
    return findings


def answer_findings(told: Sequence[Row], prepared: Sequence[Row]) -> list[Finding]:
    """Out of what every node answered: its versions, and how many transactions are left behind."""
    findings = [
        Finding(rule=NODE_RULE, subject=row["name"], detail=f"does not answer: {row['result']}")
        for row in told
        if not row["success"]
    ]
    versions = {row["result"] for row in told if row["success"]}
    if len(versions) > 1:
        findings += [
            Finding(rule=VERSION_RULE, subject=row["name"], detail=f"is Citus {row['result']}")
            for row in told
            if row["success"]
        ]
    findings += [
        Finding(
            rule=PREPARED_RULE,
            subject=row["name"],
            detail=f"prepared transactions older than {LEFT_BEHIND}: {row['result']}; "
            "they hold their rows. recover_prepared_transactions() on the coordinator ends those "
            "of Citus; others are in pg_prepared_xacts there, for ROLLBACK PREPARED",
        )
        for row in prepared
        if row["success"] and row["result"] != "0"
    ]
    return findings
