"""What a piece of work costs: processor time of Python and of the server, and what is written.

By Linux's own accounts, from one reading to the next. PostgreSQL's log is read from the server; for
SQLite it is all bytes that the processes wrote, to the log and to the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import asyncpg

from benchmarks.report import Cost
from benchmarks.stand import Stand

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Places in /proc/PID/stat behind the name.
PARENT = 1
PROCESSOR = slice(11, 15)  # utime, stime, and both of the children that have ended


class Reading(NamedTuple):
    """The accounts at one moment."""

    python_s: float
    server_s: float | None
    written: int


class Meter:
    """Reads the accounts of some processes and of the stand's server."""

    def __init__(
        self, stand: Stand, processes: Iterable[int] = (), *, itself: bool = False
    ) -> None:
        self._stand = stand
        self._processes = [*processes, *([os.getpid()] if itself else [])]
        self._began: Reading | None = None

    async def begin(self) -> None:
        self._began = await self._read()

    async def end(self, count: int) -> Cost:
        """The cost of each of so many actions since the beginning."""
        assert self._began is not None
        return cost_between(self._began, await self._read(), count)

    async def _read(self) -> Reading:
        python_s = sum(processor_s(process) for process in self._processes)
        server = self._stand.server
        if server is None:
            return Reading(python_s, None, sum(bytes_written(pid) for pid in self._processes))
        return Reading(python_s, server_s(server.process_id), await log_position(server.dsn))


def cost_between(began: Reading, ended: Reading, count: int) -> Cost:
    server_us = None
    if began.server_s is not None and ended.server_s is not None:
        server_us = (ended.server_s - began.server_s) / count * 1e6
    return Cost(
        python_us=(ended.python_s - began.python_s) / count * 1e6,
        server_us=server_us,
        wal_bytes=(ended.written - began.written) / count,
    )


def stat_of(process: int) -> list[str]:
    """The fields behind the name, which may hold anything."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()


def processor_s(process: int) -> float:
    """Of the process with all its threads, and of its children that have ended."""
    return sum(map(int, stat_of(process)[PROCESSOR])) / TICKS_PER_S


def server_s(postmaster: int) -> float:
    """Of the postmaster, of the backends that have ended, and of those that are there."""
    total = 0.0
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = stat_of(int(folder.name))
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
        if postmaster in (int(folder.name), int(fields[PARENT])):
            total += sum(map(int, fields[PROCESSOR])) / TICKS_PER_S
    return total


def bytes_written(process: int) -> int:
    """By system calls, whether they have reached the disk or not."""
    lines = Path(f"/proc/{process}/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["wchar"])


async def log_position(dsn: str) -> int:
    connection = await asyncpg.connect(dsn)
    try:
        return int(await connection.fetchval("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"))
    finally:
        await connection.close()
