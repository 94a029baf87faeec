"""The command line as a user has it: a child process, its output and its exit code."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gnomon.app import App
from gnomon.cli.page import cli_page
from gnomon.cli.root import root
from tests.fixtures.commands import run_command
from tests.fixtures.postgres import PostgresSchema

pytestmark = pytest.mark.acceptance

ROOT = Path(__file__).parents[2]
FUTURE = "2100-01-01T00:00:00Z"
COMMANDS = re.findall(r"^## gnomon (.+)$", cli_page(), re.MULTILINE)


class Shell:
    """Runs `gnomon` in a folder of its own, without anybody's settings."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kept = {name: text for name, text in os.environ.items() if not name.startswith("GNOMON_")}
        # A port where nobody listens, so that no server of this machine is found by chance.
        self.environment = {**kept, "GNOMON_SERVER_PORT": "9", "COLUMNS": "100"}
        self.target = ("--database", f"sqlite:///{folder / 'gnomon.db'}")

    def install(self) -> None:
        """What `gnomon migrate` makes, without a process that takes its second to start."""
        asyncio.run(_install(self.target[1]))

    def run(
        self, *arguments: str, code: int = 0, stdin: str = "", environ: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        environ = {**self.environment, **(environ or {})}
        done = run_command(arguments, folder=self.folder, environ=environ, stdin=stdin)
        assert code == done.returncode, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done

    def json(self, *arguments: str, **options: Any) -> Any:
        return json.loads(self.run(*arguments, "--json", **options).stdout)

    def action(self, *arguments: str, **options: Any) -> Any:
        return self.json("action", *arguments, *self.target, **options)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "gnomon", *arguments], cwd=self.folder, text=True,
            env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip


async def _install(url: str) -> None:
    async with App(url, migrate=True):
        pass


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    found = Shell(tmp_path)
    found.install()
    return found


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """For tests that leave nothing behind that another could stumble over."""
    found = Shell(tmp_path_factory.mktemp("shared"))
    found.run("migrate", *found.target)
    return found


def test_a_command_that_hangs_leaves_nothing_to_the_next(shell: Shell) -> None:
    """Of the process that these tests fork commands off: neither its answer nor itself."""
    options = {"folder": shell.folder, "environ": shell.environment}
    with pytest.raises(subprocess.TimeoutExpired):
        run_command(["up", "--port", "0"], timeout_s=2, **options)  # type: ignore[arg-type]
    done = run_command(["action", "get", "nobody", *shell.target], **options)  # type: ignore[arg-type]
    assert 0 < done.returncode
    assert "nobody" in done.stderr


def test_life_of_an_action(shell: Shell) -> None:
    """Create, get, list, pause, resume, run, delete, retry: each shows what it made."""
    created = shell.action("create", "--id", "a", "--at", FUTURE, "--mock", "--label", "k=v")
    assert FUTURE == created["spec"]["start_at"]
    assert created == shell.action("get", "a")
    assert ["a"] == [
        found["meta"]["id"] for found in shell.action("list", "--label", "k=v")["actions"]
    ]
    assert "not_due" == shell.action("why", "a")["code"]
    assert "paused" == shell.action("pause", "a")["status"]["state"]
    assert "paused" == shell.action("list", "--state", "paused")["actions"][0]["status"]["state"]
    assert "active" == shell.action("resume", "a")["status"].get("state", "active")
    assert shell.action("run", "a")["status"]["scheduled_at"] < FUTURE
    assert "cancelled" == shell.action("delete", "a", "--barrier")["status"]["state"]
    assert "active" == shell.action("retry", "a")["status"].get("state", "active")
    assert {"attempts": []} == shell.action("attempts", "a")


