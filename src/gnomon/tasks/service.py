"""Many task tables from one configuration: an owner each, and what a reload changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta

from gnomon.clock import wait_set
from gnomon.contracts.env import Env
from gnomon.contracts.task_table import TaskTable
from gnomon.model.attempt_boundary import AttemptBoundary
from gnomon.model.errors import ConfigurationError, Unavailable
from gnomon.model.task.conf import TaskEntry
from gnomon.tasks.config import TasksConfig
from gnomon.tasks.table_owner import TableOwner

OpenTable = Callable[[TaskEntry], TaskTable]
ReadEntries = Callable[[], Sequence[TaskEntry]]
Identity = tuple[str, str, str, str]

AGAIN_S = 1.0
REFUSED_AGAIN_S = 10.0  # what a login may not now, it may later


class TaskService:
    """Serves the tables that the configuration names, until stopped."""

    def __init__(
        self,
        read_entries: ReadEntries,
        open_table: OpenTable,
        *,
        config: TasksConfig,
        env: Env,
        owner: str,
    ) -> None:
        self._read_entries = read_entries
        self._open_table = open_table
        self._config = config
        self._env = env
        self._owner = owner
        self._parts: dict[Identity, _ServedTable] = {}
        self._ending: dict[asyncio.Task[None], _ServedTable] = {}
        self._failed = asyncio.Event()
        self._failure: BaseException | None = None

    @property
    def entries(self) -> Sequence[TaskEntry]:
        """The tables that are served."""
        return [part.entry for part in self._parts.values()]

    async def prepare(self) -> Sequence[str]:
        """Create what is missing; what was done. Errors: ConfigurationError, Unavailable."""
        done: list[str] = []
        for entry in self._read_entries():
            table = self._open_table(entry)
            try:
                done += await table.prepare()
            finally:
                await table.close()
        return done

    async def serve(self, stop: asyncio.Event) -> None:
        """Until `stop`; then tasks under way may end within the drain time."""
        self._change(self._read_entries())
        stopping = asyncio.create_task(stop.wait())
        failing = asyncio.create_task(self._failed.wait())
        try:
            await asyncio.wait({stopping, failing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            failing.cancel()
            for identity in list(self._parts):
                self._end(identity, drain=self._config.drain)
            for part in self._ending.values():
                part.drain = self._config.drain
            await asyncio.gather(*self._ending, return_exceptions=True)
        if self._failure is not None:
            raise self._failure

    def reload(self) -> None:
        """Read the configuration again; one that is not valid changes nothing."""
        try:
            entries = self._read_entries()
        except ConfigurationError as exc:
            self._env.observer.event("tasks_conf_refused", problem=str(exc))
            return
        self._change(entries)

    def _change(self, entries: Sequence[TaskEntry]) -> None:
        """New ones begin, others end after their tasks, and what stays has its new settings."""
        wanted = {entry.identity: entry for entry in entries}
        for identity in [known for known in self._parts if known not in wanted]:
            self._end(identity, drain=None)
        for identity, entry in wanted.items():
            known = self._parts.get(identity)
            if known is not None and known.can_change(entry):
                known.change(entry)
                continue
            if known is not None:
                self._end(identity, drain=None)
            self._begin(identity, entry)
        names = [entry.title for entry in entries]
        self._env.observer.event("tasks_conf_applied", tables=names)

    def _begin(self, identity: Identity, entry: TaskEntry) -> None:
        part = _ServedTable(
            entry, self._open_table, config=self._config, env=self._env, owner=self._owner
        )
        part.task = asyncio.get_running_loop().create_task(part.serve())
        part.task.add_done_callback(self._over)
        self._parts[identity] = part

    def _end(self, identity: Identity, *, drain: timedelta | None) -> None:
        part = self._parts.pop(identity)
        part.drain = drain
        part.stop.set()
        assert part.task is not None
        self._ending[part.task] = part

    def _over(self, task: asyncio.Task[None]) -> None:
        self._ending.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = error
            self._failed.set()


class _ServedTable:
    """One table of the service."""

    def __init__(
        self, entry: TaskEntry, open_table: OpenTable, *, config: TasksConfig, env: Env, owner: str
    ) -> None:
        self.entry = entry
        self.stop = asyncio.Event()
        self.drain: timedelta | None = config.drain
        self.task: asyncio.Task[None] | None = None
        self._open_table = open_table
        self._config = config
        self._env = env
        self._name = owner
        self._owner: TableOwner | None = None

    def can_change(self, entry: TaskEntry) -> bool:
        """Whether the new settings can be had without connecting anew."""
        fixed = (self.entry.password, self.entry.superuser, self.entry.remote)
        return fixed == (entry.password, entry.superuser, entry.remote)

    def change(self, entry: TaskEntry) -> None:
        self.entry = entry
        if self._owner is not None:
            self._owner.change(entry)

    async def serve(self) -> None:
        """Until stopped. A slip of ours in one table must not end the others."""
        while not self.stop.is_set():
            table = self._open_table(self.entry)
            try:
                with AttemptBoundary(Exception) as attempt:
                    if await self._prepare(table):
                        await self._own(table)
                if attempt.error is not None:
                    self._env.observer.event(
                        "loop_failed", loop=self.entry.title, exc_info=attempt.error
                    )
                    await self._pause(AGAIN_S)
            finally:
                self._owner = None
                await table.close()

    async def _prepare(self, table: TaskTable) -> bool:
        try:
            done = await table.prepare()
        except (ConfigurationError, Unavailable) as exc:
            is_refused = isinstance(exc, ConfigurationError)
            name = "task_table_refused" if is_refused else "task_table_unavailable"
            self._env.observer.event(name, table=self.entry.title, problem=str(exc))
            await self._pause(REFUSED_AGAIN_S if is_refused else AGAIN_S)
            return False
        if done:
            self._env.observer.event("task_table_prepared", table=self.entry.title, done=done)
        return True

    async def _own(self, table: TaskTable) -> None:
        self._owner = TableOwner(
            table, self.entry, config=self._config, env=self._env, owner=self._name
        )
        await self._owner.serve(self.stop, drain=lambda: self.drain)

    async def _pause(self, seconds: float) -> None:
        await wait_set(self.stop, seconds)
