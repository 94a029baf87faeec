"""The same client for programs without an event loop: each verb waits for its answer."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import UUID

from gnomon.client.blocking_entities import BlockingEntities
from gnomon.client.client import TIMEOUT_S, Client
from gnomon.contracts.store import ActionPage, ChangeResult, LimitUse, Selection
from gnomon.model.action import Action, Attempt
from gnomon.model.errors import GnomonError, InvalidRequest
from gnomon.model.limits import Limit
from gnomon.scheduler import Request

T = TypeVar("T")


class BlockingClient:
    """Talks to one server, from any thread. Use it as `with BlockingClient(url) as client`."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout_s: float = TIMEOUT_S,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="gnomon-client", daemon=True
        )
        self._thread.start()
        try:
            self._client = self._wait(_open(url, token, timeout_s, tls))
        except BaseException:
            self._end()
            raise

    def __repr__(self) -> str:
        return f"BlockingClient({self.url!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give back the connections. Safe to repeat."""
        if not self._loop.is_closed():
            self._wait(self._client.close())
            self._end()

    # -- verbs ------------------------------------------------------------------------------------

    def create(self, request: Request) -> ChangeResult:
        """Store a new action. With a key it can be repeated safely."""
        return self._wait(self._client.create(request))

    def create_many(self, requests: Sequence[Request]) -> Sequence[ChangeResult | GnomonError]:
        """Store up to 10,000 actions; one answer each, in order."""
        return self._wait(self._client.create_many(requests))

    def replace(
        self, request: Request, *, if_match: UUID | None = None, barrier: bool = False
    ) -> ChangeResult:
        """Give an action a new spec, or create it."""
        return self._wait(self._client.replace(request, if_match=if_match, barrier=barrier))

    def delete(
        self, id: str, *, if_match: UUID | None = None, barrier: bool = False
    ) -> ChangeResult:
        """Cancel an action: no attempt of it begins any more."""
        return self._wait(self._client.delete(id, if_match=if_match, barrier=barrier))

    def pause(self, id: str, *, if_match: UUID | None = None) -> ChangeResult:
        """Let no attempt begin until it is resumed."""
        return self._wait(self._client.pause(id, if_match=if_match))

    def resume(self, id: str, *, if_match: UUID | None = None) -> ChangeResult:
        """Let a paused action go on."""
        return self._wait(self._client.resume(id, if_match=if_match))

    def run_now(self, id: str, *, if_match: UUID | None = None) -> ChangeResult:
        """Make an action due at once."""
        return self._wait(self._client.run_now(id, if_match=if_match))

    def retry(self, id: str) -> ChangeResult:
        """Arm a finished action that did not succeed once more."""
        return self._wait(self._client.retry(id))

    def get(self, id: str) -> Action:
        """The action with this id. Errors: NotFound."""
        return self._wait(self._client.get(id))

    def list(
        self, selection: Selection, *, after: str | None = None, limit: int = 100
    ) -> ActionPage:
        """A page of actions in order of id."""
        return self._wait(self._client.list(selection, after=after, limit=limit))

    def attempts(self, id: str, *, limit: int = 100) -> Sequence[Attempt]:
        """The recorded attempts of an action, newest first."""
        return self._wait(self._client.attempts(id, limit=limit))

    def watch(self, id: str) -> Iterator[Action]:
        """The action now, and after every change until it has ended."""
        watched = self._client.watch(id)
        try:
            while (action := self._wait(_next(watched))) is not None:
                yield action
        finally:
            if not self._loop.is_closed():
                self._wait(watched.aclose())

    def set_limit(self, limit: Limit) -> LimitUse:
        """Set a limit of a queue or a target, or change it."""
        return self._wait(self._client.set_limit(limit))

    def drop_limit(self, kind: str, name: str) -> LimitUse:
        """Have no such limit any more; as it was. Errors: NotFound."""
        return self._wait(self._client.drop_limit(kind, name))

    def get_limit(self, kind: str, name: str) -> LimitUse:
        """A limit, and how much of it is in use. Errors: NotFound."""
        return self._wait(self._client.get_limit(kind, name))

    def list_limits(self) -> Sequence[LimitUse]:
        """All limits by kind and name."""
        return self._wait(self._client.list_limits())

    def health(self) -> Mapping[str, Any]:
        """What the server says about itself."""
        return self._wait(self._client.health())

    @property
    def entities(self) -> BlockingEntities:
        """Entities and their stages."""
        return BlockingEntities(self._client.entities, self._wait)

    # -- inside -----------------------------------------------------------------------------------

    def _wait(self, call: Coroutine[Any, Any, T]) -> T:
        if self._loop.is_closed():
            call.close()
            raise InvalidRequest("the client is closed")
        future = asyncio.run_coroutine_threadsafe(call, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C: nobody waits for it any more
            raise

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _open(
    url: str, token: str | None, timeout_s: float, tls: ssl.SSLContext | None
) -> Client:
    """Made inside the loop that it belongs to."""
    return Client(url, token=token, timeout_s=timeout_s, tls=tls)


async def _next(watched: Any) -> Action | None:
    found: Action | None = await anext(watched, None)
    return found
