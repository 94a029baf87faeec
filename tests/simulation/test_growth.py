"""Nothing grows without end: every table and every collection in memory has its bound.

Whoever adds a table or a collection names its bound here, and says in `docs/operate/growth.md` who
removes the rows of a table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import resources
from pathlib import Path

import pytest

from gnomon.stages import service
from gnomon.stores import _history
from gnomon.stores.sqlite.entities import writes
from gnomon.worker import worker
from gnomon.worker.attempt_tally import QUEUES_MAX
from tests.simulation import growing
from tests.simulation.growing import MINUTE, GrowingWorld, Sizes, live

MINUTES = 20.0
PAGE = Path(__file__).parents[2] / "docs" / "operate" / "growth.md"
FEW = 100  # shards, stages, queues, workers, what is under way

# At the rate of this world and with a retention of a minute. Without a purge, or with one that does
# not repeat, each of the four logs is several times as large in the end.
TABLES: Sizes = {
    "attempt_log": 500,
    "audit": 1_000,
    "entity": growing.ENTITIES,
    "entity_change": 500,
    "attempt_progress": 0,
    "declared_action": 0,
    "finished_action": 1_500,
    "function_set": 0,
    "history": 4 * (QUEUES_MAX + 1),  # of some minutes
    "incoming_queue": FEW,
    "installation": 1,
    "limit_grant": FEW,
    "migration": FEW,
    "processing_queue": FEW,
    "program": 0,
    "scheduled_action": FEW,
    "shard_lock": growing.SHARD_COUNT,
    "stage": FEW,
    "changed_entity": FEW,
    "stage_outbox": FEW,
    "stage_owner": growing.SHARD_COUNT,
    "stage_queue": FEW,
    "stage_server": FEW,
    "stage_state": growing.ENTITIES,
    "stage_backfill": growing.SHARD_COUNT,
    "token": 0,
    "work_limit": FEW,
    "worker": 1,
}
TASK_TABLES = {"task", "gnomon_task_owner"}  # of SQL tasks, in databases of their users'
ONLY_POSTGRES = {"sql_success", "target_login"}  # of targets; on SQLite those are files

# What a worker holds in memory, by what it grows with.
COLLECTIONS: dict[str, tuple[str, ...]] = {
    "what is configured": (
        "AttemptRunner._executors", "Graph.before", "Graph.rank", "Served._executors",
        "StageWorker._stages",
        "Worker._companions",
    ),
    "stages and their sinks": (
        "AttendanceWatch._register", "AttendanceWatch._seen_at", "AttendanceWatch.elsewhere",
        "Backfiller._pipelines", "ChangeRouter._breakers", "ChangeRouter._straight",
        "ChangeRouter._elsewhere", "ChangeRouter._here", "ChangeRouter._infos",
        "ChangeRouter._woken_by", "ClaimBuffer._claims", "FusedPasses._pipelines",
        "Reconciler._pipelines", "Relay._senders", "Relay._waiting", "SinkAges._late",
        "SinkAges._seen", "StageClaims._wanting", "StageClaims.pipelines", "StageLimits._pipelines",
        "StagePipeline._ahead", "StagePipeline.behind", "StagePipeline.claimed",
        "StagePipeline.lagging_since", "StagePipeline.next_at",
        "StageRunner._pipelines",
    ),
    "shards": (
        "PauseEnder._places", "Pump._arrivals", "Pump._lapsing", "Pump._unserved",
        "ShardsToRescan._from",
        "StageShards._guests",
        "WorkerLeases._free", "WorkerLeases._given_back", "WorkerLeases._held",
        "WorkerLeases._stolen", "WorkerLeases._watches",
    ),
    "transactions that were open at the last poll (PostgreSQL)": (
        "LateCommits._since", "LateCommits._spans",
    ),
    "lanes that have rows, or had some at the last survey": (
        "LaneRechecks._of", "Timeline._due", "Timeline._noted", "Timeline._since",
    ),
    "limits": (
        "AttemptLimits._queues", "AttemptLimits._requests", "AttemptLimits._targets",
        "AttemptRunner._gates", "Buckets._buckets", "Slots._gates",
    ),
    "documents, by their characters": ("LoadedDocuments._loaded",),
    "queues in use, and some that were": (
        "Arming._queues", "AttemptTally._of", "Slots._paces", "Slots._queues",
        "Worker._ended_counts",
    ),
    "minutes that are not stored yet, up to a number": ("TallyKeeper._unwritten",),
    "what is counted of attempts: as long as it was made": ("AttemptTally._of_others",),
    "answers to who looks, a second old at most, up to a number": ("Fresh._answers",),
    "owners that died of late": ("DeadWorkers._again_at",),
    "workers that refuse queues": ("Guest._choosy",),
    "entities that somebody holds, up to a number": (
        "HeldPauses._pauses", "KeptAnswers._answers", "Sender._held",
    ),
    "parts of the store, which has no more of them than shards": (
        "PartOrder._parts", "PartOrder._ranks",
    ),
    "what is armed, up to a number": ("ArmedQueue._at", "ArmedQueue._times"),
    "results of a burst, up to a number": ("ResultRecorder._postponed",),
    "what is under way": (
        "Batcher._senders", "Batcher._waiting", "Chains._chains", "QueueSlots.performing",
        "QueueSlots.waiting", "Reservations._doubted", "Reservations._lost", "ResultRecorder._held",
        "ResultRecorder._pauses", "ResultRecorder._unwritten", "ResultRecorder._waiting",
        "Slots._guards", "Slots._tasks", "StageClaims._busy", "StageClaims._tasks",
        "TargetWaiters._counts", "Worker._lane_of",
    ),
}  # fmt: skip
KNOWN = {place for places in COLLECTIONS.values() for place in places}


@pytest.fixture(scope="module")
def world() -> GrowingWorld:
    """Everything is kept for a minute, and a purge removes little at a time: it has to repeat."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker, "PURGE_LIMIT", 50)
        patch.setattr(service, "PURGE_LIMIT", 20)
        for kept_for in ("TOGETHER_AFTER", "MINUTES_KEPT_FOR", "HOURS_KEPT_FOR"):
            patch.setattr(_history, kept_for, MINUTE)
        patch.setattr(writes, "CHANGES_KEPT_FOR", MINUTE)
        patch.setattr(writes, "STATES_KEPT_FOR", MINUTE)
        return live(MINUTES)