@pytest.mark.parametrize(
    ("options", "path", "value"),
    [
        (["--every", "90s", "--mock"], ("policy",), {"type": "periodic", "period": "PT90S"}),
        (
            ["--cron", "0 9 * * *", "--timezone", "Europe/Berlin", "--mock"],
            ("policy",),
            {"type": "cron", "expression": "0 9 * * *", "timezone": "Europe/Berlin"},
        ),
        (
            ["--http", "post https://example.com/", "--header", "X-A: b", "--json-body", '{"n":1}'],
            ("action",),
            {"type": "http", "method": "POST", "url": "https://example.com/",
             "headers": {"X-A": "b"}, "json": {"n": 1}},
        ),
        (
            ["--python", "f", "--args", "[1, 2]"],
            ("action",),
            {"type": "python", "function": "f", "args": [1, 2]},
        ),
        (["--mock-fail", "2"], ("action",), {"type": "mock", "fail": 2}),
        (["--mock", "--retry-max", "3"], ("retry", "max"), 3),
        (["--mock", "--retry-max", "3"], ("retry", "back_off"), 2.0),
        (["--mock", "--timeout", "5s", "--queue", "q"], ("queue",), "q"),
        (["--mock", "--priority", "1"], ("priority",), 1),
        (["--mock", "--deadline", "2101-01-01T00:00:00Z"], ("deadline",), "2101-01-01T00:00:00Z"),
    ],
)  # fmt: skip
def test_create_options_make_the_spec(
    shared: Shell, options: list[str], path: tuple[str, ...], value: object
) -> None:
    found = shared.action("create", "--at", FUTURE, *options)["spec"]
    for step in path:
        found = found[step]
    assert value == found


def test_create_from_a_spec(shell: Shell) -> None:
    """From a file, and from standard input."""
    text = json.dumps({"action": {"type": "mock"}, "start_at": FUTURE})
    (shell.folder / "spec.json").write_text(text)
    assert "a" == shell.action("create", "--id", "a", "--spec", "spec.json")["meta"]["id"]
    assert "b" == shell.action("create", "--id", "b", "--spec", "-", stdin=text)["meta"]["id"]


def test_create_many_from_a_file(shell: Shell) -> None:
    """Good lines are stored, bad ones are named; the exit code tells that there were any."""
    good = {"spec": {"action": {"type": "mock"}, "start_at": FUTURE}}
    lines = [json.dumps({"id": f"n{number}", "key": "k", **good}) for number in range(2500)]
    lines.insert(1, '{"id": "n", "spec": {"action": {"type": "nothing"}}}')
    (shell.folder / "lines.jsonl").write_text("\n".join(lines) + "\n\n")
    found = shell.action("create", "--file", "lines.jsonl", code=2)
    assert (2500, 0) == (found["created"], found["repeated"])
    assert [(2, "spec.action.type")] == [
        (item["line"], item["problem"]["path"]) for item in found["failed"]
    ]
    again = shell.action("create", "--file", "lines.jsonl", code=2)
    assert (0, 2500) == (again["created"], again["repeated"])


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["action", "get", "nope"], 3, "does not exist"),
        (["action", "get", "a b"], 2, "id: must be"),
        (["action", "create", "--id", "a"], 2, "--http, --python or --mock"),
        (["action", "create", "--mock", "--python", "f"], 2, "--http, --python or --mock"),
        (["action", "create", "--mock", "--at", "tomorrow"], 2, "at: must be a time"),
        (["action", "create", "--mock", "--every", "0s"], 2, "period"),
        (["action", "create", "--mock", "--in", "5s", "--at", FUTURE], 2, "--in"),
        (["action", "create", "--http", "https://example.com"], 2, "METHOD URL"),
        (["action", "create", "--spec", "missing.json"], 2, "cannot be read"),
        (["action", "list", "--label", "novalue"], 2, "name=value"),
        (["action", "list", "--limit", "0"], 2, "limit"),
        (["action", "list", "--state", "undead"], 2, "undead"),
        (["action", "delete", "a", "--if-match", "x"], 2, "guid"),
        (["action", "list", "--server", "http://127.0.0.1:9"], 2, "exclude"),
        (["action", "explode"], 2, "explode"),
        (["doctor", "--adopt"], 2, "--past-due"),
        (["up", "--host", "0.0.0.0"], 12, "no authentication"),
        (["up", "--processes", "2", "--port", "0"], 9, "several worker processes"),
        (["worker", "--processes", "2"], 9, "several worker processes"),
        (["worker", "--import", "no_such_module:app"], 12, "no_such_module"),
        (["worker", "--queues", ""], 2, "--queues"),
        (["worker", "--queues", "mail,,reports"], 2, "--queues"),
        (["worker", "--queues", "mail reports"], 12, "worker.only_queues"),
    ],
)
def test_errors_are_one_line_and_an_exit_code(
    shared: Shell, arguments: list[str], code: int, words: str
) -> None:
    """`error: …` on standard error, nothing on standard output, no traceback."""
    done = shared.run(*arguments, *shared.target, code=code)
    assert "" == done.stdout
    place, _, rest = done.stderr.rpartition("error: ")
    assert not place or re.fullmatch(r"on SQLite \S+, by flag\n", place)
    assert rest
    assert words in done.stderr


