"""`gnomon action … --all`: everything that matches, as an operator does it at night."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import gnomon
from gnomon.model.action import State
from tests.acceptance.test_cli import Shell

pytestmark = pytest.mark.acceptance

COUNT = 450  # more than two steps
MANY = 4_000
DEADLINE_S = 60.0
FUTURE = "2100-01-01T00:00:00Z"


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    found = Shell(tmp_path)
    found.install()
    return found


def store(shell: Shell, count: int, *, queue: str = "mail", prefix: str = "m") -> None:
    """So many actions that are due in a far future."""

    async def create() -> None:
        async with gnomon.App(shell.target[1]) as app:
            await app.schedule_many(
                [
                    app.request(gnomon.Mock(), id=f"{prefix}{number:05}", queue=queue, at=FUTURE)
                    for number in range(count)
                ]
            )

    asyncio.run(create())


def counted(shell: Shell, **conditions: object) -> int:
    async def count() -> int:
        async with gnomon.App(shell.target[1]) as app:
            return await app.scheduler.count(gnomon.Selection(**conditions))  # type: ignore[arg-type]

    return asyncio.run(count())


def test_a_maintenance_pauses_schedules_and_resumes_what_it_paused(shell: Shell) -> None:
    """With a reason and an end, which are shown; what was paused for another reason stays so."""
    store(shell, 3)
    for name in ("tick", "tack", "tock"):
        shell.run("action", "create", "--id", name, "--every", "1h", "--mock", *shell.target)
    alone = shell.run("action", "pause", "tock", "--reason", "broken", *shell.target)
    assert "paused tock: paused: broken" in alone.stderr
    end, move = "2100-12-24T06:00+01:00", "database move"
    terms = ("--reason", move, "--until", end, "--all", "--recurring", "--yes")
    assert 2 == shell.json("action", "pause", *terms, *shell.target)["changed"]

    said = shell.run("action", "get", "tick", *shell.target).stdout
    assert move in said
    assert "2100-12-24" in said
    listed = shell.json("action", "list", "--paused-for", move, *shell.target)["actions"]
    assert ["tack", "tick"] == [action["meta"]["id"] for action in listed]
    assert {"2100-12-24T05:00:00Z"} == {action["status"]["paused_until"] for action in listed}
    resumed = ("--all", "--paused-for", move, "--yes")
    assert 2 == shell.json("action", "resume", *resumed, *shell.target)["changed"]
    assert 1 == counted(shell, states=(State.PAUSED,))


def test_everything_that_matches_is_changed_and_nothing_else(shell: Shell) -> None:
    """Pause, resume, cancel, retry, run; each may be repeated, and then finds nothing to do."""
    store(shell, COUNT)
    store(shell, 3, queue="other", prefix="o")
    mail = ("--all", "--queue", "mail", "--yes", *shell.target)

    paused = shell.run("action", "pause", *mail)
    assert f"pause: {COUNT} actions match, {COUNT} changed" in paused.stderr
    assert "0 actions match" in shell.run("action", "pause", *mail).stderr
    assert (COUNT, 3) == tuple(
        counted(shell, states=(one,)) for one in (State.PAUSED, State.ACTIVE)
    )

    assert COUNT == shell.json("action", "resume", *mail)["changed"]
    cancelled = shell.json("action", "cancel", "--id-prefix", "m000", *mail)
    assert {"matched": 100, "changed": 100, "next": None} == {
        name: cancelled[name] for name in ("matched", "changed", "next")
    }
    assert 100 == counted(shell, states=(State.CANCELLED,))
    assert 0 == shell.json("action", "retry", *mail)["changed"]  # none of them is dead
    assert 100 == shell.json("action", "retry", "--state", "cancelled", *mail)["changed"]
    assert (
        3
        == shell.json("action", "run", "--all", "--queue", "other", "--yes", *shell.target)[
            "changed"
        ]
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("pause",), "name an action, or write --all with filters"),
        (("pause", "m00000", "--all"), "an id and --all exclude each other"),
        (("pause", "m00000", "--queue", "mail"), "--queue: only with --all"),
        (("pause", "--all", "--if-match", "x"), "--if-match: only for one action"),
        (("delete", "--all", "--barrier"), "--barrier: only for one action"),
        (("retry", "--all", "--state", "active"), "retry is for dead or expired or cancelled"),
        (("pause", "m00000", "--until", "yesterday"), "until: must be a time such as"),
        (("pause", "m00000", "--until", "2020-01-01T00:00Z"), "until: must be in the future"),
        (("pause", "--all"), "pause: 2 actions match; add --yes to change them"),
        (("pause", "--all", "--yes", "--after", "?"), "`after` must be the `next`"),
    ],
)
def test_what_is_not_clear_changes_nothing(
    shell: Shell, arguments: tuple[str, ...], said: str
) -> None:
    """And where nobody can be asked, --yes has to be written."""
    store(shell, 2)
    refused = shell.run("action", *arguments, *shell.target, code=2)
    assert said in refused.stderr
    assert 2 == counted(shell, states=(State.ACTIVE,))


@pytest.mark.parametrize(("answer", "left"), [("n", 2), ("y", 0)])
def test_on_a_terminal_it_asks_first(shell: Shell, answer: str, left: int) -> None:
    """It says how many match, and does nothing unless it is told to."""
    store(shell, 2)
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "gnomon", "action", "delete", "--all", *shell.target],
        cwd=shell.folder, env=shell.environment, stdin=theirs, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    said = b""
    while b"Go on?" not in said:
        said += os.read(ours, 1024)
    assert b"delete: 2 actions match" in said
    os.write(ours, f"{answer}\n".encode())
    drain(ours)
    assert child.wait(DEADLINE_S) == (130 if left else 0)
    assert left == counted(shell, states=(State.ACTIVE,))


def drain(terminal: int) -> None:
    """Read what is said until the other end is closed."""
    try:
        while os.read(terminal, 1024):
            pass
    except OSError:  # the last one who had the terminal open is gone
        pass
    finally:
        os.close(terminal)


def test_it_can_be_stopped_and_goes_on(shell: Shell) -> None:
    """Ctrl-C says how far it got; the same command does the rest."""
    store(shell, MANY)
    command = ("action", "pause", "--all", "--yes", *shell.target)
    child = shell.start(*command)
    deadline = time.monotonic() + DEADLINE_S
    while not counted(shell, states=(State.PAUSED,)):
        assert time.monotonic() < deadline
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=DEADLINE_S)
    paused = counted(shell, states=(State.PAUSED,))
    assert 0 < paused < MANY, said
    assert 130 == child.returncode
    assert f"stopped: pause: {MANY:,} actions match" in said
    assert "--after" in said
    assert "Traceback" not in said

    rest = shell.json(*command)
    assert MANY - paused == rest["matched"] == rest["changed"]
    assert MANY == counted(shell, states=(State.PAUSED,))
