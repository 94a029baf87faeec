"""Tokens and the audit as an operator has them: the command line, a server, and callers."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.test_cli import FUTURE, Shell

pytestmark = pytest.mark.acceptance


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    found = Shell(tmp_path)
    found.install()
    return found


class Served:
    """`gnomon server` that demands tokens, and a caller of it."""

    def __init__(self, shell: Shell) -> None:
        shell.environment["GNOMON_SERVER_AUTH"] = "token"
        self.shell = shell
        self.child = shell.start("server", "--port", "0", *shell.target)
        self.said = ""
        assert self.child.stderr is not None
        while not re.search(r"serving(.|\n)*token", self.said):
            line = self.child.stderr.readline()
            assert line, self.said
            self.said += line
        found = re.search(r"serving (\S+)", self.said)
        assert found, self.said
        self.url = found[1]

    def call(self, token: str | None, *arguments: str, code: int = 0) -> str:
        environ = {} if token is None else {"GNOMON_TOKEN": token}
        done = self.shell.run(*arguments, "--server", self.url, code=code, environ=environ)
        return done.stdout + done.stderr


@pytest.fixture
def served(shell: Shell) -> Iterator[Served]:
    found = Served(shell)
    yield found
    found.child.terminate()
    try:
        found.child.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        found.child.kill()
        found.child.communicate()


def make(shell: Shell, *arguments: str) -> str:
    """The text of a new token: all that is on standard output."""
    text = shell.run("token", *arguments, *shell.target).stdout
    assert re.fullmatch(r"gnomon_[\w-]{43}\n", text), text
    return text.strip()


def test_life_of_a_token(served: Served) -> None:
    """Made, used from afar by option and by environment, rotated, revoked."""
    shell = served.shell
    assert "there is none: `gnomon token create`" in served.said
    create = ("action", "create", "--id", "a", "--at", FUTURE, "--mock")
    assert "GNOMON_TOKEN" in served.call(None, *create, code=15)
    reader, writer = make(shell, "create", "reader", "--scope", "read"), ""
    assert "scope write" in served.call(reader, *create, code=13)
    writer = make(shell, "create", "shop", "--scope", "write", "--scope", "read")
    served.call(writer, *create)
    served.call(None, "action", "get", "a", "--token", writer)

    newer = make(shell, "rotate", "shop", "--overlap", "1h")
    for token in (writer, newer):
        served.call(token, "action", "get", "a")
    assert {"revoked": 2} == shell.json("token", "revoke", "shop", *shell.target)
    shell.run("token", "revoke", "shop", *shell.target, code=3)
    shell.run("token", "rotate", "shop", *shell.target, code=3)
    make(shell, "create", "shop", "--scope", "write")
    shell.run("token", "create", "shop", "--scope", "write", *shell.target, code=4)


def test_the_audit_shows_who_it_was(served: Served) -> None:
    """The token's name over the network, `local` at the database."""
    shell = served.shell
    token = make(shell, "create", "shop", "--scope", "admin")
    served.call(token, "action", "create", "--id", "a", "--at", FUTURE, "--mock")
    shell.run("action", "pause", "a", *shell.target)
    entries = shell.json("audit", "list", *shell.target)["entries"]
    assert [("local", "pause", "a"), ("shop", "create", "a")] == [
        (item["actor"], item["verb"], item["id"]) for item in entries
    ]
    (only,) = shell.json("audit", "list", "--actor", "shop", *shell.target)["entries"]
    assert 1 == only["count"]
    assert [] == shell.json("audit", "list", "--id", "b", *shell.target)["entries"]
    assert [] == shell.json("audit", "list", "--before", only["at"], *shell.target)["entries"]
    assert "shop" in shell.run("audit", "list", *shell.target).stdout


def test_a_token_is_shown_once(shell: Shell) -> None:
    """With all that was said about it, but neither its text nor its digest is listed."""
    made = shell.json(
        "token", "create", "shop", "--scope", "read", "--scope", "sql:reports", "--expires", "1d",
        "--rate", "2.5", "--live-max", "9", *shell.target,
    )  # fmt: skip
    text = made.pop("token")
    (listed,) = shell.json("token", "list", *shell.target)["tokens"]
    assert made == listed
    assert ["read", "sql:reports"] == listed["scopes"]
    assert (2.5, 9) == (listed["rate"], listed["live_max"])
    assert "digest" not in listed
    table = shell.run("token", "list", *shell.target).stdout
    assert "shop" in table
    assert text not in table + str(listed)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("create", "shop"), "--scope"),
        (("create", "local", "--scope", "read"), "local"),
        (("create", "a b", "--scope", "read"), "name"),
        (("create", "shop", "--scope", "all"), "no scope"),
        (("create", "shop", "--scope", "read", "--expires", "soon"), "--expires"),
        (("create", "shop", "--scope", "read", "--rate", "0"), "rate"),
        (("rotate", "shop", "--overlap", "soon"), "--overlap"),
    ],
)
def test_mistakes_are_named(shell: Shell, arguments: tuple[str, ...], words: str) -> None:
    done = shell.run("token", *arguments, *shell.target, code=2)
    assert words in done.stderr


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"GNOMON_SERVER_HOST": "0.0.0.0"}, "server.auth"),
        ({"GNOMON_SERVER_HOST": "0.0.0.0", "GNOMON_SERVER_AUTH": "token"}, "allow_plain"),
    ],
)
def test_a_server_is_not_opened_by_mistake(
    shell: Shell, environ: dict[str, Any], words: str
) -> None:
    """Off loopback it needs tokens and TLS, and says which setting is missing."""
    done = shell.run("server", *shell.target, code=12, environ=environ)
    assert words in done.stderr


def test_an_open_server_says_so(shell: Shell) -> None:
    """Who starts it without authentication is told what that means."""
    child = shell.start("server", "--port", "0", *shell.target)
    try:
        assert child.stderr is not None
        said = "".join(child.stderr.readline() for _ in range(3))
        assert "No authentication: it answers this machine only." in said
    finally:
        child.terminate()
        child.communicate(timeout=120)
