"""Whom a command talks to: a server, or a database directly. Both have the same verbs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlsplit

from gnomon.app import App, sqlite_path
from gnomon.cli.place import say_installation, say_server
from gnomon.config import DEFAULT, Settings
from gnomon.model.errors import GnomonError, InvalidRequest, NotFound, Unavailable

if TYPE_CHECKING:
    from gnomon.client import Client
    from gnomon.client.entities import EntityClient
    from gnomon.scheduler import Scheduler
    from gnomon.stages.entities import Entities

PROBE_TIMEOUT_S = 2.0
CLI = "cli"  # what the audit is told

ActionVerbs: TypeAlias = "Scheduler | Client"
EntityVerbs: TypeAlias = "Entities | EntityClient"


@asynccontextmanager
async def connect(
    settings: Settings, *, server: str | None, token: str | None = None
) -> AsyncIterator[Client | App]:
    """The server that --server names; else the database, if one is named anywhere; else the local
    server if it answers, and the default file if there is one. Said in a line."""
    source = settings.source_of("database.url")
    if server is not None and source == "flag":
        raise InvalidRequest("--server and --database exclude each other")
    url = server or settings.server.url
    if server is not None or (source == DEFAULT and await _answers(url)):
        from gnomon.client import Client  # its library takes as long to load as all the rest

        say_server(url)
        async with Client(url, token=token, face=CLI) as client:
            yield client
    elif source != DEFAULT or has_file(settings):
        async with open_database(settings) as app:
            yield app
    else:
        raise Unavailable(f"no server answers at {url}, and no database was named")


async def _answers(url: str) -> bool:
    if not await _listens(url):
        return False
    from gnomon.client import Client

    async with Client(url, timeout_s=PROBE_TIMEOUT_S) as client:
        try:
            await client.health()
        except GnomonError:
            return False
    return True


async def _listens(url: str) -> bool:
    """Whether anybody does: most often nobody, and to find that out needs no library."""
    place = urlsplit(url)
    port = place.port or (443 if place.scheme == "https" else 80)
    try:
        opening = asyncio.open_connection(place.hostname, port)
        _, writer = await asyncio.wait_for(opening, PROBE_TIMEOUT_S)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


@asynccontextmanager
async def open_database(settings: Settings) -> AsyncIterator[App]:
    """The database as it is: nothing is created and nothing upgraded."""
    say_installation(settings)
    database = settings.database
    if database.engine == "sqlite" and not database.is_memory and not has_file(settings):
        raise NotFound("database", f"{database.url_shown} (`gnomon migrate` creates it)")
    app = App(settings=settings)
    app.face = CLI
    try:
        await app.open(migrate=False)
        yield app
    finally:
        await app.close()


def has_file(settings: Settings) -> bool:
    """Whether the SQLite file is there; opening one that is not would create an empty one."""
    return Path(sqlite_path(settings.database.url)).exists()
