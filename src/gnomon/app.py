"""The composition root: the only module that joins the core to engines and executors.

`App` is also the Python API: declare functions, schedule actions, work.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    ParamSpec,
    Self,
    TypeVar,
    Unpack,
    get_args,
    overload,
)
from urllib.parse import urlsplit

import msgspec

from gnomon.clock import SystemClock, SystemEntropy
from gnomon.config import DatabaseConfig, Settings, StagesConfig
from gnomon.config.secrets import header_secrets, secret_of
from gnomon.config.targets import build_targets
from gnomon.contracts.env import Env
from gnomon.contracts.executor import Executor
from gnomon.contracts.leased_service import LeasedService, Ownership
from gnomon.contracts.observer import Observer, SilentObserver
from gnomon.contracts.store import ChangeResult, Installation, Store
from gnomon.contracts.task_rows import TaskRows
from gnomon.executors.http import HttpTarget
from gnomon.executors.mock import MockExecutor
from gnomon.executors.python import AttemptContext, Function, PythonExecutor, Registry
from gnomon.executors.targets import KINDS, Targets, executor_class
from gnomon.model.action import Action
from gnomon.model.errors import ConfigurationError, GnomonError
from gnomon.model.spec import Effect, Http, Mock, Python
from gnomon.model.task.conf import TaskEntry
from gnomon.processes import LinuxProcesses
from gnomon.scheduler import Request, Scheduler
from gnomon.scheduler.options import Options, request_of
from gnomon.tasks.factory import entries_of, opener_of, rows_of
from gnomon.tasks.service import TaskService
from gnomon.worker import Worker

if TYPE_CHECKING:
    from gnomon.stages.entities import Entities
    from gnomon.stages.service import Stages  # loaded by those who have stages

P = ParamSpec("P")
R = TypeVar("R")


class App:
    """Gnomon in one object: `async with App("sqlite:///gnomon.db") as app: …`."""

    def __init__(
        self,
        url: str | None = None,
        *,
        schema: str | None = None,
        settings: Settings | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.settings = _with_database(settings or Settings(), url, schema)
        self.env = Env(
            clock=SystemClock(),
            entropy=SystemEntropy(),
            observer=observer or SilentObserver(),
            processes=LinuxProcesses(),
        )
        self.registry = Registry()
        self._store: Store | None = None
        self._scheduler: Scheduler | None = None
        self.attached: list[
            Stages[Any]
        ] = []  # what its worker serves; `Stages(app, …)` adds itself
        self._entities: Entities | None = None

    def __repr__(self) -> str:
        state = "open" if self._store else "closed"
        return f"App({self.settings.database.engine}, {state})"

    # -- functions --------------------------------------------------------------------------------

    @overload
    def action(
        self, function: Callable[Concatenate[AttemptContext, P], R], /
    ) -> Function[P, R]: ...

    @overload
    def action(
        self, /, *, name: str
    ) -> Callable[[Callable[Concatenate[AttemptContext, P], R]], Function[P, R]]: ...

    def action(self, function: Any = None, /, *, name: str | None = None) -> Any:
        """Declare a function, async or not, that actions may call; calling it makes the effect."""

        declare = self.registry.function(name)
        return declare if function is None else declare(function)

    # -- life -------------------------------------------------------------------------------------

    async def open(self, *, migrate: bool = True) -> Self:
        """Connect; create or upgrade the schema unless told not to."""
        if self._store is not None:
            return self
        store = await open_store(self.settings.database, self.env)
        try:
            if migrate:
                await store.installation.migrate(shard_count=self.settings.database.shard_count)
            installation = await store.installation.open()
        except BaseException:
            await store.close()
            raise
        self._store = store
        self._scheduler = Scheduler(
            store,
            installation,
            clock=self.env.clock,
            entropy=self.env.entropy,
            config=self.settings.scheduler,
        )
        return self

    async def close(self) -> None:
        """Disconnect."""
        store, self._store, self._scheduler = self._store, None, None
        if store is not None:
            await store.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_exc_info: object) -> None:
        await self.close()

    @property
    def store(self) -> Store:
        """The open store."""
        if self._store is None:
            raise GnomonError("the app is not open: use `async with app:` or `await app.open()`")
        return self._store

    @property
    def scheduler(self) -> Scheduler:
        """The verbs: create, replace, delete, pause, …"""
        _ = self.store
        assert self._scheduler is not None
        return self._scheduler

    @property
    def installation(self) -> Installation:
        """What was fixed when the store was installed."""
        return self.scheduler.installation

    @property
    def stages_config(self) -> StagesConfig:
        """What was configured for its stages."""
        return self.settings.stages

    def adopt(self, other: App) -> None:
        """Take over the functions and the stages of another app: the one that `--import` names."""
        self.registry = other.registry
        for stages in other.attached:
            stages.move_to(self)

    @property
    def entities(self) -> Entities:
        """The verbs of entities: put, patch, explain, …"""
        from gnomon.stages.entities import Entities

        if self.attached:
            return self.attached[0].entities
        if self._entities is None or not self._entities.is_of(self.store):
            self._entities = Entities(
                self.store,
                self.installation,
                entropy=self.env.entropy,
                has_relay=self.settings.stages.relay is not None,
            )
        return self._entities

    # -- schedule ---------------------------------------------------------------------------------

    async def schedule(
        self, effect: Effect, /, *, connection: object = None, **options: Unpack[Options]
    ) -> Action:
        """Schedule an action: once `at` a time (default: now), `every` period, or by `cron`.

        With `connection` (asyncpg, psycopg or SQLAlchemy; sqlite3 on SQLite) the action is stored
        in that connection's own transaction: it exists if and when you commit.
        """
        request = request_of(effect, options)
        return (await self._create(request, connection)).action

    async def schedule_many(
        self, requests: Sequence[Request]
    ) -> Sequence[ChangeResult | GnomonError]:
        """Schedule up to 10,000 actions in one call; one answer each, in order."""
        return await self.scheduler.create_many(requests)

    async def _create(self, request: Request, connection: object) -> ChangeResult:
        if connection is None:
            return await self.scheduler.create(request)
        return await self.scheduler.create(request, within=self.store.joining(connection))

    # -- work -------------------------------------------------------------------------------------

    async def work(self, stop: asyncio.Event) -> None:
        """Be a worker until `stop` is set; then drain and return."""
        executors = self._executors()
        worker = Worker(
            self.store,
            self.installation,
            executors,
            env=self.env,
            owner=own_name(),
            config=self.settings.worker,
            open_store=self._heart_store(),
            companions=self._companions(executors),
        )
        try:
            await worker.work(stop)
        finally:
            for executor in set(executors.values()):
                await executor.close()

    def _companions(
        self, executors: Mapping[type[Effect], Executor]
    ) -> Sequence[Callable[[Ownership], LeasedService]]:
        from gnomon.stages.relays import relay_of
        from gnomon.stages.service import StageWorker

        targets = build_targets(self.settings.targets, self.settings.secrets)
        named = {
            name: (kind, target) for kind in KINDS for name, target in targets.of_kind(kind).items()
        }
        relay = relay_of(self.settings.stages, named, executors, env=self.env)
        return [partial(StageWorker.of, self, relay=relay)]

    def _executors(self) -> Mapping[type[Effect], Executor]:
        from gnomon.executors.http.executor import HttpExecutor

        targets = build_targets(self.settings.targets, self.settings.secrets)
        return {
            Python: PythonExecutor(self.registry, self.env.clock, observer=self.env.observer),
            Http: HttpExecutor(
                self.settings.http,
                self.env.observer,
                self.env.clock,
                targets=targets.of(HttpTarget),
                secrets=header_secrets(self.settings.secrets),
            ),
            Mock: MockExecutor(),
            **self._target_executors(targets),
        }

    def _target_executors(self, targets: Targets) -> Mapping[type[Effect], Executor]:
        """Those of the kinds that have targets here; the libraries of the others are not loaded."""
        executors = {}
        for effect in get_args(Effect):
            kind = effect.__struct_config__.tag
            if kind != "http" and kind in KINDS and targets.of_kind(kind):
                make = executor_class(kind)
                executors[effect] = make(
                    targets.of_kind(kind),
                    clock=self.env.clock,
                    observer=self.env.observer,
                    **(self._own_database() if kind == "sql" else {}),
                )
        return executors

    def _own_database(self) -> Mapping[str, Any]:
        """What the SQL executor is told of the installation's own database, in which an effect and
        its result can be committed together."""
        database = self.settings.database
        return {"database_url": database.url, "schema": database.schema, "is_bounded": True}

    def _heart_store(self) -> Callable[[], Any] | None:
        database = self.settings.database
        if database.is_memory:
            return None
        if database.engine == "sqlite":
            return partial(_shared, self.store)
        return lambda: open_store(replace(database, pool_size=1), self.env)


async def _shared(store: Store) -> Store:
    """The app's store, for the heartbeat too. A file has one writer, whose thread puts heartbeats
    first; a second one in the same process would compete with it for the file."""
    return msgspec.structs.replace(store, close=_left_open)


async def _left_open() -> None:
    """The store belongs to the app."""


async def open_store(database: DatabaseConfig, env: Env) -> Store:
    """Open the engine that the URL names."""
    if database.engine == "sqlite":
        from gnomon.stores.sqlite import open_sqlite

        path = sqlite_path(database.url)
        if path != ":memory:":
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        return open_sqlite(
            path,
            clock=env.clock,
            entropy=env.entropy,
            attempts_kept_for=database.attempt_retention,
            audit_kept_for=database.audit_retention,
            observer=env.observer,
        )
    from gnomon.stores.postgres import open_postgres

    return await open_postgres(
        database.url,
        schema=database.schema,
        clock=env.clock,
        entropy=env.entropy,
        pool_size=database.pool_size,
        prepared=database.prepared_statements,
        attempts_kept_for=database.attempt_retention,
        audit_kept_for=database.audit_retention,
        observer=env.observer,
    )


def task_service(read_settings: Callable[[], Settings], env: Env) -> TaskService:
    """The service of the task tables that the settings name; they are read again at a reload."""
    config = read_settings().tasks
    _check_task_file(read_settings())

    def read_entries() -> Sequence[TaskEntry]:
        settings = read_settings()
        return entries_of(settings.tasks, lambda name: secret_of(settings.secrets, name))

    return TaskService(
        read_entries, opener_of(config, env), config=config, env=env, owner=own_name()
    )


def _check_task_file(settings: Settings) -> None:
    """What is in a task table must not be able to do all that the scheduler can."""
    own, dsn = settings.database, settings.tasks.dsn
    if own.engine != "sqlite" or own.is_memory or dsn is None or settings.tasks.engine != "sqlite":
        return
    if Path(sqlite_path(own.url)).resolve() == Path(sqlite_path(dsn)).resolve():
        raise ConfigurationError("tasks.dsn", "is the scheduler's own file: tasks need another")


@asynccontextmanager
async def open_task_rows(settings: Settings, env: Env) -> AsyncIterator[Mapping[str, TaskRows]]:
    """The task tables that callers may look at, by name; they connect when they are asked."""
    entries = entries_of(settings.tasks, lambda name: secret_of(settings.secrets, name))
    tables = {entry.title: rows_of(settings.tasks, entry, env) for entry in entries}
    try:
        yield tables
    finally:
        for rows in tables.values():
            await rows.close()


def own_name() -> str:
    """What this process calls itself where it owns something."""
    return f"{socket.gethostname()}/{os.getpid()}"


def sqlite_path(url: str) -> str:
    """The file of a `sqlite:///relative`, `sqlite:////absolute` or `sqlite:///:memory:` URL."""
    path = urlsplit(url).path.removeprefix("/")
    if not path:
        raise ConfigurationError("database.url", "names no file: write sqlite:///gnomon.db")
    return path


def _with_database(settings: Settings, url: str | None, schema: str | None) -> Settings:
    database = settings.database
    if url is not None:
        database = replace(database, url=url)
    if schema is not None:
        database = replace(database, schema=schema)
    return replace(settings, database=database)
