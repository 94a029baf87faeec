"""Users: they create, change and remove actions, and repeat what got no answer."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from gnomon.contracts.store import ChangeResult
from gnomon.model.errors import (
    AlreadyExists,
    Conflict,
    FailedPrecondition,
    GnomonError,
    InvalidRequest,
    InvalidSpec,
    NotFound,
    StoreUnavailable,
)
from gnomon.model.pause import Until
from gnomon.scheduler import Request, Scheduler
from tests.simulation.drawing import draw_spec
from tests.simulation.history import History
from tests.simulation.zones import zoned

EXPECTED = (AlreadyExists, Conflict, FailedPrecondition, NotFound, InvalidRequest, InvalidSpec)
TRIES_MAX = 6


class User:
    """One user, with a share of the ids, some of them also used by others."""

    def __init__(
        self,
        name: str,
        scheduler: Scheduler,
        *,
        ids: list[str],
        dice: random.Random,
        history: History,
        sealed: Callable[[UUID], None],
        now: Callable[[], datetime],
        dense: bool,
        zoned_share: float,
        long_share: float,
    ) -> None:
        self._name = name
        self._scheduler = scheduler
        self._ids = ids
        self._dice = dice
        self._history = history
        self._sealed = sealed
        self._now = now
        self._dense = dense
        self._zoned_share = zoned_share
        self._long_share = long_share
        self._known: dict[str, UUID] = {}  # generations this user has seen
        self._sent: dict[str, Request] = {}
        self._keys = 0

    async def create_all(self, within_s: float) -> None:
        """Ask for every action once, spread over some time."""
        for name in self._ids:
            await asyncio.sleep(self._dice.random() * within_s / len(self._ids))
            await self._create(name)

    async def change_things(self, mean_s: float) -> None:
        """Do something every now and then, until cancelled."""
        verbs: list[tuple[Callable[[str], Awaitable[None]], int]] = [
            (self._create, 6),
            (self._replace, 6),
            (self._delete, 3),
            (self._pause, 3),
            (self._pause_until, 3),
            (self._resume, 5),
            (self._run_now, 4),
            (self._retry, 3),
            (self._look, 2),
            (self._repeat, 2),
        ]
        choices, weights = zip(*verbs, strict=True)
        while True:
            await asyncio.sleep(self._dice.expovariate(1 / mean_s))
            (verb,) = self._dice.choices(choices, weights)
            await verb(self._dice.choice(self._ids))

    # -- verbs ------------------------------------------------------------------------------------

    async def _create(self, name: str) -> None:
        request = self._request(name)
        if request.key is not None:
            self._sent[name] = request
        await self._ask("create", name, lambda: self._scheduler.create(request), key=request.key)

    async def _repeat(self, name: str) -> None:
        """Send an old request again, as a client does that was restored from a backup."""
        if name in self._sent:
            request = self._sent[name]
            self._history.reach("old request sent again")
            create = self._scheduler.create
            await self._ask("create", name, lambda: create(request), key=request.key)

    async def _replace(self, name: str) -> None:
        request, match = self._request(name), self._match(name)
        barrier = self._dice.random() < 0.04
        before = self._known.get(name)
        changed = await self._ask(
            "replace",
            name,
            lambda: self._scheduler.replace(request, if_match=match, barrier=barrier),
            key=request.key,
        )
        if barrier and changed is not None and not changed.repeated:
            self._passed(before if match is None else match, changed, is_sure=match is not None)

    async def _delete(self, name: str) -> None:
        match, drawn = self._match(name), self._dice.random()
        barrier, running = drawn < 0.1, drawn < 0.05 or drawn > 0.6
        changed = await self._ask(
            "delete",
            name,
            lambda: self._scheduler.delete(name, if_match=match, running=running, barrier=barrier),
        )
        if barrier and changed is not None:
            self._passed(changed.action.meta.guid, changed, is_sure=True)

    def _passed(self, guid: UUID | None, changed: ChangeResult, *, is_sure: bool) -> None:
        """The barrier let the change through: no attempt of the old generation may come."""
        if guid is not None and is_sure:
            self._history.reach("barrier", changed.in_flight is not None)
            self._sealed(guid)

    async def _pause(self, name: str) -> None:
        match = self._match(name)
        await self._ask("pause", name, lambda: self._scheduler.pause(name, if_match=match))

    async def _pause_until(self, name: str) -> None:
        """For a while, or up to a time, which may have passed when it is asked for again."""
        match, until = self._match(name), timedelta(seconds=self._dice.uniform(0.001, 20))
        ends: Until = until if self._dice.random() < 0.7 else self._now() + until
        reason = self._dice.choice([None, "the move", "the other move"])
        pause = self._scheduler.pause
        await self._ask(
            "pause until", name, lambda: pause(name, reason=reason, until=ends, if_match=match)
        )

    async def _resume(self, name: str) -> None:
        match = self._match(name)
        await self._ask("resume", name, lambda: self._scheduler.resume(name, if_match=match))

    async def _run_now(self, name: str) -> None:
        match = self._match(name)
        await self._ask("run_now", name, lambda: self._scheduler.run_now(name, if_match=match))

    async def _retry(self, name: str) -> None:
        await self._ask("retry", name, lambda: self._scheduler.retry(name))

    async def _look(self, name: str) -> None:
        try:
            found = await self._scheduler.get(name)
        except (NotFound, StoreUnavailable):
            return
        status = found.status
        running = status.current_attempt is not None
        ended = status.succeeded + status.failed + status.interrupted
        if status.attempts != ended + running:
            self._history.violate("counters_shown", name, status)
        self._known[name] = found.meta.guid

    # -- inside -----------------------------------------------------------------------------------

    def _request(self, name: str) -> Request:
        key = None
        if self._dice.random() < 0.5:
            self._keys += 1
            key = f"{self._name}-{self._keys}"
        spec = draw_spec(self._dice, self._now(), dense=self._dense)
        if self._zoned_share and self._dice.random() < self._zoned_share:
            spec = zoned(spec)
        if self._long_share and self._dice.random() < self._long_share:
            spec = msgspec.structs.replace(spec, timeout=timedelta(seconds=40))
        return Request(spec=spec, id=name, key=key)

    def _match(self, name: str) -> UUID | None:
        return self._known.get(name) if self._dice.random() < 0.3 else None

    async def _ask(
        self,
        verb: str,
        name: str,
        call: Callable[[], Awaitable[ChangeResult]],
        *,
        key: str | None = None,
    ) -> ChangeResult | None:
        """Ask, and ask again while the answer is unknown. None: it was refused or given up."""
        for _ in range(TRIES_MAX):
            self._history.note(self._name, f"ask {verb}", name, key or "")
            try:
                changed = await call()
            except StoreUnavailable:
                self._history.note(self._name, f"{verb} unknown", name)
                self._history.reach("unknown answer")
                if self._dice.random() < 0.2:
                    return None
                await asyncio.sleep(self._dice.random() * 2)
            except EXPECTED as exc:
                self._history.note(self._name, f"{verb} refused", name, exc.code)
                self._history.reach(f"refused {exc.code}")
                return None
            except GnomonError as exc:
                self._history.violate("api_raised", verb, name, repr(exc))
                return None
            else:
                self._history.note(self._name, f"{verb} ok", name)
                self._history.reach(f"{verb} ok")
                self._known[name] = changed.action.meta.guid
                return changed
        return None
