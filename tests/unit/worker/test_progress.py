"""Reports on their way to the store: the latest of each attempt, never after its end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from gnomon.clock import SystemClock, SystemEntropy
from gnomon.contracts.env import Env
from gnomon.contracts.executor import AttemptReport
from gnomon.contracts.observer import SilentObserver
from gnomon.contracts.store import Progress
from gnomon.model.errors import StoreUnavailable
from gnomon.processes import LinuxProcesses
from gnomon.worker import progress
from gnomon.worker.progress import ProgressWriter

A, B = UUID(int=1), UUID(int=2)


class Rows:
    """A store that keeps reports of the attempts that run."""

    def __init__(self) -> None:
        self.running = {A, B}
        self.kept: dict[UUID, float] = {}
        self.calls: list[int] = []
        self.is_away = False
        self.came = asyncio.Event()

    async def report(self, reports: Sequence[Progress]) -> Collection[UUID]:
        if self.is_away:
            raise StoreUnavailable("away")
        self.calls.append(len(reports))
        self.kept.update(
            (one.attempt_id, one.fraction) for one in reports if one.attempt_id in self.running
        )
        self.came.set()
        return {one.attempt_id for one in reports} & self.running

    async def forget_reports(self, reports: Sequence[Progress]) -> None:
        for one in reports:
            self.kept.pop(one.attempt_id, None)


def writer_to(rows: Rows) -> ProgressWriter:
    store: Any = SimpleNamespace(progress=rows)
    env = Env(
        clock=SystemClock(),
        entropy=SystemEntropy(),
        observer=SilentObserver(),
        processes=LinuxProcesses(),
    )
    return ProgressWriter(store, 8, env)


def report_of(attempt_id: UUID, fraction: float) -> AttemptReport:
    return AttemptReport(id="x", guid=A, attempt_id=attempt_id, fraction=fraction, text="")


async def test_of_many_reports_the_latest_is_written() -> None:
    """A function may report for every line of a file."""
    rows = Rows()
    writer = writer_to(rows)
    for line in range(1_000):
        writer.note(report_of(A, line / 1_000))
    writer.note(report_of(B, 0.5))

    await writer.write()
    await writer.write()

    assert {A: 0.999, B: 0.5} == rows.kept
    assert [2] == rows.calls


async def test_nothing_is_left_of_an_attempt_that_ended() -> None:
    """Neither in the store nor here, whenever it ended; a thread that goes on is not heard."""
    rows = Rows()
    writer = writer_to(rows)
    writer.note(report_of(A, 0.1))
    await writer.write()
    writer.note(report_of(A, 0.2))
    writer.forget(A)
    writer.note(report_of(B, 0.1))
    writer.forget(B)
    rows.running = set()
    await writer.write()
    writer.note(report_of(A, 0.3))
    await writer.write()

    assert {} == rows.kept
    assert not writer.has_any


async def test_what_the_store_did_not_take_comes_with_the_next() -> None:
    """An outage costs time, and not the last report."""
    rows = Rows()
    rows.is_away = True
    writer = writer_to(rows)
    writer.note(report_of(A, 0.4))
    try:
        await writer.write()
    except StoreUnavailable:
        rows.is_away = False
    await writer.write()

    assert {A: 0.4} == rows.kept


async def test_a_report_from_a_thread_is_written_at_once(monkeypatch: Any) -> None:
    """The service sleeps until somebody reports something, and wakes for it."""
    monkeypatch.setattr(progress, "WRITE_EVERY_S", 3600)
    rows = Rows()
    writer = writer_to(rows)
    service = asyncio.create_task(writer.keep_working())
    await asyncio.sleep(0)
    thread = threading.Thread(target=writer.note, args=(report_of(A, 0.4),))
    thread.start()
    thread.join()

    await rows.came.wait()
    service.cancel()

    assert {A: 0.4} == rows.kept
