"""Slow names hold up no others."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter

import pytest

from gnomon.executors.http import dns
from gnomon.executors.http.dns import THREADS_PER_ZONE_MAX, DnsLookups, zone_of

ANSWER = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 443))]


class Names:
    """A resolver that answers for some names only when it is told."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.go = threading.Event()
        self.busy = 0
        self.busy_max = 0
        self._lock = threading.Lock()

    def getaddrinfo(self, name: str, *_: object, **__: object) -> object:
        with self._lock:
            self.asked[name] += 1
            self.busy += 1
            self.busy_max = max(self.busy, self.busy_max)
        if "slow" in name:
            self.go.wait(30)
        with self._lock:
            self.busy -= 1
        if "none" in name:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return ANSWER


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    found = Names()
    monkeypatch.setattr(socket, "getaddrinfo", found.getaddrinfo)
    return found


async def ask(lookups: DnsLookups, name: str) -> object:
    return await lookups(name, 443, socket.AF_UNSPEC)


async def test_slow_names_of_one_zone_hold_up_no_other(names: Names) -> None:
    """They take a few threads, also when those who asked have given up; another zone's name is
    answered meanwhile."""
    lookups = DnsLookups()
    waiting = [asyncio.create_task(ask(lookups, f"a{n}.slow.example.")) for n in range(40)]
    try:
        async with asyncio.timeout(20):
            assert [(socket.AF_INET, "192.0.2.1")] == await ask(lookups, "quick.test.")
            for task in waiting[:20]:
                task.cancel()
            assert [(socket.AF_INET, "192.0.2.1")] == await ask(lookups, "quick.test.")
    finally:
        names.go.set()
    await asyncio.wait(waiting)
    assert names.busy_max <= THREADS_PER_ZONE_MAX + 1
    await lookups.close()


async def test_a_name_is_asked_for_once_at_a_time(names: Names) -> None:
    """However many wait for it; and again when it is asked for later."""
    lookups = DnsLookups()
    waiting = [asyncio.create_task(ask(lookups, "slow.example.")) for _ in range(10)]
    await asyncio.sleep(0)
    names.go.set()
    assert 10 == len(await asyncio.gather(*waiting))
    assert 1 == names.asked["slow.example."]
    await ask(lookups, "slow.example.")
    assert 2 == names.asked["slow.example."]
    await lookups.close()


async def test_there_is_an_end_to_those_who_wait(
    names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what does not exist is an error for everybody who asked."""
    monkeypatch.setattr(dns, "WAITING_MAX", 2)
    lookups = DnsLookups()
    waiting = [asyncio.create_task(ask(lookups, f"slow-none{n}.example.")) for n in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(OSError, match="too many names"):
        await ask(lookups, "other.example.")
    names.go.set()
    assert all(
        isinstance(found, OSError)
        for found in await asyncio.gather(*waiting, return_exceptions=True)
    )
    await lookups.close()


@pytest.mark.parametrize(
    ("name", "zone"),
    [("a.b.example.", "b.example"), ("B.Example", "b.example"), ("localhost", "localhost")],
)
def test_a_zone_is_the_end_of_a_name(name: str, zone: str) -> None:
    assert zone == zone_of(name)


async def test_closing_waits_for_its_own_tasks(names: Names) -> None:
    """A question that nobody waits for any more is given up, and leaves no task behind."""
    lookups = DnsLookups()
    asking = asyncio.create_task(ask(lookups, "slow.example."))
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # it has asked
    asking.cancel()
    await asyncio.wait([asking])
    try:
        await lookups.close()
        assert {asyncio.current_task()} == asyncio.all_tasks()
    finally:
        names.go.set()