def test_taken_id_and_stale_generation_have_their_exit_codes(shell: Shell) -> None:
    shell.action("create", "--id", "a", "--at", FUTURE, "--mock")
    shell.run("action", "create", "--id", "a", "--mock", *shell.target, code=4)
    stale = "00000000-0000-4000-8000-000000000000"
    shell.run("action", "pause", "a", "--if-match", stale, *shell.target, code=5)
    shell.run("action", "retry", "a", *shell.target, code=6)


def test_no_server_and_no_database(tmp_path: Path) -> None:
    """Nothing to talk to: exit 8, with a hint."""
    done = Shell(tmp_path).run("action", "list", code=8)
    assert "hint: start a server with `gnomon up`" in done.stderr
    assert [] == list(tmp_path.iterdir())


def test_missing_file_is_not_created(tmp_path: Path) -> None:
    done = Shell(tmp_path).run("action", "list", "--database", "sqlite:///nope.db", code=3)
    assert "gnomon migrate" in done.stderr
    assert [] == list(tmp_path.iterdir())


def test_text_of_users_cannot_colour_the_terminal(shell: Shell) -> None:
    """Rich markup in a label is shown as it is."""
    shell.action("create", "--id", "a", "--at", FUTURE, "--mock", "--label", "k=[red]x[/red]")
    assert "[red]x[/red]" in shell.run("action", "get", "a", *shell.target).stdout


def test_tables_fit_the_terminal(shell: Shell) -> None:
    """Long ids are folded, not lost, in a terminal of 60 columns."""
    shell.action("create", "--id", "x" * 150, "--at", FUTURE, "--mock")
    out = shell.run("action", "list", *shell.target, environ={"COLUMNS": "60"}).stdout
    assert max(len(line) for line in out.splitlines()) <= 60
    assert 150 == out.count("x")


def test_doctor_and_adopt(shell: Shell) -> None:
    assert {"findings": []} == shell.json("doctor", *shell.target)
    assert {"skipped": 0} == shell.json("doctor", "--adopt", "--past-due", "skip", *shell.target)


def test_config_show_masks_and_names_sources(shell: Shell) -> None:
    (shell.folder / "gnomon.toml").write_text("[worker]\nconcurrency = 3\n")
    found = shell.json(
        "config", "show", environ={"GNOMON_DATABASE_URL": "postgresql://me:canary@host/db"}
    )
    assert {"value": "3", "source": "file gnomon.toml"} == found["worker.concurrency"]
    assert "postgresql://me:***@host/db" == found["database.url"]["value"]
    assert "environment GNOMON_DATABASE_URL" == found["database.url"]["source"]


