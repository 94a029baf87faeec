"""What a program with a worker in it reads in its own log."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import gnomon


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    fields: dict[str, Any] = record.__dict__["fields"]
    return fields


@pytest.mark.parametrize("is_async", [True, False])
async def test_failures_are_in_the_log_by_default(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_async: bool
) -> None:
    """A warning for each failed attempt, an error for a dead action, both with the traceback."""
    app = gnomon.App(f"sqlite:///{tmp_path / 'gnomon.db'}")
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def plain(ctx: gnomon.Attempt) -> None:
        if ctx.attempt_no == 2:
            loop.call_soon_threadsafe(stop.set)
        raise LookupError("no such user")

    async def late(ctx: gnomon.Attempt) -> None:
        plain(ctx)

    broken = app.action(name="broken")(late if is_async else plain)
    async with app:
        retry = gnomon.Retry(max=1, min_period=timedelta(seconds=1))
        await app.schedule(broken(), id="a1", queue="mail", retry=retry)
        await app.work(stop)

    ours = [record for record in caplog.records if record.name == "gnomon.actions"]
    assert ["WARNING", "ERROR"] == [record.levelname for record in ours]
    first, last = ours
    assert {"effect": "function broken", "action": "a1", "attempt_no": 1, "queue": "mail"} == {
        name: fields_of(first)[name] for name in ("effect", "action", "attempt_no", "queue")
    }
    assert fields_of(first)["took_s"] >= 0.0
    assert fields_of(first)["next_at"] is not None
    assert ("action_dead", 2) == (last.__dict__["event"], fields_of(last)["attempt_no"])
    for record in ours:
        assert record.exc_info is not None
        assert isinstance(record.exc_info[1], LookupError)


async def test_hidden_values_are_not_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither in the error nor in a traceback that repeats it; what is stored has it."""
    monkeypatch.setenv("GNOMON_SERVER_REDACT", "args.password")
    app = gnomon.App(f"sqlite:///{tmp_path / 'gnomon.db'}")
    stop = asyncio.Event()

    @app.action
    async def login(_: gnomon.Attempt, *, password: str) -> None:
        stop.set()
        raise LookupError(f"wrong: {password}")

    async with app:
        await app.schedule(login(password="s3cret-value"), id="a1")
        await app.work(stop)
        action = await app.scheduler.get("a1")

    (record,) = [record for record in caplog.records if record.name == "gnomon.actions"]
    assert "LookupError: wrong: [redacted]" == fields_of(record)["error"]
    assert "s3cret-value" not in caplog.text
    assert action.status.last_attempt is not None
    assert "wrong: s3cret-value" in (action.status.last_attempt.error or "")


async def test_a_success_is_no_line_and_no_handler_is_added(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even for those who want everything; logging is the application's."""
    caplog.set_level(logging.DEBUG, "gnomon")
    before = logging.getLogger().handlers[:]
    stop = asyncio.Event()
    app = gnomon.App(f"sqlite:///{tmp_path / 'gnomon.db'}")

    @app.action
    async def fine(_: gnomon.Attempt) -> None:
        stop.set()

    async with app:
        await app.schedule(fine(), id="a1")
        await app.work(stop)
    assert [] == [record for record in caplog.records if record.name == "gnomon.actions"]
    assert before == logging.getLogger().handlers
    assert [] == logging.getLogger("gnomon").handlers
