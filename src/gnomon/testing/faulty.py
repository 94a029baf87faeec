"""A store with bad luck: calls are slow, fail, succeed without saying so, or never return.

One `FaultyStore` stands for one process's connection to a store that all of them share. Every
decision is drawn from a seeded source, so the same seed meets the same misfortune.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any

import msgspec

from gnomon.contracts.store import Store, Wakeups
from gnomon.model.errors import StoreUnavailable

Verb = Callable[..., Awaitable[Any]]

NO_ROLES = ("capabilities", "wakeups", "close", "joining")  # of the fields of a store
# Found once: every simulated process has a store of its own, and to ask a struct for its fields is
# to read their annotations again.
ROLES = tuple(field.name for field in msgspec.structs.fields(Store) if field.name not in NO_ROLES)


@dataclass(slots=True)
class Misfortune:
    """How likely each fault is, per call; all zero: a perfect connection."""

    delay_s: float = 0.0  # each way, at most
    refused: float = 0.0  # fails before it is performed
    unanswered: float = 0.0  # is performed, but its answer is lost
    hint_lost: float = 0.0


class Watcher:
    """Sees what happens to calls; a simulation overrides what it wants to know or to do."""

    def before(self, store: FaultyStore, verb: str) -> bool:  # noqa: ARG002 - for those who override
        """A call is about to leave the process; True if something happened to the process."""
        return False

    def performed(self, store: FaultyStore, verb: str, arguments: Arguments, result: Any) -> None:
        """The store performed a call, in this order; `result` may be what it raised."""

    def refused(self, store: FaultyStore, verb: str) -> None:
        """A call failed without being performed."""

    def lost(self, store: FaultyStore, verb: str, arguments: Arguments, result: Any) -> None:
        """The answer of a call that was performed got lost."""

    def after(self, store: FaultyStore, verb: str) -> bool:  # noqa: ARG002 - see before
        """The answer is about to reach the process; True if something happened to it."""
        return False


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a verb was called with."""

    args: tuple[Any, ...]
    named: dict[str, Any]


class FaultyStore:
    """Wraps any store; `store` is what the process is given."""

    def __init__(
        self,
        inner: Store,
        *,
        source: random.Random,
        misfortune: Misfortune | None = None,
        watcher: Watcher | None = None,
        name: str = "",
    ) -> None:
        self.name = name
        self.misfortune = misfortune or Misfortune()
        self.is_dead = False  # the process is gone: no call returns any more
        self.stalled_until = 0.0  # in loop time: calls wait until then and go through
        self._source = source
        self._watcher = watcher or Watcher()
        roles: dict[str, Any] = {role: _Role(self, getattr(inner, role)) for role in ROLES}
        roles["wakeups"] = _FaultyWakeups(self, inner.wakeups)
        self.store: Store = msgspec.structs.replace(inner, close=_never_closed, **roles)

    def __repr__(self) -> str:
        return f"FaultyStore({self.name}{', dead' if self.is_dead else ''})"

    async def perform(self, verb: str, method: Verb, arguments: Arguments) -> Any:
        """One call, there and back, as far as it gets."""
        await self._travel(is_struck=self._watcher.before(self, verb))
        if self._is_struck(self.misfortune.refused):
            self._watcher.refused(self, verb)
            raise StoreUnavailable("the store did not take the call")
        result = await self._perform(verb, method, arguments)
        await self._travel(is_struck=self._watcher.after(self, verb))
        if self._is_struck(self.misfortune.unanswered):
            self._watcher.lost(self, verb, arguments, result)
            raise StoreUnavailable("the answer was lost")
        if isinstance(result, Exception):
            raise result
        return result

    async def _perform(self, verb: str, method: Verb, arguments: Arguments) -> Any:
        try:
            result = await method(*arguments.args, **arguments.named)
        except Exception as exc:  # noqa: BLE001 - handed on to the caller, unless it is lost
            result = exc
        self._watcher.performed(self, verb, arguments, result)
        return result

    async def _travel(self, *, is_struck: bool) -> None:
        if self.misfortune.delay_s and self._source.random() < 0.5:
            await asyncio.sleep(self._source.random() * self.misfortune.delay_s)
        elif is_struck:  # a frozen process stops where it waits, and nowhere else
            await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        if self.stalled_until > loop.time():
            await asyncio.sleep(self.stalled_until - loop.time())
        if self.is_dead:
            await loop.create_future()

    def _is_struck(self, rate: float) -> bool:
        return rate > 0 and self._source.random() < rate

    def loses_hint(self) -> bool:
        """Whether the next hint gets lost."""
        return self.is_dead or self._is_struck(self.misfortune.hint_lost)


class _Role:
    """One role of a store; every verb of it goes through the faulty store."""

    def __init__(self, faulty: FaultyStore, inner: object) -> None:
        self._faulty = faulty
        self._inner = inner

    def __getattr__(self, verb: str) -> Verb:
        method: Verb = getattr(self._inner, verb)
        faulty = self._faulty

        async def perform(*args: Any, **named: Any) -> Any:
            return await faulty.perform(verb, method, Arguments(args, named))

        self.__dict__[verb] = perform  # found without this detour the next time
        return perform


class _FaultyWakeups:
    """Hints that may get lost on their way out and on their way in."""

    def __init__(self, faulty: FaultyStore, inner: Wakeups) -> None:
        self._faulty = faulty
        self._inner = inner

    def hint(self, shards: Collection[int]) -> None:
        if not self._faulty.loses_hint():
            self._inner.hint(shards)

    async def listen(self, callback: Callable[[frozenset[int]], None]) -> None:
        def pass_on(shards: frozenset[int]) -> None:
            if not self._faulty.loses_hint():
                callback(shards)

        await self._inner.listen(pass_on)


async def _never_closed() -> None:
    """The store is shared: its owner closes it."""
