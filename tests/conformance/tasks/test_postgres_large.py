"""Large texts: nobody waits for them longer than for one step with them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gnomon.tasks.postgres import execution, session, table_access
from gnomon.tasks.postgres.rows import LARGE_CHARS
from tests.conformance.tasks.driving import Driver


class Turns:
    """Counts the turns of the event loop, and notes in which of them a step was made."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self._loop = asyncio.get_running_loop()
        self._turn = 0
        self.of_steps: list[tuple[str, int]] = []
        self._count()

    def _count(self) -> None:
        self._turn += 1
        self._loop.call_soon(self._count)

    def watch(self, place: object, name: str) -> None:
        """Note each call with a large text."""
        inner = getattr(place, name)

        def noted(*args: Any, **named: Any) -> Any:
            result = inner(*args, **named)
            if any(_is_large(value) for value in (*args, result)):
                self.of_steps.append((name, self._turn))
            return result

        self._patch.setattr(place, name, noted)


def _is_large(value: object) -> bool:
    if isinstance(value, tuple | list):
        return any(_is_large(part) for part in value)
    return isinstance(value, str | bytes) and len(value) > LARGE_CHARS


@pytest.mark.parametrize("where", ["here", "remote"])
async def test_a_large_text_takes_one_turn_at_a_time(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Reading, scanning, encoding, telling and recording it: beats come in between each two."""
    text = f"SELECT 1/0, '{'x' * (LARGE_CHARS + 1)}'"
    performing, task = await driver.take(
        driver.insert(text, remote=driver.dsn if where == "remote" else None)
    )
    turns = Turns(monkeypatch)
    turns.watch(session, "shares_transaction")
    turns.watch(execution, "as_bytes")
    turns.watch(execution, "error_text")
    turns.watch(table_access, "as_bytes")
    outcome = await performing.perform(task)
    await performing.finish(task, outcome, lease_guid=driver.lease_guid)
    made = [turn for _, turn in turns.of_steps]
    scanned = ["shares_transaction"] if where == "here" else []
    assert [*scanned, "as_bytes", "error_text", "as_bytes"] == [name for name, _ in turns.of_steps]
    assert len(made) == len(set(made)), turns.of_steps
