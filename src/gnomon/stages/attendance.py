"""Where each stage of this process works, and what is known of the stages it does not serve.

The owner of a shard asks about changes and fires timers for *all* stages of the register. What it
does not serve it queues unasked, and a process that serves the stage works there as a guest, under
the owner's lease: of those that could, one is chosen (`model.stage.guests`). Should two believe
that it is them, the fences of a commit let one of them through.

A lease is used only once the register was read after it was taken: whoever held the shard before
may have served a stage that was not known here then.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from uuid import UUID

from msgspec.structs import replace

from gnomon.contracts.env import Env
from gnomon.contracts.leased_service import Ownership
from gnomon.contracts.store import HeldShard
from gnomon.contracts.store.outbox import RELAY_SINK
from gnomon.contracts.store.register import StageAttendance, StageRecord, StageRegister
from gnomon.model.errors import Unavailable
from gnomon.model.stage.graph import Reach
from gnomon.model.stage.guests import chosen_guest
from gnomon.stages.stage_info import StageInfo

ATTEND_EVERY_S = 2.0
ALIVE_FOR = timedelta(seconds=10)  # so long a worker counts as serving its stages
TRUST_S = 7.0  # and so long a guest relies on being one
UNSERVED_AFTER = timedelta(minutes=2)  # so long after its last sign nobody serves it, it is told
TELL_EVERY_S = 60.0
BACKFILL_AFTER_S = 15.0  # by then an owner knows a new stage, or has lost its lease
LEAVE_S = 2.0


Guests = Callable[[], Mapping[str, Mapping[int, HeldShard]]]  # by stage, or sink, and shard


class StageShards:
    """Which shards the stages of this process work in: its own, and those of others as a guest."""

    def __init__(self, ownership: Ownership, serves: Collection[str], env: Env) -> None:
        self._ownership = ownership
        self.serves = frozenset(serves)  # here: stages, and the relay
        self._clock = env.clock
        self._attended: frozenset[UUID] = frozenset()  # leases that the register was read under
        self._guests: Mapping[str, Mapping[int, HeldShard]] = {}
        self._until = 0.0  # of the monotonic clock: so long the guests are
        self._served: frozenset[str] = frozenset()  # by any living worker

    @property
    def worker(self) -> UUID:
        """The worker whose leases these are."""
        return self._ownership.worker

    def trusted(self) -> list[HeldShard]:
        """The shards that this process owns."""
        held = self._ownership.trusted()
        return [shard for shard in held if shard.lease_guid in self._attended]

    def holding(self, shard: int) -> HeldShard | None:
        """One of them."""
        held = self._ownership.holding(shard)
        return held if held is not None and held.lease_guid in self._attended else None

    def guests(self) -> Mapping[str, Mapping[int, HeldShard]]:
        """The shards of others, by the stage that works there."""
        return self._guests if self._clock.monotonic() < self._until else {}

    def of(self, stage: str) -> list[HeldShard]:
        """Where a stage, or a sink, works."""
        return [*self.trusted(), *self.guests().get(stage, {}).values()]

    def at(self, stage: str, shard: int) -> HeldShard | None:
        """Under which lease it works in a shard; None if it does not."""
        if stage not in self.serves:
            return None
        return self.holding(shard) or self.guests().get(stage, {}).get(shard)

    def is_elsewhere(self, stage: str, shard: int) -> bool:
        """Whether another process works on the stage's rows in this shard."""
        return self.at(stage, shard) is None and stage in self._served

    def note(self, served: frozenset[str], attended: frozenset[UUID]) -> None:
        """What this process owns, and who serves anything."""
        self._served, self._attended = served, attended

    def be_guest(self, guests: Mapping[str, Mapping[int, HeldShard]], until: float) -> None:
        """Where else it works, and how long it may rely on that."""
        self._guests, self._until = guests, until


