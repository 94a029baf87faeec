"""The verbs of an app for programs without an event loop: each waits for its answer.

    app = gnomon.App("postgresql://…")

    with transaction.atomic():
        order.save()
        app.blocking.schedule(remind("ann"), in_="3h", connection=connection)

It connects when it is first used, in a thread of its own, once for each process: the children of a
server that forks connect anew. All threads may share it. With a connection of the caller's, what it
stores is stored there, by the thread that asks: the connection is used by nobody else.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import os
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, Self, TypeVar, Unpack

from gnomon.at_once import at_once
from gnomon.contracts.store import ChangeResult, Store
from gnomon.loop_thread import LoopThread
from gnomon.model.action import Action
from gnomon.model.errors import GnomonError, InvalidRequest
from gnomon.model.spec import Effect
from gnomon.scheduler import Request, Scheduler
from gnomon.scheduler.options import Duration, IfExists, Options
from gnomon.stores._callers import is_async

P = ParamSpec("P")
T = TypeVar("T")


class AsyncApp(Protocol):
    """The app whose verbs are waited for."""

    @property
    def scheduler(self) -> Scheduler: ...

    @property
    def store(self) -> Store: ...

    async def open(self, *, migrate: bool | None = None) -> Any: ...

    async def close(self) -> None: ...

    def request(self, effect: Effect, /, **options: Unpack[Options]) -> Request: ...

    async def result(self, id: str, *, timeout: Duration | None = None) -> Any: ...  # noqa: ASYNC109


class _Opened(NamedTuple):
    app: AsyncApp
    thread: LoopThread


def _verb(
    verb: Callable[Concatenate[Scheduler, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[BlockingApp, P], T]:
    """A verb of the scheduler that waits for its answer."""

    @functools.wraps(verb)
    def wait(self: BlockingApp, /, *args: P.args, **named: P.kwargs) -> T:
        app, thread = self._opened()
        return thread.wait(verb(app.scheduler, *args, **named))

    return wait


class BlockingApp:
    """The verbs of `App` and of its scheduler; each waits for its answer. From any thread."""

    def __init__(self, make: Callable[[], AsyncApp]) -> None:
        self._make = make  # the app of one process: its connections belong to the thread's loop
        self._state: _Opened | None = None
        self._left_behind: list[_Opened] = []  # a parent's: to close them is to break into its work
        # By process: a fork may happen while another thread of the parent holds the lock.
        self._locks: dict[int, threading.Lock] = {}

    def __repr__(self) -> str:
        return f"BlockingApp({'open' if self.is_open else 'closed'})"

    # -- life -------------------------------------------------------------------------------------

    def open(self, *, migrate: bool | None = None) -> Self:
        """Connect now instead of at the first verb; `migrate` is as in `App.open`."""
        self._opened(migrate=migrate)
        return self

    def close(self) -> None:
        """Disconnect, and end the thread. Safe to repeat; the next verb connects anew."""
        with self._lock:
            state, self._state = self._state, None
            atexit.unregister(self._close_at_exit)
        if state is not None and not state.thread.is_left_behind:
            try:
                state.thread.wait(state.app.close())
            finally:
                state.thread.end()

    def _close_at_exit(self) -> None:
        """So that the server hears of the end. No thread can be started any more, which SQLite's
        closing wants to: its file is as safe without."""
        with suppress(RuntimeError):
            self.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_exc_info: object) -> None:
        self.close()

    @property
    def is_open(self) -> bool:
        """Whether this process is connected."""
        return self._state is not None and not self._state.thread.is_left_behind

    @property
    def _lock(self) -> threading.Lock:
        return self._locks.setdefault(os.getpid(), threading.Lock())

    def _opened(self, *, migrate: bool | None = None) -> _Opened:
        _check_no_loop()
        with self._lock:
            if self._state is not None and self._state.thread.is_left_behind:
                self._left_behind.append(self._state)
                self._state = None
            if self._state is None:
                self._state = self._connected(migrate=migrate)
                atexit.register(self._close_at_exit)
            return self._state

    def _connected(self, *, migrate: bool | None) -> _Opened:
        app = self._make()
        thread = LoopThread("gnomon-app", closed="the app was closed meanwhile, by another thread")
        try:
            thread.wait(app.open(migrate=migrate))
        except BaseException:
            thread.end()
            raise
        return _Opened(app, thread)

    # -- schedule ---------------------------------------------------------------------------------

    def schedule(
        self,
        effect: Effect,
        /,
        *,
        connection: object = None,
        if_exists: IfExists = "error",
        **options: Unpack[Options],
    ) -> Action:
        """Schedule an action, as `App.schedule` does.

        `connection` may be one of psycopg or sqlite3, a connection or a session of SQLAlchemy, or
        Django's: the action is stored in its transaction, and exists if and when you commit.
        """
        app, thread = self._opened()
        request = app.request(effect, **options)
        if connection is None:
            put = thread.wait(app.scheduler.put(request, if_exists=if_exists))
        else:
            within = self._joining(connection)
            put = at_once(app.scheduler.put(request, if_exists=if_exists, within=within))
        return put.action

    def request(self, effect: Effect, /, **options: Unpack[Options]) -> Request:
        """What `schedule` would store, for `schedule_many`."""
        return self._make().request(effect, **options)

    def schedule_many(self, requests: Sequence[Request]) -> Sequence[ChangeResult | GnomonError]:
        """Schedule up to 10,000 actions in one call; one answer each, in order."""
        app, thread = self._opened()
        return thread.wait(app.scheduler.create_many(requests))

    def result(self, id: str, *, timeout: Duration | None = None) -> Any:
        """Wait until an action has ended; what its function returned, as `App.result` does."""
        app, thread = self._opened()
        return thread.wait(app.result(id, timeout=timeout))

    # -- change and look --------------------------------------------------------------------------

    def cancel(self, id: str, *, running: bool = False, connection: object = None) -> ChangeResult:
        """Cancel what was scheduled, as `App.cancel` does; with a `connection` once you commit."""
        app, thread = self._opened()
        if connection is None:
            return thread.wait(app.scheduler.delete(id, running=running))
        within = self._joining(connection)
        return at_once(app.scheduler.delete(id, running=running, within=within))

    delete = _verb(Scheduler.delete)
    replace = _verb(Scheduler.replace)
    pause = _verb(Scheduler.pause)
    resume = _verb(Scheduler.resume)
    run_now = _verb(Scheduler.run_now)
    retry = _verb(Scheduler.retry)
    get = _verb(Scheduler.get)
    list = _verb(Scheduler.list)
    attempts = _verb(Scheduler.attempts)
    why = _verb(Scheduler.why)
    preview = _verb(Scheduler.preview)
    count = _verb(Scheduler.count)
    change_selected = _verb(Scheduler.change_selected)
    set_limit = _verb(Scheduler.set_limit)
    drop_limit = _verb(Scheduler.drop_limit)
    get_limit = _verb(Scheduler.get_limit)
    list_limits = _verb(Scheduler.list_limits)

    def watch(self, id: str) -> Iterator[Action]:
        """The action now, and after every change until it has ended."""
        app, thread = self._opened()
        watched = app.scheduler.watch(id)

        async def following() -> Action | None:
            return await anext(watched, None)

        try:
            while (action := thread.wait(following())) is not None:
                yield action
        finally:
            if not thread.is_ended:
                thread.wait(watched.aclose())

    def _joining(self, connection: object) -> Any:
        """The store's verbs on a connection that this thread uses. Nothing else is waited for."""
        if is_async(connection):
            raise InvalidRequest(
                "connection: this one is for coroutines; there write `await app.schedule(…)`"
            )
        app, thread = self._opened()
        thread.wait(app.scheduler.time.learn())
        return app.store.joining(connection)


def _check_no_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise InvalidRequest(
        "app.blocking would stop the event loop that runs here: write `await app.schedule(…)`"
    )
