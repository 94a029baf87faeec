"""An environment that lacks an extra: what is missing is told in one sentence, at the start."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from gnomon.extras import EXTRAS

ROOT = Path(__file__).parents[2]
TABLES = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
NOT_IMPORTED_BY_US = {"all", "dev", "uvloop"}  # uvloop is used where it is there

# A module that is None in sys.modules cannot be imported: as if it were not installed.
BLOCK = """
import sys
for name in {names!r}:
    sys.modules[name] = None
"""
GNOMON = """
from gnomon.cli import main
sys.argv = ["gnomon", *{words!r}]
sys.exit(main())
"""


def lacking(*extras: str) -> str:
    return BLOCK.format(names=[name for extra in extras for name in EXTRAS[extra].modules])


def run(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def gnomon(words: str, folder: Path, *lacked: str) -> subprocess.CompletedProcess[str]:
    return run(lacking(*lacked) + GNOMON.format(words=words.split()), folder)


def test_every_extra_is_told_of() -> None:
    """The table of sentences and that of the distribution name the same ones."""
    assert set(TABLES) - NOT_IMPORTED_BY_US == set(EXTRAS)
    inside = re.findall(r"[a-z0-9]+", TABLES["all"][0].partition("[")[2])
    assert set(TABLES) - {"all", "dev"} == set(inside)


@pytest.mark.parametrize(
    ("extra", "words", "sentence"),
    [
        ("postgres", "migrate --database postgresql://a@127.1/b", "PostgreSQL needs its drivers"),
        ("postgres", "worker --database postgresql://a@127.1/b", "PostgreSQL needs its drivers"),
        ("postgres", "tasks --dsn postgresql://a@127.1/b", "PostgreSQL needs its drivers"),
        ("server", "up", "the REST API needs its server"),
        ("server", "server", "the REST API needs its server"),
        ("grpc", "up --grpc-port 0", "gRPC needs its library"),
        ("grpc", "server --grpc-port 0", "gRPC needs its library"),
    ],
)  # fmt: skip
def test_a_command_names_the_extra_that_it_needs(
    extra: str, words: str, sentence: str, tmp_path: Path
) -> None:
    """Before it opens, creates or answers anything."""
    done = gnomon(words, tmp_path, extra)
    *_, last = done.stderr.splitlines()
    assert f"error: {sentence}: pip install 'gnomon-scheduler[{extra}]'" == last
    assert 12 == done.returncode
    assert [] == list(tmp_path.iterdir())


TARGETS = {
    "rabbitmq": 'url = "amqp://localhost"',
    "kafka": 'brokers = ["localhost:9092"]',
    "grpc": 'address = "localhost:1"',
}


@pytest.mark.parametrize(("extra", "option"), TARGETS.items())
def test_a_target_names_the_extra_that_it_needs(extra: str, option: str, tmp_path: Path) -> None:
    """When the settings are read, though nothing was sent there yet."""
    (tmp_path / "gnomon.toml").write_text(f'[targets.there]\nkind = "{extra}"\n{option}\n')
    done = gnomon("worker", tmp_path, extra)
    assert f"{EXTRAS[extra].need}: pip install 'gnomon-scheduler[{extra}]'" in done.stderr
    assert 12 == done.returncode


def test_a_sql_target_on_postgres_needs_its_drivers(tmp_path: Path) -> None:
    """A worker says so when it starts; a file as target needs none."""
    program = """
from gnomon.clock import SystemClock
from gnomon.executors.sql import SqlExecutor, SqlTarget
from gnomon.model.secret import Secret
SqlExecutor({"a": SqlTarget(name="a", dsn=Secret("%s"))}, clock=SystemClock())
"""
    file = run(lacking("postgres") + program % f"sqlite:///{tmp_path}/a.db", tmp_path)
    assert (0, "") == (file.returncode, file.stderr)
    server = run(lacking("postgres") + program % "postgresql://a:b@127.0.0.1/c", tmp_path)
    assert "MissingExtra: PostgreSQL needs its drivers" in server.stderr


@pytest.mark.parametrize(
    ("extra", "program"),
    [
        ("postgres", "import asyncio, gnomon; asyncio.run(gnomon.App('postgresql://a@b/c').open())"),
        ("grpc", "import gnomon.stages.stage_server"),
        ("grpc", "import gnomon as g, gnomon.stages as s; s.Stages(g.App(), 'a').remote('a', 'b')"),
        ("metrics", "from gnomon.extras import require; require('metrics')"),
        ("otel", "from gnomon.extras import require; require('otel')"),
        ("django", "from gnomon.extras import require; require('django')"),
    ],
)  # fmt: skip
def test_a_program_names_the_extra_that_it_needs(extra: str, program: str, tmp_path: Path) -> None:
    """In Python as on the command line."""
    done = run(lacking(extra) + program, tmp_path)
    sentence = f"{EXTRAS[extra].need}: pip install 'gnomon-scheduler[{extra}]'"
    assert done.stderr.strip().endswith(f"MissingExtra: {sentence}")


def test_keys_of_ed25519_name_their_extra(tmp_path: Path) -> None:
    """The model has the same sentence."""
    program = """
import base64
from gnomon.model.signing_key import read_key
read_key("whsk_" + base64.b64encode(bytes(32)).decode())
"""
    done = run(lacking("ed25519") + program, tmp_path)
    assert f"{EXTRAS['ed25519'].need}: pip install 'gnomon-scheduler[ed25519]'" in done.stderr


BASE = """
import asyncio, gnomon

app = gnomon.App("sqlite:///gnomon.db")
done = asyncio.Event()

@app.action
async def greet(ctx: gnomon.Attempt, name: str) -> None:
    print("hello", name)
    done.set()

async def main() -> None:
    async with app:
        await app.schedule(greet("ann"), id="hello")
        stop = asyncio.Event()
        work = asyncio.create_task(app.work(stop))
        await done.wait()
        stop.set()
        await work
        await app.entities.put("ad", "a", {"price": 1})

asyncio.run(main())
"""


def test_the_base_alone_works(tmp_path: Path) -> None:
    """SQLite, functions, entities and the command line, without any extra."""
    done = run(lacking(*EXTRAS) + BASE, tmp_path)
    assert (0, "hello ann\n") == (done.returncode, done.stdout), done.stderr
    for words in ("action list", "entity list ad", "doctor", "audit list", "config show"):
        listed = gnomon(f"{words} --database sqlite:///gnomon.db", tmp_path, *EXTRAS)
        assert 0 == listed.returncode, listed.stderr