def test_bench_measures(shell: Shell) -> None:
    """A small self-test on a temporary file; it leaves nothing behind."""
    before = set(shell.folder.iterdir())
    found = shell.json("bench", "--count", "200")
    assert ("sqlite", 200) == (found["engine"], found["count"])
    assert found["drains_per_s"] > 0
    assert before == set(shell.folder.iterdir())


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples(command: str) -> None:
    out = CliRunner().invoke(root, [*command.split(), "--help"]).stdout
    assert "Examples:" in out
    assert f"gnomon {command}" in out


def test_reference_is_in_step() -> None:
    """docs/reference/cli.md is the command tree."""
    page = ROOT / "docs" / "reference" / "cli.md"
    assert cli_page() == page.read_text(), "run `make docs`"


# -- up -------------------------------------------------------------------------------------------


@pytest.fixture
def up(shell: Shell) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`gnomon up --demo` on a free port; its first output says where."""
    child = shell.start("up", "--demo", "--port", "0", "--json", *shell.target)
    try:
        assert child.stdout is not None
        text = ""
        while not text.rstrip().endswith("}"):
            line = child.stdout.readline()
            assert line, child.communicate()[1]
            text += line
        yield child, json.loads(text)["url"]
    finally:
        if child.poll() is None:
            child.kill()
        child.communicate()


def test_up_serves_works_and_drains(shell: Shell, up: tuple[subprocess.Popen[str], str]) -> None:
    """All in one: the demo is done, the API answers, SIGTERM ends it with 0."""
    child, url = up
    wait_for_state(shell, url, "demo-once", "done")
    wait_for_state(shell, url, "demo-hopeless", "dead")
    shell.json("action", "retry", "demo-hopeless", "--server", url)
    child.send_signal(signal.SIGTERM)
    assert 0 == child.wait(30)
    assert child.stderr is not None
    assert "stopping" in child.stderr.read()


def wait_for_state(shell: Shell, url: str, id: str, state: str) -> None:
    deadline, found = time.monotonic() + 30, ""
    while time.monotonic() < deadline:
        found = shell.json("action", "get", id, "--server", url)["status"].get("state", "active")
        if state == found:
            return
    pytest.fail(f"{id} is {found}, not {state}")


# -- several processes ----------------------------------------------------------------------------


def children_of(pid: int) -> set[int]:
    done = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False
    )
    return {int(text) for text in done.stdout.split()}


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that waits to be reaped does not."""
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


@pytest.fixture
def workers(tmp_path: Path, postgres_schema: PostgresSchema) -> Iterator[subprocess.Popen[str]]:
    """`gnomon worker --processes 2` on PostgreSQL, once both are there."""
    shell = Shell(tmp_path)
    target = ("--database", postgres_schema.dsn, "--schema", postgres_schema.schema)
    parent = shell.start("worker", "--processes", "2", *target)
    try:
        wait_until(lambda: len(children_of(parent.pid)) == 2, "two workers")
        yield parent
    finally:
        orphans = children_of(parent.pid)
        if parent.poll() is None:
            parent.kill()
        parent.communicate()
        wait_until(lambda: not any(is_alive(pid) for pid in orphans), "no orphans")


def test_a_crashed_worker_is_restarted(workers: subprocess.Popen[str]) -> None:
    """One of two is killed: another takes its place; SIGTERM ends all of them with 0."""
    before = children_of(workers.pid)
    os.kill(min(before), signal.SIGKILL)
    wait_until(lambda: len(children_of(workers.pid) - before) == 1, "a new worker")
    after = children_of(workers.pid)
    workers.send_signal(signal.SIGTERM)
    assert 0 == workers.wait(40)
    assert [] == [pid for pid in after if is_alive(pid)]


def test_workers_do_not_outlive_their_parent(workers: subprocess.Popen[str]) -> None:
    """The parent is killed: its workers see their input end, drain and go."""
    left = children_of(workers.pid)
    workers.kill()
    wait_until(lambda: not any(is_alive(pid) for pid in left), "the workers are gone")
