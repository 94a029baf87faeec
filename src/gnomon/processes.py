"""Whether a process of this machine has ended, asked of the Linux kernel.

A process is named by the boot of its kernel, its namespaces, its number in them, and its start.
Each is there because without it the living could be taken for dead:

* The boot and the host's name: numbers mean nothing on another machine or after a restart.
* The namespace of process numbers: each container has a process 1 of its own. Its inode may be
  given to a new namespace, but only when no process of the old one is left.
* The start: a number is given to another process sooner or later. It is shown by the reader's
  clock of boot time, so the namespace of times must be the same as well.

The kernel's word is asked for by a signal that is not sent: unlike `/proc` it hides nothing from
other users. `/proc` is believed only if it is that of our own namespace.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

VERSION = "linux1"
BOOT = "/proc/sys/kernel/random/boot_id"
NUMBER_MAX = 2**31 - 1
_NUMBER = re.compile(r"[1-9][0-9]{0,19}", re.ASCII)


class _Stat(NamedTuple):
    """Of `/proc/<number>/stat`."""

    state: str
    threads: int
    start: int  # in ticks since the boot


class LinuxProcesses:
    """The `Processes` of this machine; elsewhere than on Linux it knows nothing. It remembers
    nothing either: its process may be forked."""

    @property
    def own(self) -> str | None:
        world, number = _world(), os.getpid()
        stat = _stat(number)
        return None if world is None or stat is None else f"{world} {number} {stat.start}"

    def has_ended(self, process: str) -> bool:
        world, _, name = process.partition(" ")
        named = _numbers(name)
        return named is not None and world == _world() and _has_ended(*named)


def _world() -> str | None:
    """The boot and the namespaces in which process numbers and starts are ours; None if `/proc`
    does not tell."""
    try:
        if not _is_own_proc():
            return None
        boot, numbers = _read(BOOT).strip(), str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return None
    parts = [VERSION, os.uname().nodename, boot, numbers, _time_namespace()]
    return None if not boot or any(" " in part for part in parts) else "|".join(parts)


def _time_namespace() -> str:
    try:
        return str(Path("/proc/self/ns/time").readlink())
    except OSError:
        return "-"  # a kernel that has none


def _is_own_proc() -> bool:
    """Whether `/proc` shows the numbers of our own namespace: then we have one number in it."""
    for line in _read("/proc/self/status").splitlines():
        if line.startswith("NSpid:"):
            return line.split()[1:] == [str(os.getpid())]
    return False


def _numbers(name: str) -> tuple[int, int] | None:
    number, _, start = name.partition(" ")
    if not (_NUMBER.fullmatch(number) and _NUMBER.fullmatch(start)):
        return None
    return (int(number), int(start)) if int(number) <= NUMBER_MAX else None


def _has_ended(number: int, start: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return True
    except OSError:  # there is one that is not ours to signal: `/proc` may know more
        pass
    stat = _stat(number)
    if stat is None:
        return False  # hidden from us, or ended just now: the next look will tell
    # A main thread may end before the others; then the process lives on.
    is_zombie = stat.state in "ZX" and stat.threads <= 1
    return is_zombie or stat.start != start


def _stat(number: int) -> _Stat | None:
    try:
        # The second field is the command's name in brackets and may hold anything.
        fields = _read(f"/proc/{number}/stat").rpartition(")")[2].split()
        return _Stat(fields[0], int(fields[17]), int(fields[19]))
    except (OSError, ValueError, IndexError):
        return None


def _read(path: str) -> str:
    return Path(path).read_text(encoding="utf-8", errors="replace")