class AttendanceWatch:
    """Keeps `StageShards` and the knowledge of other stages up to date."""

    def __init__(
        self,
        store: StageRegister,
        shards: StageShards,
        *,
        ownership: Ownership,
        env: Env,
    ) -> None:
        self._store = store
        self._serves = shards.serves
        self._shards = shards
        self._ownership = ownership
        self._clock = env.clock
        self._observer = env.observer
        self._at = 0.0
        self._tell_at = 0.0
        self._told_relay = False
        self._leases: frozenset[UUID] = frozenset()
        self.elsewhere: Mapping[str, StageInfo] = {}  # the stages that it does not serve
        self._seen_at: dict[tuple[str, int], float] = {}  # stages with their revision
        self._register: Sequence[StageRecord] = ()
        self.has_stages = bool(shards.serves)  # whether there is any, here or elsewhere

    @property
    def is_due(self) -> bool:
        """Whether it is time again: there is a lease under which nothing was read yet."""
        held = {shard.lease_guid for shard in self._ownership.trusted()}
        return self._clock.monotonic() >= self._at or not held <= self._leases

    async def attend(self) -> bool:
        """Say what is served here and learn the rest; True if the register is another one."""
        started, held = self._clock.monotonic(), self._ownership.trusted()
        attendance = await self._store.attend(
            self._ownership.worker, serves=self._serves, holdings=held, alive_for=ALIVE_FOR
        )
        self._at = started + ATTEND_EVERY_S
        self._leases = frozenset(shard.lease_guid for shard in held)
        served = frozenset(stage for stage, workers in attendance.servers.items() if workers)
        self._shards.note(served | self._serves, self._leases)
        self._shards.be_guest(self._guests(attendance), started + TRUST_S)
        self._tell_unserved(attendance, served | self._serves)
        self._tell_relay(attendance.register)
        return self._learn(attendance.register)

    def _guests(self, attendance: StageAttendance) -> Mapping[str, Mapping[int, HeldShard]]:
        guests: defaultdict[str, dict[int, HeldShard]] = defaultdict(dict)
        for stage, shard, lease_guid in attendance.openings:
            servers = attendance.servers.get(stage, frozenset()) | {self._ownership.worker}
            if (
                lease_guid not in self._leases
                and chosen_guest(stage, shard, servers) == self._ownership.worker
            ):
                guests[stage][shard] = HeldShard(shard=shard, lease_guid=lease_guid)
        return dict(guests)

    def may_backfill(self, stage: str) -> bool:
        """Whether a backfill may read the shards of others: an owner that does not know the stage,
        or what it watches by now, would not tell it of what changes behind the backfill."""
        now = self._clock.monotonic()
        seen = [at for (name, _), at in self._seen_at.items() if name == stage]
        return bool(seen) and now - max(seen) >= BACKFILL_AFTER_S

    def _learn(self, register: Sequence[StageRecord]) -> bool:
        known = [_lasting(record) for record in register]
        is_new = known != self._register
        self._register = known
        self.has_stages = bool(known or self._serves)
        if is_new:
            now = self._clock.monotonic()
            revisions = [(record.name, record.revision) for record in register]
            self._seen_at = {revision: self._seen_at.get(revision, now) for revision in revisions}
            self.elsewhere = {
                record.name: StageInfo(
                    name=record.name,
                    reach=Reach(record.kind, record.watch, record.writes),
                    revision=record.revision,
                    debounce=record.debounce,
                )
                for record in register
                if record.name not in self._serves and record.name != RELAY_SINK
            }
        return is_new

    def _tell_unserved(self, attendance: StageAttendance, served: frozenset[str]) -> None:
        unserved = unserved_stages(attendance.register, served, attendance.now)
        self._observer.gauge("stages_unserved", float(len(unserved)))
        if unserved and self._clock.monotonic() >= self._tell_at:
            self._tell_at = self._clock.monotonic() + TELL_EVERY_S
            self._observer.event("stages_unserved", stages=", ".join(unserved))

    def _tell_relay(self, register: Sequence[StageRecord]) -> None:
        """Once: every save goes to a relay, as the register has it, and none is configured here."""
        has_relay = any(record.name == RELAY_SINK for record in register)
        if has_relay and RELAY_SINK not in self._serves and not self._told_relay:
            self._observer.event("relay_not_configured")
        self._told_relay = has_relay

    async def leave(self) -> None:
        """Serve nothing any more."""
        with suppress(Unavailable, TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                await self._store.attend(
                    self._ownership.worker, serves=(), holdings=(), alive_for=ALIVE_FOR
                )


def unserved_stages(
    register: Sequence[StageRecord], served: Collection[str], now: datetime
) -> list[str]:
    """Stages that nobody serves, and nobody has for a while: what is theirs waits."""
    return [
        record.name or "relay"
        for record in register
        if record.name not in served and now - record.last_seen_at > UNSERVED_AFTER
    ]


def _lasting(record: StageRecord) -> StageRecord:
    """What of it does not change every moment."""
    return replace(record, last_seen_at=record.first_seen_at)
