"""Name look-ups in threads of their own, so that slow names hold up no others.

The event loop's own look-ups share a few threads with everything else: four names of a server that
never answers would stop all calls. Here a name is asked for once at a time, whoever waits for it,
and the names of one zone take a few threads only. A thread is taken until the system gives up the
question, however soon the attempt that asked was over.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

THREADS_MAX = 32
THREADS_PER_ZONE_MAX = 4
WAITING_MAX = 1_000

Addresses = Sequence[tuple[socket.AddressFamily, str]]
Question = tuple[str, int, socket.AddressFamily]


class DnsLookups:
    """Asks the resolver of the system; its threads end with the process or with `close`."""

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self._asked: dict[Question, asyncio.Task[Addresses]] = {}
        self._zones: dict[str, asyncio.Semaphore] = {}
        self._waiting: Counter[str] = Counter()

    async def __call__(self, name: str, port: int, family: socket.AddressFamily) -> Addresses:
        """What `getaddrinfo` says. Errors: OSError, also when too many names are waited for."""
        question = (name, port, family)
        asked = self._asked.get(question)
        if asked is None:
            if len(self._asked) >= WAITING_MAX:
                raise OSError(None, "too many names are being looked up")
            asked = self._asked[question] = asyncio.create_task(self._ask(question))
            asked.add_done_callback(partial(self._forget, question))
        return await asyncio.shield(asked)

    async def close(self) -> None:
        """Give all questions up; a thread that has asked one ends with its answer."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None
        asked = list(self._asked.values())
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)

    async def _ask(self, question: Question) -> Addresses:
        zone = zone_of(question[0])
        turns = self._zones.setdefault(zone, asyncio.Semaphore(THREADS_PER_ZONE_MAX))
        self._waiting[zone] += 1
        try:
            async with turns:
                return await asyncio.get_running_loop().run_in_executor(
                    self._opened(), _answered, question
                )
        finally:
            self._waiting[zone] -= 1
            if not self._waiting[zone]:
                del self._waiting[zone], self._zones[zone]

    def _opened(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS_MAX, "gnomon-names")
        return self._threads

    def _forget(self, question: Question, asked: asyncio.Task[Addresses]) -> None:
        """A lookup has ended: the next question for the name is asked anew."""
        self._asked.pop(question, None)
        if not asked.cancelled():
            asked.exception()  # who waited has heard of it, unless all had left


def zone_of(name: str) -> str:
    """The last two labels: whose server is asked, near enough."""
    return ".".join(name.lower().rstrip(".").split(".")[-2:])


def _answered(question: Question) -> Addresses:
    name, port, family = question
    answers = socket.getaddrinfo(
        name, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
    )
    return [(kind, str(place[0])) for kind, _, _, _, place in answers]
