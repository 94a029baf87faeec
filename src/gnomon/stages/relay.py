"""After the save: saved versions leave the outbox, in order per entity, and only after an answer.

Two kinds of rows: for the relay (a broker, an HTTP receiver, or a function), and for a stage's own
`after_save`. What is not accepted comes again later; it holds back only its own entity and sink.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from typing import Protocol

from gnomon.contracts.companion import Ownership
from gnomon.contracts.env import Env
from gnomon.contracts.store import Holding
from gnomon.contracts.store.entities import EntityStore, Outgoing
from gnomon.model.errors import Unavailable
from gnomon.model.outcome import cut
from gnomon.stages.config import StagesConfig
from gnomon.stages.delivering import HeldBackError
from gnomon.stages.served import OutageError, Served

RETRY_MIN_S = 1.0
RETRY_MAX_S = 3600.0
OUTAGE_MIN_S = 1.0
OUTAGE_MAX_S = 10.0
ERROR_CHARS_MAX = 500
RELAY_SINK = ""


class RelayTarget(Protocol):
    """Where saved versions go: a broker's topic, a receiver, a function."""

    async def send(self, rows: Sequence[Outgoing]) -> Sequence[Exception | None]:
        """Deliver them, those of one entity in order; None where it has been acknowledged."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _Away:
    """A sink that took nothing, and how long it is left alone."""

    pause_s: float
    until_s: float  # of the monotonic clock
    error: str


class Relay:
    """Empties the outbox of the shards that this process holds."""

    def __init__(
        self,
        store: EntityStore,
        stages: Sequence[Served],
        target: RelayTarget | None,
        *,
        ownership: Ownership,
        env: Env,
        config: StagesConfig,
    ) -> None:
        self._store = store
        self._stages: Mapping[str, Served] = {each.info.name: each for each in stages}
        self._target = target
        self._ownership = ownership
        self._config = config
        self._observer = env.observer
        self._wake = asyncio.Event()
        self._clock = env.clock
        self._away: dict[str, _Away] = {}  # sinks that take nothing at present

    def wake(self) -> None:
        """Something was saved."""
        self._wake.set()

    async def keep_relaying(self) -> None:
        """Relay until cancelled."""
        while True:
            self._wake.clear()
            try:
                busy = await self.step()
            except Unavailable as exc:
                self._observer.count("store_errors", operation="relay")
                self._observer.event("relay_failed", error=str(exc))
                busy = False
            if not busy:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._config.poll.total_seconds()):
                        await self._wake.wait()

    async def step(self) -> bool:
        """One round; True if anything left the outbox."""
        holdings: Sequence[Holding] = self._ownership.trusted()
        if not holdings:
            return False
        rows = await self._store.outgoing(holdings, limit=self._config.relay_batch)
        if not rows:
            return False
        by_sink = groupby(sorted(rows, key=lambda row: row.sink), key=lambda row: row.sink)
        left = await asyncio.gather(*(self._deliver(sink, list(some)) for sink, some in by_sink))
        return any(left)

    async def _deliver(self, sink: str, rows: list[Outgoing]) -> bool:
        away = self._away.get(sink)
        if away is not None and self._clock.monotonic() < away.until_s:
            await self._wait(rows, away)
            return False
        newest, superseded = self._newest(sink, rows)
        try:
            answers = await self._answers(sink, newest)
        except OutageError as exc:
            await self._wait_out(sink, rows, str(exc))
            return False
        sent = [row for row, answer in zip(newest, answers, strict=True) if answer is None]
        if sink == RELAY_SINK and not sent:  # not one of them: it is the receiver, not a save
            await self._wait_out(sink, rows, _text_of(answers[0]))
            return False
        self._away.pop(sink, None)
        arrived = {row.entity_id for row in sent}
        sent += [row for row in superseded if row.entity_id in arrived]
        if sent:
            await self._store.sent(sent)
            self._observer.count("outbox_sent", len(sent), sink=sink or "relay")
        await self._put_failed_off(rows, newest, answers)
        return bool(sent)

    async def _wait_out(self, sink: str, rows: list[Outgoing], error: str) -> None:
        """The receiver is away: leave it alone for a while, and burn nobody's attempts."""
        before = self._away.get(sink)
        pause_s = OUTAGE_MIN_S if before is None else min(OUTAGE_MAX_S, before.pause_s * 2)
        away = _Away(pause_s, self._clock.monotonic() + pause_s, error)
        self._away[sink] = away
        self._observer.event("outbox_away", sink=sink or "relay", error=error, pause_s=pause_s)
        await self._wait(rows, away)

    async def _wait(self, rows: list[Outgoing], away: _Away) -> None:
        delay_s = max(0.0, away.until_s - self._clock.monotonic())
        await self._put_off(rows, away.error, delay_s=delay_s, counts=False)

    async def _put_failed_off(
        self, rows: list[Outgoing], tried: list[Outgoing], answers: Sequence[Exception | None]
    ) -> None:
        """What failed holds back what is behind it, and nothing else."""
        oldest = {row.entity_id: row for row in reversed(rows)}
        for row, answer in zip(tried, answers, strict=True):
            if answer is None or isinstance(answer, HeldBackError):
                continue
            first = row if len(tried) == len(rows) else oldest[row.entity_id]
            delay_s = min(RETRY_MAX_S, RETRY_MIN_S * 2.0 ** min(first.attempts, 20))
            await self._put_off([first], _text_of(answer), delay_s=delay_s, counts=True)

    async def _answers(self, sink: str, rows: list[Outgoing]) -> Sequence[Exception | None]:
        if sink == RELAY_SINK:
            if self._target is None:
                raise OutageError("no relay is configured here")
            return await self._target.send(rows)
        if sink not in self._stages:
            raise OutageError(f"stage {sink} is not served here")
        return await self._stages[sink].after_save(rows)

    def _newest(self, sink: str, rows: list[Outgoing]) -> tuple[list[Outgoing], list[Outgoing]]:
        """With `latest`, only the newest of an entity's saves is told."""
        stage = self._stages.get(sink)
        if stage is None or not stage.info.latest:
            return rows, []
        by_entity = {row.entity_id: row for row in rows}  # in order, so the newest stays
        newest = list(by_entity.values())
        return newest, [row for row in rows if row is not by_entity[row.entity_id]]

    async def _put_off(
        self, rows: list[Outgoing], error: str, *, delay_s: float, counts: bool
    ) -> None:
        self._observer.count("outbox_put_off", len(rows), sink=rows[0].sink or "relay")
        if counts:
            self._observer.event(
                "outbox_put_off", sink=rows[0].sink, entity=rows[0].entity_id, error=error
            )
        await self._store.unsent(
            rows,
            delay=timedelta(seconds=delay_s),
            error=cut(error, ERROR_CHARS_MAX),
            counts=counts,
        )


def _text_of(error: Exception | None) -> str:
    return f"{type(error).__name__}: {error}"
