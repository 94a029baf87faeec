"""Keeps the calls of each stage within its limits for the whole installation.

A stage says how parallel and how fast it may be; that is written down as a limit of kind `stage`
when a process begins to serve it, and may be changed while it works. How much of the parallelism
is for this process, the store says (see `model.limits`), by one transaction at a time: the sum
never exceeds the limit. The rate is split by the shards that each process holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from uuid import UUID

from gnomon.clock import wait_set
from gnomon.contracts.env import Env
from gnomon.contracts.store import LimitStore
from gnomon.contracts.store.limits import LimitRequest
from gnomon.model.errors import Unavailable
from gnomon.model.limits import Limit, LimitKey, LimitKind
from gnomon.stages.pipeline import StagePipeline

ASK_S = 0.5
ASK_DENIED_S = 0.1
READ_EVERY_S = 2.0
ALIVE_FOR = timedelta(seconds=10)  # so long a grant counts for a process that does not ask
TRUST_S = 7.0  # and so long the process itself relies on it
LEAVE_S = 2.0


class StageLimits:
    """Asks the store how many calls this process may have under way."""

    def __init__(
        self, store: LimitStore, lines: Mapping[str, StagePipeline], *, worker: UUID, env: Env
    ) -> None:
        self._store = store
        self._lines = lines
        self._worker = worker
        self._clock = env.clock
        self._entropy = env.entropy
        self._observer = env.observer
        self._wake = asyncio.Event()
        self._read_at = 0.0
        self._is_written = False

    def wake(self) -> None:
        """A stage has something to do and may not."""
        self._wake.set()

    async def keep_asking(self, changed: Callable[[], None]) -> None:
        """Ask until cancelled; `changed` is told when the answer is another one."""
        for line in self._lines.values():
            line.capacity.granted = 0  # nothing begins before the store has said how much
        while True:
            try:
                await self._write_once()
                await self._read_in_time()
                if await self._ask():
                    changed()
            except Unavailable as exc:
                self._observer.count("store_errors", operation="share_limits")
                self._observer.event("share_failed", error=str(exc))
            await self._rest()

    async def leave(self) -> None:
        """Give everything back: nothing is under way any more."""
        nothing = {_key(name): LimitRequest(held=0, wanted=0) for name in self._lines}
        with suppress(Unavailable, TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                if nothing:
                    await self._store.share(self._worker, nothing, alive_for=ALIVE_FOR)

    async def _rest(self) -> None:
        denied = any(line.is_waiting and line.capacity.is_short for line in self._lines.values())
        if denied:
            await asyncio.sleep(ASK_DENIED_S)
            return
        await wait_set(self._wake, ASK_S)
        self._wake.clear()

    async def _write_once(self) -> None:
        """The stage's own word counts when a process begins to serve it."""
        if self._is_written:
            return
        for name, line in self._lines.items():
            info = line.served.info
            limit = Limit(kind=LimitKind.STAGE, name=name, parallel=info.parallel, rate=info.rate)
            await self._store.set(limit, guid=self._entropy.guid(), actor=f"stage:{name}")
        self._is_written = True

    async def _read_in_time(self) -> None:
        now = self._clock.monotonic()
        if now < self._read_at:
            return
        self._read_at = now + READ_EVERY_S
        limits = {use.limit.key: use.limit for use in (await self._store.list()).uses}
        for name, line in self._lines.items():
            limit = limits.get(_key(name))
            line.capacity.limit = None if limit is None else limit.parallel
            line.capacity.rate_limit = None if limit is None else limit.rate

    async def _ask(self) -> bool:
        started = self._clock.monotonic()
        claims = {_key(name): self._claim(line) for name, line in self._lines.items()}
        answer = await self._store.share(self._worker, claims, alive_for=ALIVE_FOR)
        is_changed = False
        for name, line in self._lines.items():
            is_changed = is_changed or line.capacity.granted != answer.get(_key(name))
            # A limit that was dropped, or has no parallelism, leaves the stage its own word.
            line.capacity.granted = answer.get(_key(name))
            line.capacity.granted_until = started + TRUST_S
        return is_changed

    def _claim(self, line: StagePipeline) -> LimitRequest:
        capacity = line.capacity
        # One call stays with an idle stage, if there is one for each: what is fresh need not ask.
        wanted = min(1, capacity.fair_part)
        if line.is_waiting or capacity.running:
            wanted = capacity.parallel_all
        if capacity.granted is not None:  # what is not needed is not used from here on
            capacity.granted = max(capacity.running, min(capacity.granted, wanted))
        held = capacity.running if capacity.granted is None else capacity.granted
        return LimitRequest(held=max(held, capacity.running), wanted=max(wanted, capacity.running))


def _key(stage: str) -> LimitKey:
    return LimitKey(LimitKind.STAGE, stage)
