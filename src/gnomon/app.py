"""The composition root: the only module that joins the core to engines and executors.

`App` is also the Python API: declare functions, schedule actions, work.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, Unpack, cast, get_args
from urllib.parse import urlsplit

import msgspec

from gnomon.blocking_app import BlockingApp
from gnomon.clock import SystemClock, SystemEntropy
from gnomon.config import DatabaseConfig, Settings, StagesConfig, TracingConfig, load_settings
from gnomon.config.secrets import header_secrets, secret_of
from gnomon.config.targets import build_targets
from gnomon.contracts.env import Env
from gnomon.contracts.executor import AttemptReports, Executor, SilentReports
from gnomon.contracts.leased_service import LeasedService, Ownership
from gnomon.contracts.observer import Observer
from gnomon.contracts.store import PYTHON, ChangeResult, Installation, Store
from gnomon.contracts.task_rows import TaskRows
from gnomon.contracts.traces import Tracing
from gnomon.executors.http import HttpTarget
from gnomon.executors.mock import MockExecutor
from gnomon.executors.python import PythonExecutor, Registry
from gnomon.executors.targets import KINDS, Targets, executor_class
from gnomon.extras import require
from gnomon.functions import Functions, program_name, wait_result
from gnomon.lifespan import Lifespan, live_with
from gnomon.model.action import Action
from gnomon.model.declaration import Removal
from gnomon.model.errors import ConfigurationError, GnomonError
from gnomon.model.ids import action_id
from gnomon.model.redaction import Redaction
from gnomon.model.spec import Effect, Http, Mock, Python
from gnomon.model.task.conf import TaskEntry
from gnomon.processes import LinuxProcesses
from gnomon.scheduler import Request, Scheduler
from gnomon.scheduler.options import Duration, IfExists, Options, check_effect, request_of
from gnomon.scheduler.program import Program, ProgramKeeper
from gnomon.tasks.factory import entries_of, opener_of, rows_of
from gnomon.tasks.service import TaskService
from gnomon.telemetry.events import EventLog
from gnomon.worker import Worker
from gnomon.worker.progress import ProgressWriter

if TYPE_CHECKING:
    from gnomon.stages.entities import Entities
    from gnomon.stages.service import Stages  # loaded by those who have stages

BY_APP = "App(…)"  # the source of what an App was given itself


class StandIn(Protocol):
    """What takes the place of an app's database and of its worker: a bench, in tests."""

    async def open(self) -> Store:
        """The store that is used instead."""
        ...

    async def work(self, stop: asyncio.Event) -> None:
        """What is done instead, until `stop` is set."""
        ...


