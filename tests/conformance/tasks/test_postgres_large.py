"""Large texts: nobody waits for them longer than for one step with them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gnomon.model.task import text
from gnomon.model.task.text import LARGE, ResultText
from gnomon.tasks.postgres import execution, rows, session, table_access
from gnomon.tasks.postgres.wire import Wire
from tests.conformance.tasks.driving import Driver

Step = tuple[str, int]  # its name, and the turn of the event loop in which it was made


class Turns:
    """Counts the turns of the event loop, and notes in which of them a step was made."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self._loop = asyncio.get_running_loop()
        self._turn = 0
        self.of_steps: list[Step] = []
        self._count()

    def _count(self) -> None:
        self._turn += 1
        self._loop.call_soon(self._count)

    def watch(self, place: object, name: str) -> None:
        """Note each call with a large text."""
        inner = getattr(place, name)

        def noted(*args: Any, **named: Any) -> Any:
            turn, result = self._turn, inner(*args, **named)
            if any(_is_large(value) for value in (*args, result)):
                self.of_steps.append((name, turn))
            return result

        self._patch.setattr(place, name, noted)

    def assert_apart(self, names: list[str]) -> None:
        """These steps were made, each in a turn of its own."""
        turns = [turn for _, turn in self.of_steps]
        assert names == [name for name, _ in self.of_steps]
        assert len(turns) == len(set(turns)), self.of_steps


def _is_large(value: object) -> bool:
    if isinstance(value, tuple | list):
        return any(_is_large(part) for part in value)
    return isinstance(value, str | bytes) and len(value) > LARGE


@pytest.fixture
async def turns(monkeypatch: pytest.MonkeyPatch) -> Turns:
    """Of every step with a text: read, scan, encode, send; make, encode and send its result."""
    turns = Turns(monkeypatch)
    turns.watch(rows, "text_of")
    turns.watch(session, "shares_transaction")
    turns.watch(execution, "as_bytes")
    turns.watch(Wire, "send")
    turns.watch(Wire, "send_pipeline")
    turns.watch(text, "as_text")
    turns.watch(table_access, "as_bytes")
    return turns


@pytest.mark.parametrize("where", ["here", "remote"])
async def test_a_large_text_takes_one_turn_at_a_time(
    driver: Driver, turns: Turns, where: str
) -> None:
    """Reading, scanning, encoding, sending and recording it: beats come in between each two."""
    large = f"SELECT '{'x' * (LARGE + 1)}'"
    await driver.perform(driver.insert(large, remote=driver.dsn if where == "remote" else None))
    sent = ["shares_transaction", "as_bytes", "send_pipeline"]
    if where == "remote":
        sent = ["as_bytes", "send"]
    turns.assert_apart(["text_of", *sent, "as_text", "as_bytes", "send_pipeline"])


@pytest.mark.parametrize("where", ["here", "remote"])
async def test_an_error_does_not_quote_all_of_a_large_text(driver: Driver, where: str) -> None:
    """Each line break of it would get a tab: an error text is made of so many and no more."""
    large = "SELECT 1/0" + "\n" * LARGE
    performed = await driver.performed(large, remote=driver.dsn if where == "remote" else None)
    assert performed is not None
    assert "FAIL" == performed["state"]
    assert performed["error"].endswith(f"\n\t… ({len(large)} characters)")
    assert LARGE - len("SELECT 1/0") == performed["error"].count("\t")


async def test_a_large_value_is_quoted_in_turns(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Quoting looks at each byte: others have their turn after each step of it."""
    turns = Turns(monkeypatch)
    turns.watch(ResultText, "_escaped")
    statement = f'SELECT repeat($$"$$, {3 * LARGE - 1})'
    await driver.performed(statement, quote='"', escape='"')
    turns.assert_apart(["_escaped"] * 3)
