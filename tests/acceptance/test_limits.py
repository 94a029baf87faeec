"""Limits as an operator has them: the command line, at the database and at a running server."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.test_cli import Shell

DEADLINE_S = 40.0


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    found = Shell(tmp_path)
    found.install()
    return found


def test_limits_are_set_listed_and_dropped_at_the_database(shell: Shell) -> None:
    """Without a server; every command says what there is now, and the audit who it was."""
    set_it = ("limit", "set", "queue", "mail", "--parallel", "10", "--rate", "50", *shell.target)
    assert "queue/mail: 10 at once, 50/s" in shell.run(*set_it).stderr
    (use,) = shell.json("limit", "list", *shell.target)["limits"]
    assert {"kind": "queue", "name": "mail", "parallel": 10, "rate": 50.0, "burst": None} == use[
        "limit"
    ]
    listed = shell.run("limit", "list", *shell.target).stdout
    assert re.search(r"queue +mail +10 +50/s", listed)
    assert "dropped" in shell.run("limit", "drop", "queue", "mail", *shell.target).stderr
    assert [] == shell.json("limit", "list", *shell.target)["limits"]
    entries = shell.json("audit", "list", "--id", "queue/mail", *shell.target)["entries"]
    assert ["drop_limit", "set_limit"] == [entry["verb"] for entry in entries]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("set", "queue", "mail"), 2, "parallel: or rate is required"),
        (("set", "queue", "mail", "--rate", "0"), 2, "rate: must be from"),
        (("set", "group", "mail", "--parallel", "1"), 2, "group"),
        (("drop", "queue", "mail"), 3, "does not exist"),
    ],
)
def test_bad_limits_are_one_line_and_an_exit_code(
    shell: Shell, arguments: tuple[str, ...], code: int, said: str
) -> None:
    """As all errors are."""
    assert said in shell.run("limit", *arguments, *shell.target, code=code).stderr


@pytest.fixture
def url(shell: Shell) -> Iterator[str]:
    """Of `gnomon up`: its first output says where."""
    child = shell.start("up", "--port", "0", "--json", *shell.target)
    try:
        assert child.stdout is not None
        text = ""
        while not text.rstrip().endswith("}"):
            line = child.stdout.readline()
            assert line, child.communicate()[1]
            text += line
        yield json.loads(text)["url"]
    finally:
        child.kill()
        child.communicate()


def test_a_stopped_queue_begins_nothing_until_it_is_let_go(shell: Shell, url: str) -> None:
    """On a server of one's own machine, without tokens; `limit list` shows that something waits."""
    server, deadline, created = ("--server", url), time.monotonic() + DEADLINE_S, 0
    shell.run("limit", "set", "queue", "default", "--parallel", "0", *server)
    while not shell.json("limit", "list", *server)["limits"][0]["wanted"]:
        assert time.monotonic() < deadline
        created += 1  # the first ones may come before the limit is known
        shell.run("action", "create", "--id", f"a{created}", "--mock", *server)
    shell.run("action", "create", "--id", "late", "--mock", *server)
    assert 0 == shell.json("action", "get", "late", *server)["status"].get("attempts", 0)
    shell.run("limit", "drop", "queue", "default", *server)
    while "done" != shell.json("action", "get", "late", *server)["status"].get("state"):
        assert time.monotonic() < deadline
