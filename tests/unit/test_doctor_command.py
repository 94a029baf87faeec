"""`gnomon doctor`: what was found is said, whatever else cannot be looked at because of it."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from gnomon.cli.doctor import look
from gnomon.contracts.store import Finding
from gnomon.model.errors import StoreUnavailable

AWAY = Finding(rule="cluster_node", subject="b:2", detail="does not answer")


def app_of(findings: Sequence[Finding]) -> Any:
    """Of which a node is away."""
    refused = AsyncMock(side_effect=StoreUnavailable("connection refused"))
    installation = SimpleNamespace(
        verify_identity=AsyncMock(return_value=None), doctor=AsyncMock(return_value=findings)
    )
    outbox = SimpleNamespace(backlog=refused)
    return SimpleNamespace(store=SimpleNamespace(installation=installation, outbox=outbox))


async def test_a_node_that_is_away_is_named() -> None:
    """Though no other question is answered meanwhile, which is said, too."""
    away, unasked = await look(app_of([AWAY]))
    assert AWAY == away
    assert "not_looked_at" == unasked.rule
    assert "connection refused" in unasked.detail


async def test_a_store_that_does_not_answer_is_an_error() -> None:
    """Nothing was found, and not all was looked at."""
    with pytest.raises(StoreUnavailable):
        await look(app_of([]))
