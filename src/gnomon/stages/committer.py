"""Collects commits and set-backs, and writes them in batches: one transaction for many."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from gnomon.contracts.store.batches import BATCH_BYTES_MAX, bytes_of
from gnomon.contracts.store.entities import StateWrite
from gnomon.contracts.store.queues import Commit
from gnomon.model.attempt_boundary import AttemptBoundary

Q = TypeVar("Q")
A = TypeVar("A")

WRITERS = 2  # while one batch is on its way the next one may already leave


class _Waiting(NamedTuple, Generic[Q, A]):
    """Questions that belong together, and who waits for their answers."""

    questions: Sequence[Q]
    size: int  # in bytes
    answers: asyncio.Future[Sequence[A]]


class Batcher(Generic[Q, A]):
    """Sends what comes in while a call is on its way together in the next call."""

    def __init__(
        self,
        send: Callable[[Sequence[Q]], Awaitable[Sequence[A]]],
        *,
        limit: int,
        size_of: Callable[[Q], int] = lambda _: 0,
    ) -> None:
        self._send = send
        self._limit = limit
        self._size_of = size_of  # in bytes: see `BATCH_BYTES_MAX`
        self._waiting: deque[_Waiting[Q, A]] = deque()
        self._count = self._size = 0  # of the questions that wait
        self._senders: set[asyncio.Task[None]] = set()
        self._sending = 0  # senders that will look again; an ended one may still be in the set

    @property
    def is_behind(self) -> bool:
        """Whether a whole batch waits for somebody to send it."""
        return self._count >= self._limit or self._size >= BATCH_BYTES_MAX

    async def put(self, question: Q) -> A:
        """Send it with others; its own answer. Errors: those of the call."""
        [answer] = await self.put_all([question])
        return answer

    async def put_all(self, questions: Sequence[Q]) -> Sequence[A]:
        """The same for several that belong together; answers by position."""
        if not questions:
            return ()
        answers: asyncio.Future[Sequence[A]] = asyncio.get_running_loop().create_future()
        size = sum(map(self._size_of, questions))
        self._waiting.append(_Waiting(questions, size, answers))
        self._count += len(questions)
        self._size += size
        if self._sending < WRITERS:
            self._sending += 1
            sender = asyncio.create_task(self._keep_sending(), name="stage-commits")
            self._senders.add(sender)
            sender.add_done_callback(self._senders.discard)
        return await answers

    async def _keep_sending(self) -> None:
        try:
            await asyncio.sleep(0)  # whoever became ready in the same round comes along
            while self._waiting:
                await self._send_batch(self._next_batch())
        finally:
            self._sending -= 1

    def _next_batch(self) -> list[_Waiting[Q, A]]:
        batch: list[_Waiting[Q, A]] = []
        count = size = 0
        while self._waiting:
            is_full = (
                count + len(self._waiting[0].questions) > self._limit or size >= BATCH_BYTES_MAX
            )
            if batch and is_full:
                break
            batch.append(self._waiting.popleft())
            count += len(batch[-1].questions)
            size += batch[-1].size
        self._count -= count
        self._size -= size
        return batch

    async def _send_batch(self, batch: list[_Waiting[Q, A]]) -> None:
        answers: Sequence[A] = ()
        with AttemptBoundary(Exception) as attempt:  # handed on to all who wait
            asked = [question for waiting in batch for question in waiting.questions]
            answers = await self._send(asked)
        if attempt.error is not None:
            for _, _, future in batch:
                if not future.done():
                    future.set_exception(attempt.error)
            return
        start = 0
        for questions, _, future in batch:
            if not future.done():
                future.set_result(answers[start : start + len(questions)])
            start += len(questions)


def bytes_of_commit(commit: Commit) -> int:
    """Of all documents and states that are written."""
    return sum(
        bytes_of(part.doc) + (len(part.state.body) if isinstance(part.state, StateWrite) else 0)
        for part in commit.parts
    )
