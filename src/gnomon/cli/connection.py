"""Whom a command talks to: a server, or a database directly. Both have the same verbs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol
from uuid import UUID

from gnomon.app import App, sqlite_path
from gnomon.client import Client
from gnomon.config import Settings
from gnomon.contracts.store import (
    ActionPage,
    ChangeResult,
    Entity,
    LimitUse,
    Selection,
    StageRecord,
)
from gnomon.model.action import Action, Attempt
from gnomon.model.errors import GnomonError, InvalidRequest, NotFound, Unavailable
from gnomon.model.limits import Limit
from gnomon.model.stage.patch import Patch
from gnomon.scheduler import Request
from gnomon.stages.entities import EntityPage
from gnomon.stages.explain import Explanation, ParkedRow

PROBE_TIMEOUT_S = 2.0


class Verbs(Protocol):
    """What `Scheduler` and `Client` have in common."""

    async def create(self, request: Request) -> ChangeResult: ...
    async def create_many(
        self, requests: Sequence[Request]
    ) -> Sequence[ChangeResult | GnomonError]: ...
    async def replace(
        self, request: Request, *, if_match: UUID | None = None, barrier: bool = False
    ) -> ChangeResult: ...
    async def delete(
        self, id: str, *, if_match: UUID | None = None, barrier: bool = False
    ) -> ChangeResult: ...
    async def pause(self, id: str, *, if_match: UUID | None = None) -> ChangeResult: ...
    async def resume(self, id: str, *, if_match: UUID | None = None) -> ChangeResult: ...
    async def run_now(self, id: str, *, if_match: UUID | None = None) -> ChangeResult: ...
    async def retry(self, id: str) -> ChangeResult: ...
    async def get(self, id: str) -> Action: ...
    async def list(
        self, selection: Selection, *, after: str | None = None, limit: int = 100
    ) -> ActionPage: ...
    async def attempts(self, id: str, *, limit: int = 100) -> Sequence[Attempt]: ...
    async def set_limit(self, limit: Limit) -> LimitUse: ...
    async def drop_limit(self, kind: str, name: str) -> LimitUse: ...
    async def limits(self) -> Sequence[LimitUse]: ...


class EntityVerbs(Protocol):
    """What `Entities` and `EntityClient` have in common."""

    async def put(
        self, entity_id: str, document: object, *, if_version: int | None = None
    ) -> Entity: ...
    async def put_many(self, documents: Mapping[str, object]) -> int: ...
    async def patch(
        self, entity_id: str, patch: Patch, *, if_version: int | None = None
    ) -> Entity: ...
    async def delete(self, entity_id: str, *, if_version: int | None = None) -> None: ...
    async def release(self, entity_id: str, stage: str | None = None) -> int: ...
    async def get(self, entity_id: str) -> Entity: ...
    async def page(
        self, *, after: str | None = None, prefix: str = "", limit: int = 100
    ) -> EntityPage: ...
    async def explain(self, entity_id: str) -> Explanation: ...
    async def parked(
        self, *, stage: str | None = None, limit: int = 100
    ) -> Sequence[ParkedRow]: ...
    async def stages(self) -> Sequence[StageRecord]: ...
    async def backfill(self, stage: str) -> object: ...
    async def forget_stage(self, stage: str) -> int: ...


@asynccontextmanager
async def connect(
    settings: Settings, *, server: str | None, token: str | None = None
) -> AsyncIterator[Verbs]:
    """The verbs of actions, wherever they are."""
    async with _reach(settings, server=server, token=token) as found:
        yield found if isinstance(found, Client) else found.scheduler


@asynccontextmanager
async def connect_entities(
    settings: Settings, *, server: str | None, token: str | None = None
) -> AsyncIterator[EntityVerbs]:
    """The verbs of entities, wherever they are."""
    async with _reach(settings, server=server, token=token) as found:
        yield found.entities


@asynccontextmanager
async def _reach(
    settings: Settings, *, server: str | None, token: str | None = None
) -> AsyncIterator[Client | App]:
    """A named server, else a named database, else the local server if it answers."""
    is_named = settings.source_of("database.url") != "default"
    is_flag = settings.source_of("database.url") == "flag"
    if server is not None and is_flag:
        raise InvalidRequest("--server and --database exclude each other")
    url = server or settings.server.url
    if not is_flag and (server is not None or await _answers(url)):
        async with Client(url, token=token) as client:
            yield client
    elif is_named or has_file(settings):
        async with open_database(settings) as app:
            yield app
    else:
        raise Unavailable(f"no server answers at {url}, and no database was named")


async def _answers(url: str) -> bool:
    async with Client(url, timeout_s=PROBE_TIMEOUT_S) as client:
        try:
            await client.health()
        except GnomonError:
            return False
    return True


@asynccontextmanager
async def open_database(settings: Settings) -> AsyncIterator[App]:
    """The database as it is: nothing is created and nothing upgraded."""
    database = settings.database
    if database.engine == "sqlite" and not database.is_memory and not has_file(settings):
        raise NotFound("database", f"{database.url_shown} (`gnomon migrate` creates it)")
    app = App.from_settings(settings)
    try:
        await app.open(migrate=False)
        yield app
    finally:
        await app.close()


def has_file(settings: Settings) -> bool:
    """Whether the SQLite file is there; opening one that is not would create an empty one."""
    return Path(sqlite_path(settings.database.url)).exists()
