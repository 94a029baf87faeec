"""One sink's saves: they leave in order per entity, at the sink's own pace, after an answer.

What is not accepted comes again later; it holds back only its own entity. What fails too often, or
cannot arrive at all, is not tried any more before it is freed: the save is quarantined. A sink that
takes nothing at all is left alone for a while, and nobody's attempts are burned. If there was only
one save to take, nobody knows whether it is the save or the sink: see `_wait_for_one`.

An entity may be held by somebody's open transaction, so that it cannot be written that its save was
not taken. That is written later, and until then nothing of the entity is sent.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

from msgspec.structs import replace

from gnomon.contracts.env import Env
from gnomon.contracts.leased_service import Ownership
from gnomon.contracts.store.outbox import RELAY_SINK, OutboxRow, OutboxStore
from gnomon.model.attempt_boundary import AttemptBoundary
from gnomon.model.errors import Unavailable
from gnomon.model.outcome import cut
from gnomon.stages.attendance import Guests
from gnomon.stages.bound_stage import OutageError
from gnomon.stages.codec import UndecodableError
from gnomon.stages.config import StagesConfig
from gnomon.stages.delivery import HeldBackError
from gnomon.stages.held import HeldPauses
from gnomon.stages.sink_ages import label_of
from gnomon.stages.stage import Quarantine, RetryLater

RETRY_MIN_S = 1.0
RETRY_MAX_S = 3600.0
OUTAGE_MIN_S = 1.0
OUTAGE_MAX_S = 10.0
ERROR_CHARS_MAX = 500
LONE_MAX = 5  # failures of a save that is alone; then it is no longer taken for the receiver's
HELD_MAX = 1_000  # saves that were not taken, of entities that somebody holds: then nothing is sent


@dataclasses.dataclass(frozen=True, slots=True)
class Sink:
    """Who is told of saves, and how."""

    name: str
    tell: Callable[[Sequence[OutboxRow]], Awaitable[Sequence[Exception | None]]]
    wants_latest: Callable[[], bool] = lambda: False  # of an entity's saves only the newest


class UndeliverableError(Exception):
    """This save cannot arrive, however often it is tried."""


HOPELESS = (Quarantine, UndecodableError, UndeliverableError)


@dataclasses.dataclass(frozen=True, slots=True)
class _Away:
    """The sink took nothing, and is left alone for a while."""

    pause_s: float
    until_s: float  # of the monotonic clock


@dataclasses.dataclass(frozen=True, slots=True)
class _Lone:
    """A save that nothing else was tried beside: who knows whether it is the save or the sink."""

    row: OutboxRow
    tries: int


@dataclasses.dataclass(frozen=True, slots=True)
class _Refusal:
    """What is to be written of a save that was not taken."""

    row: OutboxRow
    error: str
    delay_s: float | None  # None: it is quarantined
    counts: bool


class Sender:
    """Empties the outbox of the held shards for one sink; one round at a time."""

    def __init__(
        self,
        sink: Sink,
        outbox: OutboxStore,
        *,
        ownership: Ownership,
        env: Env,
        config: StagesConfig,
        guests: Guests = dict,
    ) -> None:
        self._sink = sink
        self._label = label_of(sink.name)
        self._outbox = outbox
        self._ownership = ownership
        self._guests = guests
        self._clock = env.clock
        self._observer = env.observer
        self._batch = config.relay_batch
        self._failures_max = config.failures_max
        self._wake = asyncio.Event()
        self._away: _Away | None = None
        self._lone: _Lone | None = None
        self._held: dict[str, _Refusal] = {}  # by entity; of several that of the first save
        self._pauses: HeldPauses[str] = HeldPauses()

    def __repr__(self) -> str:
        return f"Sender({self._label}{', away' if self.is_away else ''})"

    @property
    def is_away(self) -> bool:
        """Whether the sink took nothing the last time."""
        return self._away is not None

    @property
    def pause_s(self) -> float:
        """How long the sink is still left alone."""
        return max(0.0, self._away.until_s - self._clock.monotonic()) if self._away else 0.0

    def wake(self) -> None:
        """There may be something to send."""
        self._wake.set()

    async def keep_sending(self) -> None:
        """Send until cancelled, whenever there is something."""
        while True:
            await self._rest()
            self._wake.clear()
            try:
                while await self.step():
                    pass
            except Unavailable as exc:  # whoever looks for what is left wakes it again
                self._observer.count("store_errors", operation="relay")
                self._observer.event("relay_failed", sink=self._label, error=str(exc))

    async def _rest(self) -> None:
        """A sink that is away is left alone, whatever comes in."""
        if self.pause_s:
            await asyncio.sleep(self.pause_s)
        else:
            await self._wake.wait()

    async def step(self) -> bool:
        """One round; True if anything left the outbox."""
        guests = self._guests().get(self._sink.name, {})
        holdings = [*self._ownership.trusted(), *guests.values()]
        if self._held:
            await self._write_held()
        if not holdings or self.pause_s or len(self._held) >= HELD_MAX:
            return False
        rows = await self._outbox.due_saves(
            holdings, self._sink.name, limit=self._batch, skip=self._held.keys()
        )
        return await self._deliver(list(rows)) if rows else False

    async def _write_held(self) -> None:
        """Try again to write what was not taken; each by itself, when its pause is over."""
        self._pauses.end(self._clock.monotonic())
        for entity_key, refusal in list(self._held.items()):
            if entity_key not in self._pauses:
                del self._held[entity_key]
                await self._write(refusal)

    async def _write(self, refusal: _Refusal) -> None:
        if refusal.delay_s is None:
            written = await self._outbox.quarantine(refusal.row, error=refusal.error)
            held = frozenset() if written else {refusal.row.entity_key}
        else:
            held = await self._outbox.put_off(
                [refusal.row],
                delay=timedelta(seconds=refusal.delay_s),
                error=refusal.error,
                counts=refusal.counts,
            )
        if held:
            self._hold(refusal)

    def _hold(self, refusal: _Refusal) -> None:
        """Somebody holds the entity. Of the save no more is kept than what names it."""
        key = refusal.row.entity_key
        bare = replace(refusal.row, doc=None, state=None)
        self._held.setdefault(key, dataclasses.replace(refusal, row=bare))
        if self._pauses.put_off(key, self._clock.monotonic()):
            self._observer.event("entity_held", entity=key, sink=self._label)

    async def _deliver(self, rows: list[OutboxRow]) -> bool:
        newest, superseded = self._newest(rows)
        try:
            answers = await self._tell(newest)
        except OutageError as exc:
            await self._wait_out(rows, str(exc))
            return False
        sent = [row for row, answer in zip(newest, answers, strict=True) if answer is None]
        if self._sink.name == RELAY_SINK and not sent and not _are_hopeless(answers):
            if len({row.entity_key for row in newest}) == 1:
                await self._wait_for_one(newest[0], answers[0])
            else:  # not one of them: it is the receiver, not a save
                await self._wait_out(rows, _text_of(answers[0]))
            return False
        self._away = None
        await self._free_lone(sent)
        arrived = {row.entity_key for row in sent}
        sent += [row for row in superseded if row.entity_key in arrived]
        if sent:
            await self._outbox.remove(sent)
            self._observer.count("outbox_sent", len(sent), sink=self._label)
        await self._put_failed_off(rows, newest, answers)
        return bool(sent)

    async def _tell(self, rows: list[OutboxRow]) -> Sequence[Exception | None]:
        with AttemptBoundary(Exception, passing=(OutageError,)) as attempt:
            return await self._sink.tell(rows)
        raise OutageError(_text_of(attempt.failure)) from attempt.failure

    def _newest(self, rows: list[OutboxRow]) -> tuple[list[OutboxRow], list[OutboxRow]]:
        """What is told, and what is not because there is a newer one."""
        if not self._sink.wants_latest():
            return rows, []
        by_entity = {row.entity_key: row for row in rows}  # in order, so the newest stays
        newest = list(by_entity.values())
        return newest, [row for row in rows if row is not by_entity[row.entity_key]]

    async def _wait_out(self, rows: list[OutboxRow], error: str) -> None:
        """Leave the sink alone. Those that were tried go behind the others: perhaps it is them."""
        pause_s = OUTAGE_MIN_S
        if self._away is not None:
            pause_s = min(OUTAGE_MAX_S, self._away.pause_s * 2)
        self._away = _Away(pause_s, self._clock.monotonic() + pause_s)
        self._observer.event("outbox_away", sink=self._label, error=error, pause_s=pause_s)
        await self._put_off(rows, error, delay_s=pause_s, counts=False)

    async def _wait_for_one(self, row: OutboxRow, answer: Exception | None) -> None:
        """It alone was tried. At first it is taken for the receiver's fault, then for its own; its
        tries count in any case, and come to an end."""
        assert answer is not None
        tries = row.attempts + 1
        if self._lone is not None and self._lone.row.key == row.key:
            tries = max(tries, self._lone.tries + 1)
        tried = replace(row, attempts=tries - 1)
        self._away, self._lone = None, _Lone(row, tries)
        if self._is_hopeless(tried, answer):
            self._lone = None
            await self._quarantine(row, _text_of(answer))
            return
        if tries < LONE_MAX:
            pause_s = min(OUTAGE_MAX_S, RETRY_MIN_S * 2.0 ** (tries - 1))
            self._away = _Away(pause_s, self._clock.monotonic() + pause_s)
        await self._retry_later(tried, answer)

    async def _free_lone(self, sent: Sequence[OutboxRow]) -> None:
        """The receiver takes saves: what may have waited for it alone is due."""
        lone, self._lone = self._lone, None if sent else self._lone
        if sent and lone is not None and lone.row not in sent:
            await self._write(_Refusal(lone.row, "the receiver was away", 0.0, counts=False))

    async def _put_failed_off(
        self, rows: list[OutboxRow], tried: list[OutboxRow], answers: Sequence[Exception | None]
    ) -> None:
        """What failed holds back what is behind it, and nothing else."""
        oldest = {row.entity_key: row for row in reversed(rows)}
        failed: set[str] = set()
        for row, answer in zip(tried, answers, strict=True):
            if answer is None or isinstance(answer, HeldBackError) or row.entity_key in failed:
                continue
            failed.add(row.entity_key)
            first = row if len(tried) == len(rows) else oldest[row.entity_key]
            if self._is_hopeless(first, answer):
                await self._quarantine(first, _text_of(answer))
            else:
                await self._retry_later(first, answer)

    def _is_hopeless(self, row: OutboxRow, answer: Exception) -> bool:
        return isinstance(answer, HOPELESS) or row.attempts + 1 >= self._failures_max

    async def _quarantine(self, row: OutboxRow, error: str) -> None:
        self._observer.count("outbox_quarantined", sink=self._label)
        self._observer.event(
            "outbox_quarantined", sink=self._label, entity=row.entity_key, error=error
        )
        await self._write(_Refusal(row, cut(error, ERROR_CHARS_MAX), None, counts=True))

    async def _retry_later(self, row: OutboxRow, answer: Exception) -> None:
        error, delay_s = _text_of(answer), RETRY_MIN_S * 2.0 ** min(row.attempts, 20)
        if isinstance(answer, RetryLater) and answer.after is not None:
            delay_s = answer.after.total_seconds()
        delay_s = min(RETRY_MAX_S, delay_s)
        self._observer.event("outbox_put_off", sink=self._label, entity=row.entity_key, error=error)
        await self._put_off([row], error, delay_s=delay_s, counts=True)

    async def _put_off(
        self, rows: list[OutboxRow], error: str, *, delay_s: float, counts: bool
    ) -> None:
        self._observer.count("outbox_put_off", len(rows), sink=self._label)
        error = cut(error, ERROR_CHARS_MAX)
        delay = timedelta(seconds=delay_s)
        held = await self._outbox.put_off(rows, delay=delay, error=error, counts=counts)
        oldest = {row.entity_key: row for row in reversed(rows)}
        for entity_key in sorted(held):
            self._hold(_Refusal(oldest[entity_key], error, delay_s, counts=counts))


def _are_hopeless(answers: Sequence[Exception | None]) -> bool:
    """Whether the receiver has nothing to do with it."""
    return all(isinstance(answer, (HeldBackError, *HOPELESS)) for answer in answers)


def _text_of(error: Exception | None) -> str:
    return f"{type(error).__name__}: {error}"
