"""What the doctor says about a Citus cluster, out of what its catalogue and its nodes answered."""

from __future__ import annotations

from typing import Any

import pytest

from gnomon.contracts.store import Finding
from gnomon.stores.postgres.cluster import (
    answer_findings,
    node_findings,
    placement_findings,
    placement_of,
    way_out,
)

FINE = {"name": "a:1", "isactive": True, "hasmetadata": True, "metadatasynced": True}
VERSION = "13.2 on PostgreSQL 15.20"


def table(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "method": "h", "colocation": 7, "parts": 4, **fields}


def told(name: str, result: str, *, success: bool = True) -> dict[str, Any]:
    return {"name": name, "result": result, "success": success}


def named(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(finding.rule, finding.subject) for finding in findings]


def test_a_healthy_cluster_has_no_findings() -> None:
    placement = placement_of([table("shard_lock"), table("entity")], nodes=2)
    versions = [told("a:1", VERSION), told("b:2", VERSION)]

    assert [] == placement_findings(placement)
    assert [] == node_findings([FINE, {**FINE, "name": "b:2"}])
    assert [] == answer_findings(versions, [told("a:1", "0"), told("b:2", "0")])


@pytest.mark.parametrize(
    "apart", [{"colocation": 8}, {"parts": 32}, {"method": None}], ids=["beside", "cut", "unknown"]
)
def test_a_table_that_lives_apart(apart: dict[str, Any]) -> None:
    """Beside other tables, in other parts, or nowhere that Citus knows."""
    placement = placement_of([table("shard_lock"), table("entity", **apart)], nodes=2)

    assert [("cluster_colocation", "entity")] == named(placement_findings(placement))


def test_a_node_that_is_switched_off() -> None:
    """Whatever else is true of it: it has no part in anything."""
    off = {**FINE, "isactive": False, "metadatasynced": False}

    assert [("cluster_node", "a:1")] == named(node_findings([off]))


@pytest.mark.parametrize("missing", ["hasmetadata", "metadatasynced"])
def test_a_node_that_does_not_know_all_tables(missing: str) -> None:
    assert [("cluster_metadata", "a:1")] == named(node_findings([{**FINE, missing: False}]))


def test_a_node_that_does_not_answer() -> None:
    """It is no version of its own: those that answer agree."""
    found = answer_findings([told("a:1", VERSION), told("b:2", "refused", success=False)], [])

    assert [("cluster_node", "b:2")] == named(found)
    assert "refused" in found[0].detail


def test_nodes_of_different_versions_are_all_named() -> None:
    """Nobody knows which of them is the one that was meant."""
    found = answer_findings([told("a:1", VERSION), told("b:2", "13.1 on PostgreSQL 15.20")], [])

    assert [("cluster_version", "a:1"), ("cluster_version", "b:2")] == named(found)


def test_transactions_that_were_left_behind() -> None:
    """A node that could not be asked for them is told of by another rule."""
    prepared = [told("a:1", "0"), told("b:2", "3"), told("c:3", "away", success=False)]
    found = answer_findings([], prepared)

    assert [("cluster_prepared", "b:2")] == named(found)
    assert ": 3;" in found[0].detail


def test_the_way_out_begins_with_the_table_that_the_others_live_beside() -> None:
    """It is cut as `migrate` cuts it, and nothing can be beside it before."""
    tables = [table("shard_lock", method=None, colocation=None, parts=None), table("entity")]
    placement = placement_of([*tables, table("token", method=None)], nodes=2)

    told = way_out(placement, "ours", 6).partition("coordinator: ")[2].replace('"ours".', "")
    by_shard = "SELECT create_distributed_table('{}', 'shard_id', {})"
    assert [
        "SELECT undistribute_table('entity')",
        by_shard.format("shard_lock", "shard_count => 6, colocate_with => 'none'"),
        by_shard.format("entity", "colocate_with => 'shard_lock'"),
        "SELECT create_reference_table('token')",
    ] == [statement.strip() for statement in told.split(";") if statement]
