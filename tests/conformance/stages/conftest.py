"""Whatever is promised of stages holds for those that are called alone, and in passes."""

from __future__ import annotations

import pytest

from tests.conformance.stages.given import fuse_all


@pytest.fixture(autouse=True, params=[False, True], ids=["alone", "fused"])
def fused(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same stages in both ways."""
    if request.param:
        fuse_all(monkeypatch)
