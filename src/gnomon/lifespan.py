"""An app that lives as long as a web app does: FastAPI, Starlette, Litestar.

web = FastAPI(lifespan=app.lifespan(worker=True))
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

# Called with the web app, of whatever framework.
Lifespan = Callable[[Any], AbstractAsyncContextManager[None]]


class WorkingApp(Protocol):
    """The app that is opened and closed."""

    async def open(self, *, migrate: bool | None = None) -> Any: ...

    async def close(self) -> None: ...

    async def work(self, stop: asyncio.Event) -> None: ...


@asynccontextmanager
async def live_with(
    app: WorkingApp,
    _web: object,
    *,
    worker: bool,
    migrate: bool | None,
) -> AsyncIterator[None]:
    """Open the app, perhaps work, until the web app ends; then what is under way may end.

    A worker that cannot go on (it is in the wrong database) ends the web app's life, too.
    """
    await app.open(migrate=migrate)
    stop = asyncio.Event()
    try:
        async with asyncio.TaskGroup() as group:
            if worker:
                group.create_task(app.work(stop), name="gnomon-worker")
            try:
                yield
            finally:
                stop.set()
    finally:
        await app.close()
