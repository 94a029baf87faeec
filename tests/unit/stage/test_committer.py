"""Commits go out in batches: everyone gets an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from gnomon.contracts.store.batches import BATCH_BYTES_MAX
from gnomon.stages.committer import WRITERS, Batcher


async def test_what_comes_while_a_call_is_on_its_way_leaves_together_in_the_next() -> None:
    """Few calls for many questions, answers by position."""
    calls: list[int] = []
    gate = asyncio.Event()

    async def send(questions: Sequence[int]) -> list[int]:
        calls.append(len(questions))
        await gate.wait()
        return [question * 10 for question in questions]

    batcher = Batcher(send, limit=100)
    asked = [asyncio.create_task(batcher.put(number)) for number in range(1)]
    await asyncio.sleep(0.01)
    asked += [asyncio.create_task(batcher.put(number)) for number in range(1, 50)]
    await asyncio.sleep(0.01)
    gate.set()
    assert [number * 10 for number in range(50)] == await asyncio.gather(*asked)
    assert [1, 49] == calls


async def test_a_batch_ends_by_bytes() -> None:
    """With the question by which it reaches the bound, however large that is alone."""
    calls: list[list[int]] = []

    async def send(questions: Sequence[int]) -> list[int]:
        calls.append(list(questions))
        return list(questions)

    half, huge = BATCH_BYTES_MAX // 2, 2 * BATCH_BYTES_MAX
    batcher = Batcher(send, limit=100, size_of=lambda size: size)
    sizes = [half, half, half, huge, 1, huge, 1]

    assert sizes == await asyncio.gather(*(batcher.put(size) for size in sizes))

    assert [[half, half], [half, huge], [1, huge], [1]] == calls


async def test_a_question_at_the_very_moment_the_senders_end_is_sent() -> None:
    """Whoever asks in the same round in which the last answer comes must not wait for ever."""

    async def send(questions: Sequence[int]) -> list[int]:
        await asyncio.sleep(0)
        return list(questions)

    batcher = Batcher(send, limit=1)

    async def ask_again_and_again(number: int) -> None:
        for _ in range(20):
            assert number == await batcher.put(number)

    async with asyncio.timeout(10):
        for count in range(1, 2 * WRITERS + 2):
            await asyncio.gather(*(ask_again_and_again(number) for number in range(count)))


async def test_an_error_of_the_call_reaches_all_who_wait() -> None:
    """Also one that nobody expects; the next questions go out as if nothing had been."""
    is_broken = True

    async def send(questions: Sequence[int]) -> list[int]:
        if is_broken:
            raise RuntimeError("broken")
        return list(questions)

    batcher = Batcher(send, limit=10)
    answers = await asyncio.gather(*map(batcher.put, range(3)), return_exceptions=True)
    assert ["broken"] * 3 == [str(answer) for answer in answers]
    is_broken = False
    assert 7 == await batcher.put(7)


async def test_who_gives_up_waiting_disturbs_nobody() -> None:
    """A cancelled call of a stage leaves its batch."""

    async def send(questions: Sequence[int]) -> list[int]:
        await asyncio.sleep(0.01)
        return list(questions)

    batcher = Batcher(send, limit=10)
    given_up = asyncio.create_task(batcher.put(1))
    other = asyncio.create_task(batcher.put(2))
    await asyncio.sleep(0.001)
    given_up.cancel()
    assert 2 == await other
    with pytest.raises(asyncio.CancelledError):
        await given_up


@pytest.mark.parametrize(("size", "count"), [(1, 5), (BATCH_BYTES_MAX, 1)])
async def test_it_is_behind_while_a_whole_batch_waits(size: int, count: int) -> None:
    """By number or by bytes; what is on its way does not count."""
    gate = asyncio.Event()

    async def send(questions: Sequence[int]) -> list[int]:
        await gate.wait()
        return list(questions)

    batcher = Batcher(send, limit=5, size_of=lambda size: size)
    asked = []
    for _ in range(WRITERS):
        asked.append(asyncio.create_task(batcher.put(1)))
        await asyncio.sleep(0.001)
    for _ in range(count):
        assert not batcher.is_behind
        asked.append(asyncio.create_task(batcher.put(size)))
        await asyncio.sleep(0.001)
    assert batcher.is_behind
    gate.set()
    await asyncio.gather(*asked)
    assert not batcher.is_behind
