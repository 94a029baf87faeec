"""Several transactions of one verb at a time, over as many connections: one for each shard, where a
statement may touch one shard only."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar, cast

from gnomon.model.errors import StoreUnavailable

AT_ONCE = 4  # half of a pool: two verbs may be at it

T = TypeVar("T")
R = TypeVar("R")


async def at_once(
    parts: Iterable[T], perform: Callable[[T], Awaitable[R]]
) -> list[R | StoreUnavailable]:
    """Perform every part; what came of each, in order. A part may be at a node that is away: that
    is no error of the others. All have ended when this returns. A single part fails as it does
    alone."""
    several = list(parts)
    if len(several) == 1:  # as most often: it needs no task of its own
        return [await perform(several[0])]
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(part: T) -> R:
        async with gate:
            return await perform(part)

    answers = await asyncio.gather(*map(one, several), return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, StoreUnavailable):
            raise answer
    return cast("list[R | StoreUnavailable]", answers)


async def every(parts: Iterable[T], perform: Callable[[T], Awaitable[R]]) -> list[R]:
    """The same, where all parts are needed. Errors: StoreUnavailable."""
    return [_needed(answer) for answer in await at_once(parts, perform)]


async def those_at_hand(parts: Iterable[T], perform: Callable[[T], Awaitable[R]]) -> list[R]:
    """The same, where what came of some parts is good for something by itself."""
    answers = await at_once(parts, perform)
    return [answer for answer in answers if not isinstance(answer, StoreUnavailable)]


def _needed(answer: R | StoreUnavailable) -> R:
    if isinstance(answer, StoreUnavailable):
        raise answer
    return answer
