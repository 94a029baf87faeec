"""Whether a process has ended: asked of the real kernel, about real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gnomon.processes import LinuxProcesses

NAME = "from gnomon.processes import LinuxProcesses; print(LinuxProcesses().own, flush=True)"
WAIT = "import sys; sys.stdin.read()"
LEADER_ENDS = """
import ctypes, sys, threading
threading.Thread(target=sys.stdin.read).start()
print("going", flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""
FORK = """
import os, sys
known = LinuxProcesses()
if not os.fork():
    print(known.own, flush=True)
    os._exit(0)
os.wait()
print("reaped", flush=True)
sys.stdin.read()
"""
POLLS_MAX = 2_000

MACHINE = LinuxProcesses()


@contextmanager
def child(code: str = WAIT) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that lives until its input ends, and its name as it says it itself."""
    command = [sys.executable, "-c", f"{NAME}\n{code}"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def state_of(number: int) -> str:
    return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]


def wait_for_state(number: int, state: str) -> None:
    """A bounded poll: the kernel takes its time."""
    for _ in range(POLLS_MAX):
        if state_of(number) == state:
            return
        signal.sigtimedwait([], 0.005)
    raise AssertionError(f"{number} is {state_of(number)}, not {state}")


def test_this_process_lives() -> None:
    assert MACHINE.own is not None
    assert not MACHINE.has_ended(MACHINE.own)
    assert MACHINE.own == LinuxProcesses().own


def test_a_killed_process_has_ended_before_and_after_its_parent_knows() -> None:
    """A zombie is dead: nothing of it runs, and all that it held is free."""
    with child() as (process, name):
        assert not MACHINE.has_ended(name)
        os.kill(process.pid, signal.SIGKILL)
        wait_for_state(process.pid, "Z")
        assert MACHINE.has_ended(name)
        process.wait()
        assert MACHINE.has_ended(name)


def test_a_stopped_process_lives() -> None:
    """It may go on at any moment."""
    with child() as (process, name):
        os.kill(process.pid, signal.SIGSTOP)
        wait_for_state(process.pid, "T")
        assert not MACHINE.has_ended(name)


def test_a_process_lives_while_any_of_its_threads_does() -> None:
    """Its main thread is shown as a zombie, and the others go on."""
    with child(LEADER_ENDS) as (process, name):
        assert process.stdout is not None
        assert "going\n" == process.stdout.readline()
        wait_for_state(process.pid, "Z")
        assert not MACHINE.has_ended(name)


def test_a_number_that_came_again_is_another_process() -> None:
    """The one that had it before has ended, though a process with its number lives."""
    assert MACHINE.own is not None
    world, number, start = MACHINE.own.split(" ")
    assert MACHINE.has_ended(f"{world} {number} {int(start) - 1}")


def test_a_forked_process_has_a_name_of_its_own() -> None:
    """Whoever made the object: its name is that of the process that asks."""
    with child(FORK) as (process, name):
        assert process.stdout is not None
        forked = process.stdout.readline().strip()
        assert forked != name
        assert not MACHINE.has_ended(name)
        process.stdout.readline()
        assert MACHINE.has_ended(forked)


def _another(part: int, value: str) -> Callable[[str], str]:
    def change(name: str) -> str:
        world, rest = name.split(" ", 1)
        parts = world.split("|")
        parts[part] = value
        return f"{'|'.join(parts)} {rest}"

    return change


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(_another(0, "linux2"), id="another version's name"),
        pytest.param(_another(1, "elsewhere"), id="another host"),
        pytest.param(_another(2, "0d0b3cbf-0000-4000-8000-000000000000"), id="another boot"),
        pytest.param(_another(3, "pid:[1]"), id="another container"),
        pytest.param(_another(4, "time:[1]"), id="another time namespace"),
        pytest.param(lambda name: name.rsplit(" ", 1)[0], id="no start"),
        pytest.param(lambda name: f"{name}0 1", id="more than a name"),
        pytest.param(lambda name: name.replace(" ", " -", 1), id="no number"),
        pytest.param(lambda name: f"{name.split(' ')[0]} 0 1", id="number 0: our own group"),
        pytest.param(lambda name: f"{name.split(' ')[0]} {2**31} 1", id="number too large"),
        pytest.param(lambda name: f"{name.split(' ')[0]} {'9' * 9999} 1", id="endless number"),
        pytest.param(lambda _: "", id="nothing"),
        pytest.param(lambda _: "\x00 ' 4711", id="rubbish"),
    ],
)
def test_what_cannot_be_known_is_not_ended(change: Callable[[str], str]) -> None:
    """A dead process of ours, named as if it were of elsewhere: nothing is known of it."""
    with child() as (process, name):
        process.kill()
        process.wait()
    assert MACHINE.has_ended(name)
    assert not MACHINE.has_ended(change(name))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/proc/self/status", "Name: python\nNSpid:\t4711\t1\n"),
        ("/proc/self/status", "Name: python\n"),
        ("/proc/sys/kernel/random/boot_id", "\n"),
    ],
)
def test_a_proc_of_another_namespace_is_not_believed(
    monkeypatch: pytest.MonkeyPatch, path: str, text: str
) -> None:
    """A container may show its host's: there the numbers are others."""
    from gnomon import processes

    name = MACHINE.own
    assert name is not None
    read = processes._read
    monkeypatch.setattr(processes, "_read", lambda asked: text if asked == path else read(asked))

    assert MACHINE.own is None
    assert not MACHINE.has_ended(f"{name}1")


def test_who_may_not_look_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    """`/proc` may hide other users' processes; that a number is taken the kernel always says."""
    from gnomon import processes

    name = MACHINE.own
    assert name is not None
    read = processes._read

    def hidden(path: str) -> str:
        if path == f"/proc/{os.getpid()}/stat":
            raise FileNotFoundError(path)
        return read(path)

    monkeypatch.setattr(processes, "_read", hidden)
    assert not MACHINE.has_ended(name)
    assert not MACHINE.has_ended(f"{name}1")
