"""What a worker does in shards whose owner keeps silent, in virtual time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from gnomon.stores.sqlite.move import move_unheld
from gnomon.worker import WorkerConfig
from tests.simulation.limited import Stage, play

BATCH = 12


def test_a_helper_moves_one_batch_at_a_time_however_many_shards_are_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A batch of each shard in one statement may take longer than a statement may, each time."""
    batches: list[int] = []

    def counted(*args: Any, **named: Any) -> Any:
        moved = move_unheld(*args, **named)
        batches.append(moved.count)
        return moved

    monkeypatch.setattr("gnomon.stores.sqlite.work.move_unheld", counted)

    async def scene(stage: Stage) -> None:
        await stage.settle()
        stage.members[0].kill()
        soon = await stage.store.installation.now() + timedelta(hours=1)
        await stage.create(400, start_at=soon)
        await stage.until(lambda: sum(batches) > 3 * BATCH, within_s=9)

    play(scene, config=WorkerConfig(concurrency=20, move_batch=BATCH))
    assert BATCH >= max(batches)