class App(Functions):
    """Gnomon in one object: `async with App("sqlite:///gnomon.db") as app: …`.

    What it is not given it reads where the commands do: `gnomon.toml` (or $GNOMON_CONFIG), then the
    environment (GNOMON_DATABASE_URL, …). With `settings` it reads neither.
    """

    face = PYTHON  # through which its verbs are used, for the audit

    def __init__(
        self,
        url: str | None = None,
        *,
        schema: str | None = None,
        settings: Settings | None = None,
        observer: Observer | None = None,
        program: str | None = None,  # whose declared actions they are; default: the module's name
        migrate: bool | None = None,  # whether opening it makes or upgrades the schema: see `open`
        removed: Removal = "pause",  # what becomes of those that the code does not declare any more
    ) -> None:
        self.settings = _settings_of(settings, url, schema)
        clock = SystemClock()
        self.env = Env(
            clock=clock,
            entropy=SystemEntropy(),
            observer=observer or EventLog(clock),
            processes=LinuxProcesses(),
            tracing=_tracing_of(self.settings.tracing),
            redaction=Redaction(self.settings.server.redact),
        )
        self.registry = Registry()
        if program is None:
            program = program_name(sys._getframe(1))  # noqa: SLF001 - as namedtuple does
        self.program = Program(program, removed)
        self._migrate = migrate
        self._store: Store | None = None
        self._scheduler: Scheduler | None = None
        self.attached: list[
            Stages[Any]
        ] = []  # what its worker serves; `Stages(app, …)` adds itself
        self._entities: Entities | None = None
        self.stand_in: StandIn | None = None
        self.blocking = BlockingApp(self._twin)  # the verbs for programs without an event loop

    def __repr__(self) -> str:
        state = "open" if self.is_open else "closed"
        return f"App({self.settings.database.engine}, {state})"

    # -- life -------------------------------------------------------------------------------------

    async def open(self, *, migrate: bool | None = None) -> Self:
        """Connect. A SQLite file is created or upgraded. On PostgreSQL that is a step of its own,
        `gnomon migrate`: a schema that is missing or outdated is an error, unless `migrate` is
        asked for here or where the app was made. Errors: SchemaMismatch."""
        if self._store is not None:
            return self
        store = await self._opened()
        try:
            if self._is_to_migrate(store, asked=migrate):
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
            tracing=self.env.tracing,
            face=self.face,
        )
        return self

    def _is_to_migrate(self, store: Store, *, asked: bool | None) -> bool:
        for wish in (asked, self._migrate):
            if wish is not None:
                return wish
        return store.capabilities.engine == "sqlite"

    async def _opened(self) -> Store:
        if self.stand_in is not None:
            return await self.stand_in.open()
        return await open_store(self.settings.database, self.env)

    def _twin(self) -> App:
        """The same app for another event loop: it declares nothing and serves no stages."""
        twin = App(settings=self.settings, migrate=self._migrate)
        twin.registry, twin.env, twin.stand_in = self.registry, self.env, self.stand_in
        return twin

    async def close(self) -> None:
        """Disconnect."""
        store, self._store, self._scheduler = self._store, None, None
        if store is not None:
            await store.close()

    def lifespan(self, *, worker: bool = False, migrate: bool | None = None) -> Lifespan:
        """Open as long as a web app lives: `FastAPI(lifespan=app.lifespan())`; Starlette alike, and
        Litestar takes a list of them. With `worker` this process works, too."""
        return partial(live_with, self, worker=worker, migrate=migrate)

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_exc_info: object) -> None:
        await self.close()

    @property
    def is_open(self) -> bool:
        """Whether it is connected."""
        return self._store is not None

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
        self.registry, self.program = other.registry, other.program
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
                face=self.face,
            )
        return self._entities

    # -- schedule ---------------------------------------------------------------------------------

    async def schedule(
        self,
        effect: Effect,
        /,
        *,
        connection: object = None,
        if_exists: IfExists = "error",
        **options: Unpack[Options],
    ) -> Action:
        """Schedule an action: once `at` a time (default: now), `every` period, or by `cron`.

        With `connection` (asyncpg, psycopg or SQLAlchemy; sqlite3 on SQLite) the action is stored
        in that connection's own transaction: it exists if and when you commit. `if_exists` says
        what happens to an active or paused action with the same id: it is an error, it is kept, or
        it gets the new spec (unless that is the same).
        """
        within = None if connection is None else self.store.joining(connection)
        request = self.request(effect, **options)
        put = await self.scheduler.put(request, if_exists=if_exists, within=within)
        return put.action

    def request(self, effect: Effect, /, **options: Unpack[Options]) -> Request:
        """What `schedule` would store, for `schedule_many`. A function's own options count where
        none are given."""
        check_effect(effect)
        if isinstance(effect, Python):
            declared = cast("Options", self.registry.options_of(effect.function))
            options = {**declared, **options}
        return request_of(effect, options)

    async def schedule_many(
        self, requests: Sequence[Request]
    ) -> Sequence[ChangeResult | GnomonError]:
        """Schedule up to 10,000 actions in one call; one answer each, in order."""
        return await self.scheduler.create_many(requests)

    async def cancel(
        self, id: str, *, running: bool = False, connection: object = None
    ) -> ChangeResult:
        """Cancel what was scheduled: no attempt of it begins any more. With `running` the attempt
        under way is asked to end, too: `in_flight` and `asked` of the answer say if there was one.

        With `connection` it is cancelled in that connection's own transaction. Errors: NotFound.
        """
        if connection is None:
            return await self.scheduler.delete(id, running=running)
        writes = self.store.joining(connection)
        return await writes.delete(action_id(id), if_match=None, running=running)

    async def result(self, id: str, *, timeout: Duration | None = None) -> Any:  # noqa: ASYNC109
        """Wait until an action has ended; what its function returned, typed as it is declared if
        the function is known here, else as plain JSON.

        Errors: NoResult if it did not succeed, or its result was not kept; NotFound if it does not
        exist, or is past its retention; InvalidRequest if it recurs; TimeoutError.
        """
        return await wait_result(self.scheduler, self.registry, id, within=timeout)

    # -- work -------------------------------------------------------------------------------------

    async def work(self, stop: asyncio.Event) -> None:
        """Be a worker until `stop` is set; then drain and return."""
        if self.stand_in is not None:
            await self.stand_in.work(stop)
            return
        progress = ProgressWriter(self.store, self.installation.shard_count, self.env)
        executors = self._executors(progress)
        worker = Worker(
            self.store,
            self.installation,
            executors,
            env=self.env,
            owner=own_name(),
            config=self.settings.worker,
            open_store=self._heart_store(),
            companions=[*self._companions(executors), lambda _: progress],
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
        keeper = ProgramKeeper(self.scheduler, self.program, self.env, self.registry.describe())
        return [partial(StageWorker.of, self, relay=relay), lambda _: keeper]

    def _executors(self, reports: AttemptReports | None = None) -> Mapping[type[Effect], Executor]:
        from gnomon.executors.http.executor import HttpExecutor

        targets = build_targets(self.settings.targets, self.settings.secrets)
        self.registry.check()
        return {
            Python: PythonExecutor(
                self.registry,
                self.env.clock,
                observer=self.env.observer,
                reports=reports or SilentReports(),
            ),
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


def _tracing_of(config: TracingConfig) -> Tracing | None:
    """Errors: MissingExtra."""
    if not config.enabled:
        return None
    require("otel")
    from gnomon.telemetry.traces import OpenTelemetryTracing

    return OpenTelemetryTracing()


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
    require("postgres")
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


def _settings_of(settings: Settings | None, url: str | None, schema: str | None) -> Settings:
    given = {"database.url": url, "database.schema": schema}
    if settings is None:
        return load_settings(flags=given, by=BY_APP)
    changes = {path: value for path, value in given.items() if value is not None}
    values: Any = {path.partition(".")[2]: value for path, value in changes.items()}
    sources = {**settings.sources, **dict.fromkeys(changes, BY_APP)}
    return replace(settings, database=replace(settings.database, **values), sources=sources)
