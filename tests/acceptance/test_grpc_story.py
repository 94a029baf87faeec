"""docs/tutorial/grpc.md, as a reader does it: its settings, its two programs, its output."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.postgres import free_port
from tests.fixtures.up import clean_environment, gnomon_up

pytestmark = pytest.mark.acceptance

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "grpc.md"
PATIENCE_S = 60.0


def block_of(page: str, name: str) -> str:
    """The code block that begins with this file's name."""
    found = re.search(rf"```\w+\n# {re.escape(name)}\n(.*?)```", page, re.DOTALL)
    assert found is not None, name
    return found[1]


def told(page: str) -> list[str]:
    """What the page says that `ask.py` prints."""
    found = re.search(r"\$ python ask\.py\n(.*?)```", page, re.DOTALL)
    assert found is not None
    return found[1].splitlines()


@pytest.fixture
def shop_port() -> int:
    return free_port()


@pytest.fixture
def shop(tmp_path: Path, shop_port: int) -> Iterator[int]:
    """The page's service, on a port of its own."""
    file = tmp_path / "shop.py"
    file.write_text(block_of(PAGE.read_text(), "shop.py").replace("8400", str(shop_port)))
    child = subprocess.Popen([sys.executable, file], env=clean_environment())
    try:
        wait_for(shop_port, child)
        yield shop_port
    finally:
        child.kill()
        child.wait()


def wait_for(port: int, child: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        assert child.poll() is None
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise TimeoutError("the shop does not open")


def test_the_story_with_grpc(tmp_path: Path, shop: int) -> None:
    """Scheduled over gRPC, called over gRPC, watched, and printed as the page shows it."""
    page = PAGE.read_text()
    settings = block_of(page, "gnomon.toml").replace("8322", "0").replace("8400", str(shop))
    with gnomon_up(tmp_path, settings) as up:
        address = json.loads((up.folder / "out.txt").read_text())["grpc"]
        ask = tmp_path / "ask.py"
        ask.write_text(block_of(page, "ask.py").replace("127.0.0.1:8322", address))
        done = subprocess.run(
            [sys.executable, ask], capture_output=True, text=True, timeout=PATIENCE_S, check=False,
            env=clean_environment(),
        )  # fmt: skip
        assert 0 == done.returncode, done.stderr
        assert told(page) == without_repeats(done.stdout.splitlines())
        assert "Traceback" not in up.written()


def without_repeats(lines: list[str]) -> list[str]:
    """An attempt may be seen under way: one more line with the same state and no answer yet."""
    plain = [line.rstrip() for line in lines]
    return [line for number, line in enumerate(plain) if number == 0 or line != plain[number - 1]]


def test_server_serves_grpc_without_a_worker(tmp_path: Path) -> None:
    """`gnomon server --grpc-port 0` names the address, and answers there."""
    gnomon = [sys.executable, "-m", "gnomon"]
    database = ["--database", f"sqlite:///{tmp_path / 'gnomon.db'}"]
    subprocess.run(
        [*gnomon, "migrate", *database], cwd=tmp_path, env=clean_environment(), check=True,
        capture_output=True,
    )  # fmt: skip
    child = subprocess.Popen(
        [*gnomon, "server", "--port", "0", "--grpc-port", "0", *database],
        cwd=tmp_path, env=clean_environment(), text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        assert child.stdout is not None
        address = next(
            found[1] for line in child.stdout if (found := re.search(r"gRPC on (\S+)", line))
        )
        program = (
            "import grpc, sys\n"
            "from grpc_health.v1 import health_pb2 as pb, health_pb2_grpc\n"
            "stub = health_pb2_grpc.HealthStub(grpc.insecure_channel(sys.argv[1]))\n"
            "request = pb.HealthCheckRequest(service='gnomon.v1.SchedulerService')\n"
            "print(stub.Check(request, wait_for_ready=True, timeout=60).status)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", program, address], capture_output=True, text=True,
            timeout=PATIENCE_S, check=True,
        )  # fmt: skip
        assert "1" == done.stdout.strip()
        child.terminate()
        assert 0 == child.wait(PATIENCE_S)
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
        assert child.stdout is not None
        child.stdout.close()
