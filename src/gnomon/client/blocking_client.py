"""The same client for programs without an event loop: each verb waits for its answer."""

from __future__ import annotations

import functools
import ssl
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from gnomon.client.client import TIMEOUT_S, Client
from gnomon.client.entities import EntityClient
from gnomon.client.reports import ReportClient
from gnomon.loop_thread import LoopThread
from gnomon.model.action import Action

C = TypeVar("C")
P = ParamSpec("P")
T = TypeVar("T")


class BlockingVerbs(Generic[C]):
    """Verbs of an asynchronous client, and the thread in which it lives."""

    def __init__(self, client: C, thread: LoopThread) -> None:
        self._client = client
        self._thread = thread


def _blocking(
    verb: Callable[Concatenate[C, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[BlockingVerbs[C], P], T]:
    """A verb of the asynchronous client that waits for its answer."""

    @functools.wraps(verb)
    def wait(self: BlockingVerbs[C], /, *args: P.args, **named: P.kwargs) -> T:
        return self._thread.wait(verb(self._client, *args, **named))

    return wait


class BlockingEntities(BlockingVerbs[EntityClient]):
    """The verbs of `EntityClient`; each waits for its answer."""

    put = _blocking(EntityClient.put)
    put_many = _blocking(EntityClient.put_many)
    patch = _blocking(EntityClient.patch)
    delete = _blocking(EntityClient.delete)
    release = _blocking(EntityClient.release)
    get = _blocking(EntityClient.get)
    page = _blocking(EntityClient.page)
    explain = _blocking(EntityClient.explain)
    parked = _blocking(EntityClient.parked)
    state = _blocking(EntityClient.state)
    swap_state = _blocking(EntityClient.swap_state)
    stages = _blocking(EntityClient.stages)
    backfill_stage = _blocking(EntityClient.backfill_stage)
    forget_stage = _blocking(EntityClient.forget_stage)


class BlockingReports(BlockingVerbs[ReportClient]):
    """The verbs of `ReportClient`; each waits for its answer."""

    figures = _blocking(ReportClient.figures)
    failures = _blocking(ReportClient.failures)
    history = _blocking(ReportClient.history)
    load = _blocking(ReportClient.load)


class BlockingClient(BlockingVerbs[Client]):
    """Talks to one server, from any thread. Use it as `with BlockingClient(url) as client`."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout_s: float = TIMEOUT_S,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        async def opened() -> Client:  # inside the loop that it belongs to
            return Client(url, token=token, timeout_s=timeout_s, tls=tls)

        thread = LoopThread("gnomon-client", closed="the client is closed")
        try:
            super().__init__(thread.wait(opened()), thread)
        except BaseException:
            thread.end()
            raise
        self.url = self._client.url

    def __repr__(self) -> str:
        return f"BlockingClient({self.url!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back the connections. Safe to repeat."""
        if not self._thread.is_ended:
            self._thread.wait(self._client.close())
            self._thread.end()

    create = _blocking(Client.create)
    create_many = _blocking(Client.create_many)
    replace = _blocking(Client.replace)
    delete = _blocking(Client.delete)
    pause = _blocking(Client.pause)
    resume = _blocking(Client.resume)
    run_now = _blocking(Client.run_now)
    retry = _blocking(Client.retry)
    change_selected = _blocking(Client.change_selected)
    count = _blocking(Client.count)
    preview = _blocking(Client.preview)
    get = _blocking(Client.get)
    list = _blocking(Client.list)
    attempts = _blocking(Client.attempts)
    why = _blocking(Client.why)
    set_limit = _blocking(Client.set_limit)
    drop_limit = _blocking(Client.drop_limit)
    get_limit = _blocking(Client.get_limit)
    list_limits = _blocking(Client.list_limits)
    status = _blocking(Client.status)
    health = _blocking(Client.health)

    def watch(self, id: str) -> Iterator[Action]:
        """The action now, and after every change until it has ended."""
        watched = self._client.watch(id)

        async def following() -> Action | None:
            return await anext(watched, None)

        try:
            while (action := self._thread.wait(following())) is not None:
                yield action
        finally:
            if not self._thread.is_ended:
                self._thread.wait(watched.aclose())

    @property
    def entities(self) -> BlockingEntities:
        """Entities and their stages."""
        return BlockingEntities(self._client.entities, self._thread)

    @property
    def reports(self) -> BlockingReports:
        """How it goes, what failed."""
        return BlockingReports(self._client.reports, self._thread)
