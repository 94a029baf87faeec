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


@pytest.mark.parametrize("count", [1, 2, 25])
async def test_what_is_refused_for_long_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """An engine may call it unavailable what is one row's fault; it is tried again apart, and not
    lost. More of them than there are writers."""
    monkeypatch.setattr("gnomon.worker.recorder.RETRY_FIRST_S", 0.001)
    monkeypatch.setattr("gnomon.worker.recorder.RETRY_MAX_S", 0.002)
    refused = {"a0", "a1", "a7", "a13"}
    book, seen, seen_while_refused = Book(), list[str](), list[str]()
    real = book.finish

    async def refuse(finishes: Sequence[FinishRequest], *, owner: str) -> Sequence[Recorded]:
        if refused & {finish.id for finish in finishes}:
            raise StoreUnavailable("a node was lost")
        return await real(finishes, owner=owner)

    book.finish = refuse  # type: ignore[method-assign]
    recorder = ResultRecorder(
        cast("WorkStore", cast("Any", book)),
        owner="me",
        batch=10,
        observer=Audience(),
        recorded=lambda result, _: seen.append(result.id),
    )
    names = {f"a{number}" for number in range(count)}
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(recorder.keep_writing())
        for number in range(count):
            recorder.put(finish(number))
        async with asyncio.timeout(30):
            while set(seen) != names - refused:
                await asyncio.sleep(0.001)
            recorder.put(finish(100))  # later ones find a writer, too
            while "a100" not in seen:
                await asyncio.sleep(0.001)
            seen_while_refused += seen
            refused.clear()
            await recorder.idle()
        writing.cancel()
    assert len(seen_while_refused) == len(set(seen_while_refused))
    assert sorted(names | {"a100"}) == sorted(seen)
    assert 0 == recorder.backlog


async def test_a_store_that_is_away_for_long_is_asked_seldom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody is answered, so the batch stays together: its tries, and one of a part each time."""
    monkeypatch.setattr("gnomon.worker.recorder.RETRY_FIRST_S", 0.0)
    monkeypatch.setattr("gnomon.worker.recorder.RETRY_MAX_S", 0.0)
    book = Book(failures=40)
    seen, audience = await recorded_by(book, 8, batch=8)
    assert 8 == len(seen)
    assert [8] == [len(batch) for batch in book.batches]
    assert 40 == audience.counts["store_errors"]


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


def recorder_into(book: Book, seen: list[str], *, batch: int) -> ResultRecorder:
    return ResultRecorder(
        cast("WorkStore", cast("Any", book)),
        owner="me",
        batch=batch,
        observer=Audience(),
        recorded=lambda result, _: seen.append(result.id),
    )


async def test_results_of_a_burst_wait_for_its_end_and_others_do_not() -> None:
    """What may wait is not begun to be written while it goes on; what may not is."""
    book, seen = Book(), list[str]()
    recorder = recorder_into(book, seen, batch=10)
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(recorder.keep_writing())
        recorder.note_burst(goes_on=True)
        for number in range(8):
            recorder.put(finish(number), may_wait=number < 4)
            recorder.note_burst(goes_on=True)  # it is said again and again
        async with asyncio.timeout(10):
            while len(seen) < 4:
                await asyncio.sleep(0.001)
        assert ["a4", "a5", "a6", "a7"] == seen
        assert 4 == recorder.backlog
        recorder.note_burst(goes_on=False)
        await recorder.idle()
        recorder.put(finish(8), may_wait=True)  # there is no burst any more
        await recorder.idle()
        writing.cancel()
    assert [f"a{number}" for number in (4, 5, 6, 7, 0, 1, 2, 3, 8)] == seen


async def test_results_wait_for_a_long_burst_for_a_moment_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker that is killed loses what it has not written; so nothing waits twice for one burst,
    but for the next one it does."""
    monkeypatch.setattr("gnomon.worker.recorder.POSTPONED_FOR_S", 0.01)
    book, seen = Book(), list[str]()
    recorder = recorder_into(book, seen, batch=10)
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(recorder.keep_writing())
        recorder.note_burst(goes_on=True)
        recorder.put(finish(0), may_wait=True)
        async with asyncio.timeout(10):
            await recorder.idle()  # by the time alone
            recorder.note_burst(goes_on=True)
            recorder.put(finish(1), may_wait=True)
            assert recorder.ready == 1
            await recorder.idle()
        recorder.note_burst(goes_on=False)
        recorder.note_burst(goes_on=True)
        recorder.put(finish(2), may_wait=True)
        assert recorder.ready == 0
        async with asyncio.timeout(10):
            await recorder.idle()
        writing.cancel()
    assert ["a0", "a1", "a2"] == seen


async def test_no_more_results_wait_for_a_burst_than_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory has a bound, and what waits does not count as a backlog that stops the worker."""
    monkeypatch.setattr("gnomon.worker.recorder.POSTPONED_MAX", 3)
    monkeypatch.setattr("gnomon.worker.recorder.BACKLOG_MAX", 3)
    recorder = recorder_into(Book(), [], batch=10)
    recorder.note_burst(goes_on=True)
    for number in range(5):
        recorder.put(finish(number), may_wait=True)
    assert (5, 2, False) == (recorder.backlog, recorder.ready, recorder.is_behind)
    recorder.put(finish(5), may_wait=True)
    assert recorder.is_behind
    recorder.note_burst(goes_on=False)
    assert 6 == recorder.ready


async def test_what_waited_and_what_came_since_share_each_batch() -> None:
    """Neither has to wait until the other is written."""
    book, seen = Book(), list[str]()
    recorder = recorder_into(book, seen, batch=4)
    recorder.note_burst(goes_on=True)
    for number in range(8):
        recorder.put(finish(number), may_wait=number < 5)
    recorder.note_burst(goes_on=False)
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(recorder.keep_writing())
        async with asyncio.timeout(10):
            await recorder.idle()
        writing.cancel()
    assert [["a5", "a6", "a0", "a1"], ["a7", "a2", "a3", "a4"]] == book.batches