def largest(looks: Iterable[tuple[float, Sizes]]) -> Sizes:
    found: Sizes = {}
    for _, sizes in looks:
        for name, size in sizes.items():
            found[name] = max(found.get(name, 0), size)
    return found


def excess(sizes: Sizes, bounds: Sizes) -> list[str]:
    return [
        f"{name}: {size} rows, of {bounds[name]} at most"
        for name, size in sizes.items()
        if name in bounds and size > bounds[name]
    ]


def test_no_table_grows_beyond_its_bound(world: GrowingWorld) -> None:
    """Twenty minutes at a steady rate, everything kept for one: what is removed keeps up."""
    sizes = largest(world.tables)

    assert set(TABLES) == set(sizes), "name the bound of a new table in this file"
    assert [] == excess(sizes, TABLES)
    assert sizes["finished_action"] > 100, "nothing was used: the test shows nothing"
    assert sizes["entity_change"] > 100


def test_no_collection_of_a_worker_grows_beyond_its_bound(world: GrowingWorld) -> None:
    """However many actions, queues and entities came by."""
    sizes = {
        name: size
        for name, size in largest(world.memory).items()
        if not name.startswith("VirtualLoop.")
    }

    assert [] == sorted(set(sizes) - KNOWN), "name the bound of a new collection in this file"
    assert [] == excess(sizes, dict.fromkeys(sizes, FEW))
    assert 1_000 < world.used


def test_the_measure_sees_what_grows(world: GrowingWorld) -> None:
    """The test above can fail: a collection that nobody empties is found and is too large."""
    world.worker._lane_of.update(dict.fromkeys(range(FEW + 1)))  # type: ignore[arg-type]
    sizes = growing.sizes_of(world.worker)

    assert ["Worker._lane_of: 101 rows, of 100 at most"] == excess(
        {"Worker._lane_of": sizes["Worker._lane_of"]}, {"Worker._lane_of": FEW}
    )


def tables_of(engine: str) -> set[str]:
    schema = resources.files(f"gnomon.stores.{engine}").joinpath("schema.sql").read_text()
    names = re.findall(r"^CREATE TABLE (?:\S+\.)?(\w+)", schema, re.MULTILINE)
    return {name for name in names if not name.endswith("_default")}


def task_tables_of(engine: str) -> set[str]:
    queries = resources.files(f"gnomon.tasks.{engine}.queries").joinpath("schema.sql").read_text()
    return set(
        re.findall(r"^CREATE TABLE (?:IF NOT EXISTS )?(?:/\S+/)?(\w+)", queries, re.MULTILINE)
    )


@pytest.mark.parametrize(("engine", "extra"), [("sqlite", set()), ("postgres", ONLY_POSTGRES)])
def test_every_table_says_who_removes_its_rows(engine: str, extra: set[str]) -> None:
    """On both engines; the page for operators has a line for each."""
    told = set(re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE))

    assert {*TABLES, *extra} == tables_of(engine)
    assert TASK_TABLES == task_tables_of(engine)
    assert {*TABLES, *ONLY_POSTGRES, *TASK_TABLES} == told
