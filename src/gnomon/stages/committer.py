"""Collects commits and set-backs, and writes them in batches: one transaction for many."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from gnomon.contracts.store.entities import Commit, Committed, EntityStore, SetBack

Q = TypeVar("Q")
A = TypeVar("A")

WRITERS = 2  # while one batch is on its way the next one may already leave


class Batcher(Generic[Q, A]):
    """Sends what comes in while a call is on its way together in the next call."""

    def __init__(
        self, send: Callable[[Sequence[Q]], Awaitable[Sequence[A]]], *, limit: int
    ) -> None:
        self._send = send
        self._limit = limit
        self._waiting: list[tuple[Q, asyncio.Future[A]]] = []
        self._senders: set[asyncio.Task[None]] = set()
        self._sending = 0  # senders that will look again; an ended one may still be in the set

    async def put(self, question: Q) -> A:
        """Send it with others; its own answer. Errors: those of the call."""
        answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, answer))
        if self._sending < WRITERS:
            self._sending += 1
            sender = asyncio.create_task(self._keep_sending(), name="stage-commits")
            self._senders.add(sender)
            sender.add_done_callback(self._senders.discard)
        return await answer

    async def _keep_sending(self) -> None:
        try:
            await asyncio.sleep(0)  # whoever became ready in the same round comes along
            while self._waiting:
                batch, self._waiting = self._waiting[: self._limit], self._waiting[self._limit :]
                await self._send_batch(batch)
        finally:
            self._sending -= 1

    async def _send_batch(self, batch: list[tuple[Q, asyncio.Future[A]]]) -> None:
        try:
            answers = await self._send([question for question, _ in batch])
        except Exception as exc:  # noqa: BLE001 - handed on to all who wait
            for _, future in batch:
                if not future.done():
                    future.set_exception(exc)
        else:
            for (_, future), answer in zip(batch, answers, strict=True):
                if not future.done():
                    future.set_result(answer)


class Committer:
    """The reconciler's pen."""

    def __init__(self, store: EntityStore, *, limit: int) -> None:
        self._commits: Batcher[Commit, Committed] = Batcher(store.commit, limit=limit)
        self._set_backs: Batcher[SetBack, bool] = Batcher(store.set_back, limit=limit)

    async def commit(self, commit: Commit) -> Committed:
        """Save one run."""
        return await self._commits.put(commit)

    async def set_back(self, row: SetBack) -> bool:
        """Write what became of a claim without a commit."""
        return await self._set_backs.put(row)
