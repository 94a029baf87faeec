"""The owner of one task table: holds its lease, and performs its tasks while it does.

Any number of processes may want a table; a lease says whose it is, by the same rule as that of
shards (`gnomon.lease`). Who could not beat in time takes nothing more. What is being performed then
goes on to its end, for each row says itself whose it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any

from gnomon.clock import wait_set
from gnomon.contracts.env import Env
from gnomon.contracts.task_table import TableLock, TaskTable
from gnomon.lease import LockWatch
from gnomon.model.errors import Unavailable
from gnomon.model.task.conf import TaskEntry
from gnomon.tasks.config import TasksConfig
from gnomon.tasks.owned_table import OwnedTable
from gnomon.tasks.sessions import Drain, Sessions

AGAIN_FIRST_S = 0.1
AGAIN_MAX_S = 2.0
LOOK_EVERY_S = 0.25  # at a table that is another's: whether it has become free


class TableOwner:
    """Owns a table whenever it can, until it is told to stop."""

    def __init__(
        self, table: TaskTable, entry: TaskEntry, *, config: TasksConfig, env: Env, owner: str
    ) -> None:
        self._table = table
        self._terms = config.lease_terms
        self._env = env
        self._owner = owner
        self._watch = LockWatch()
        self._owned = OwnedTable(table, entry, env=env)
        self._sessions = Sessions(self._owned, on_failure=self._note_failure)
        self._trusted_until = 0.0
        self._failure: BaseException | None = None
        self._failed = asyncio.Event()

    def __repr__(self) -> str:
        return f"Owner({self._owned!r})"

    @property
    def entry(self) -> TaskEntry:
        return self._owned.entry

    @property
    def is_ours(self) -> bool:
        """Whether the table is this process's at the moment."""
        return self._owned.is_ours

    def change(self, entry: TaskEntry) -> None:
        """Other settings for the same table, from now on."""
        self._owned.change(entry)
        self._sessions.finder.hint()
        self._sessions.rescuer.wake()
        self._sessions.start()

    async def serve(self, stop: asyncio.Event, *, drain: Drain) -> None:
        """Own it until `stop`; then let tasks end, at most for `drain`, and give it back."""
        again_s = AGAIN_FIRST_S
        try:
            while not stop.is_set():
                try:
                    if await self._acquire():
                        again_s = AGAIN_FIRST_S
                        await self._own(stop, drain)
                    else:
                        await wait_set(stop, LOOK_EVERY_S)
                except Unavailable as exc:
                    self._note_trouble(exc)
                    await wait_set(stop, again_s)
                    again_s = min(AGAIN_MAX_S, again_s * 2)
        finally:
            self._owned.is_closing = True
            await self._sessions.drain(drain)

    def _note_trouble(self, problem: Unavailable) -> None:
        self._lose()
        self._sessions.rescuer.server_lost()
        self._owned.event("task_table_unavailable", problem=str(problem))

    # -- the lease --------------------------------------------------------------------------------

    async def _acquire(self) -> bool:
        lock, asked_at = await self._free_lock(), self._owned.now()
        if lock is None:
            return False
        lease_guid = self._watch.ask(lock, self._env.entropy.token)
        is_ours = await self._table.acquire(
            lease_guid,
            owner=self._owner,
            seen=lock,
            lease_for=self._terms.lease,
            process=self._env.processes.own,
        )
        if not is_ours:
            return False
        self._owned.lease_guid = lease_guid
        self._owned.is_ours = True
        self._trusted_until = self._terms.trusted_until(asked_at)
        self._owned.event("task_table_owned")
        return True

    async def _free_lock(self) -> TableLock | None:
        """The lock, if it may be asked for."""
        lock = await self._table.lock()
        if lock.lease_guid is not None and self._terms.is_dead(
            lock.process, lock.silent_for, self._env.processes
        ):
            await self._table.release(lock.lease_guid)
            self._owned.event("task_table_freed", owner=lock.owner)
            lock = await self._table.lock()
        self._watch.see(lock, now := self._owned.now())
        return lock if self._watch.is_free(lock, self._terms.lease, now) else None

    async def _beat(self) -> None:
        """Keep the lease; returns when it is lost."""
        while True:
            await asyncio.sleep(self._terms.beat.total_seconds())
            self._sessions.show()
            asked_at = self._owned.now()
            try:
                async with asyncio.timeout(max(0.0, self._trusted_until - asked_at)):
                    if not await self._table.beat(self._owned.lease_guid):
                        return
            except Unavailable:
                if self._owned.now() >= self._trusted_until:
                    return
                continue
            except TimeoutError:
                return
            self._trusted_until = self._terms.trusted_until(asked_at)

    def _lose(self) -> None:
        if self._owned.is_ours:
            self._owned.is_ours = False
            self._owned.admission.clear()
            self._sessions.rescuer.forget()
            self._owned.event("task_table_lost")

    # -- owning -----------------------------------------------------------------------------------

    async def _own(self, stop: asyncio.Event, drain: Drain) -> None:
        """Perform tasks until stopped, or until the table is not ours any more."""
        finder, rescuer = self._sessions.finder, self._sessions.rescuer
        loops = [_begun(self._beat()), _begun(finder.find()), _begun(rescuer.watch())]
        others = [
            _begun(self._table.listen(finder.hint)),
            _begun(stop.wait()),
            _begun(self._failed.wait()),
        ]
        try:
            await asyncio.wait([*loops, *others[1:]], return_when=asyncio.FIRST_COMPLETED)
            if stop.is_set() and self._failure is None:
                self._owned.is_closing = True
                await self._sessions.drain(drain)
                await self._release()
                return
            self._lose()
            await self._sessions.give_up_remote()
            self._raise_failure(loops)
        finally:
            await _cancel([*loops, *others])

    async def _release(self) -> None:
        """Let the next owner begin at once."""
        with suppress(Unavailable):  # else it ends by itself
            await self._table.release(self._owned.lease_guid)
        self._watch.forget()
        self._owned.is_ours = False

    def _raise_failure(self, loops: Sequence[asyncio.Task[Any]]) -> None:
        """Whatever ended a loop or a session, if it was an error."""
        failure, self._failure = self._failure, None
        self._failed.clear()
        if failure is not None:
            raise failure
        for loop in loops:
            if loop.done():
                loop.result()

    def _note_failure(self, error: BaseException) -> None:
        self._failure = error
        self._failed.set()


def _begun(part: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    return asyncio.get_running_loop().create_task(part)


async def _cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
