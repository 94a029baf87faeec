"""The composition root: the only module that joins the core to engines and executors.

`App` is also the Python API: declare functions, schedule actions, work.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, get_args, overload
from urllib.parse import urlsplit

from gnomon.clock import SystemClock, SystemEntropy
from gnomon.config import DatabaseConfig, Settings
from gnomon.config.secrets import header_secrets
from gnomon.config.targets import build_targets
from gnomon.contracts.env import Env
from gnomon.contracts.executor import Executor
from gnomon.contracts.observer import Observer, Silent
from gnomon.contracts.store import Changed, Installation, Store
from gnomon.executors.http import HttpExecutor, HttpTarget
from gnomon.executors.mock import MockExecutor
from gnomon.executors.python import AttemptContext, Function, PythonExecutor, Registry
from gnomon.executors.targets import KINDS, Targets, executor_class
from gnomon.model.action import Action
from gnomon.model.errors import ConfigurationError, GnomonError
from gnomon.model.spec import Effect, Http, Mock, Python
from gnomon.scheduler import Request, Scheduler
from gnomon.scheduler.options import Options, request_of
from gnomon.worker import Worker

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
        self.env = Env(clock=SystemClock(), entropy=SystemEntropy(), observer=observer or Silent())
        self.registry = Registry()
        self._store: Store | None = None
        self._scheduler: Scheduler | None = None

    def __repr__(self) -> str:
        state = "open" if self._store else "closed"
        return f"App({self.settings.database.engine}, {state})"

    @classmethod
    def from_settings(cls, settings: Settings, *, observer: Observer | None = None) -> App:
        """An app as configured."""
        return cls(settings=settings, observer=observer)

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

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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

    async def schedule_many(self, requests: Sequence[Request]) -> Sequence[Changed | GnomonError]:
        """Schedule up to 10,000 actions in one call; one answer each, in order."""
        return await self.scheduler.create_many(requests)

    async def _create(self, request: Request, connection: object) -> Changed:
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
            owner=f"{socket.gethostname()}/{os.getpid()}",
            config=self.settings.worker,
            open_store=self._heart_store(),
        )
        try:
            await worker.work(stop)
        finally:
            for executor in set(executors.values()):
                await executor.close()

    def _executors(self) -> Mapping[type[Effect], Executor]:
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
        found = {}
        for effect in get_args(Effect):
            kind = effect.__struct_config__.tag
            if kind != "http" and kind in KINDS and targets.of_kind(kind):
                make = executor_class(kind)
                found[effect] = make(
                    targets.of_kind(kind),
                    clock=self.env.clock,
                    observer=self.env.observer,
                    **(self._own_database() if kind == "sql" else {}),
                )
        return found

    def _own_database(self) -> Mapping[str, Any]:
        """Where effects and the note that they are done can share a transaction."""
        database = self.settings.database
        return {"database_url": database.url, "schema": database.schema}

    def _heart_store(self) -> Callable[[], Any] | None:
        database = self.settings.database
        if database.is_memory:
            return None
        return lambda: open_store(replace(database, pool_size=1), self.env)


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
        audit_kept_for=database.audit_retention,
        observer=env.observer,
    )


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
