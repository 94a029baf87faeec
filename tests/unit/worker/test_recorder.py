"""The recorder writes every result, in batches, however often the store fails."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, cast

import pytest

from gnomon.contracts.store import FinishRequest, Recorded, WorkStore
from gnomon.model.errors import StoreUnavailable
from gnomon.model.outcome import Succeeded
from gnomon.worker.attempt import finish_of
from gnomon.worker.recorder import FLUSH_AFTER_PACES, FLUSH_AFTER_S, ResultRecorder
from tests.unit.worker.surroundings import Audience
from tests.unit.worker.test_slots import begun


class Book:
    """A store that fails as often as it is told."""

    def __init__(
        self, failures: int = 0, poison: str = "", held: dict[str, int] | None = None
    ) -> None:
        self.failures = failures
        self.poison = poison  # the id of a result that it cannot write
        self.held = held or {}  # how often each is answered so
        self.batches: list[list[str]] = []

    async def finish(self, finishes: Sequence[FinishRequest], *, owner: str) -> Sequence[Recorded]:
        assert owner == "me"
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("down")
        if self.poison in [finish.id for finish in finishes]:
            raise ValueError(self.poison)
        self.batches.append([finish.id for finish in finishes])
        return [self._answer(finish.id) for finish in finishes]

    def _answer(self, name: str) -> Recorded:
        if not self.held.get(name):
            return Recorded.APPLIED
        self.held[name] -= 1
        return Recorded.HELD


def finish(number: int) -> FinishRequest:
    return finish_of(begun(number), Succeeded(), ended_after=timedelta(seconds=1))


async def recorded_by(
    book: Book, count: int, *, batch: int, pace_s: float = 0.0
) -> tuple[list[str], Audience]:
    audience = Audience()
    seen: list[str] = []
    recorder = ResultRecorder(
        cast("WorkStore", cast("Any", book)),
        owner="me",
        batch=batch,
        observer=audience,
        pace_s=pace_s,
        recorded=lambda result, _: seen.append(result.id),
    )
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(recorder.keep_writing())
        for number in range(count):
            recorder.put(finish(number))
        assert count == recorder.backlog
        await recorder.idle()
        writing.cancel()
    assert 0 == recorder.backlog
    return seen, audience


async def test_results_are_written_in_batches() -> None:
    """Many results share a transaction, none is left behind."""
    book = Book()
    seen, _ = await recorded_by(book, 25, batch=10)
    assert 25 == len(seen)
    assert [10, 10, 5] == sorted((len(batch) for batch in book.batches), reverse=True)


async def test_a_result_is_kept_until_the_store_answers() -> None:
    """An unavailable store delays results and loses none."""
    book = Book(failures=3)
    seen, audience = await recorded_by(book, 4, batch=10)
    assert ["a0", "a1", "a2", "a3"] == sorted(seen)
    assert 3 == audience.counts["store_errors"]


async def test_a_result_that_cannot_be_written_costs_no_other_one() -> None:
    """It is found, told and dropped: its attempt counts as interrupted when its time is over."""
    book = Book(poison="a13")
    seen, audience = await recorded_by(book, 25, batch=10)
    assert [f"a{number}" for number in range(25) if number != 13] == sorted(
        seen, key=lambda id: int(id[1:])
    )
    assert 1 == audience.counts["worker_bugs"]
    assert "result_dropped" in audience.events


async def test_a_held_result_is_tried_again_by_itself() -> None:
    """Somebody holds its action: the others are written once, and it is written in the end."""
    book = Book(held={"a1": 3})
    seen, audience = await recorded_by(book, 4, batch=10)
    assert ["a0", "a2", "a3", "a1"] == seen
    assert [["a0", "a1", "a2", "a3"], ["a1"], ["a1"], ["a1"]] == book.batches
    assert 1 + 4 == audience.counts["results"]  # held, told once, and recorded


async def test_held_results_survive_a_store_that_fails() -> None:
    """Several of them, and the store is away between two tries."""
    book = Book(held={f"a{number}": 2 for number in range(3)})
    real = book.finish

    async def fail_once(finishes: Sequence[FinishRequest], *, owner: str) -> Sequence[Recorded]:
        if len(book.batches) == 1 and not book.failures:
            book.failures = -1
            raise StoreUnavailable("down")
        book.failures = 0
        return await real(finishes, owner=owner)

    book.finish = fail_once  # type: ignore[method-assign]
    seen, _ = await recorded_by(book, 3, batch=10)
    assert ["a0", "a1", "a2"] == sorted(seen)


async def test_where_statements_are_dear_results_wait_for_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For some of the store's paces, instead of the least that results wait for each other."""
    naps: list[float] = []
    sleep = asyncio.sleep

    async def note(nap_s: float) -> None:
        naps.append(nap_s)
        await sleep(0)

    monkeypatch.setattr("gnomon.worker.recorder.asyncio.sleep", note)
    for pace_s in (0.0, 0.02):
        await recorded_by(Book(), 3, batch=10, pace_s=pace_s)
    assert {FLUSH_AFTER_S, FLUSH_AFTER_PACES * 0.02} == set(naps)
