"""HTTP callbacks as a user has them: `gnomon up`, curl, a receiver."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gnomon.model.signature import verify
from tests.fixtures.receiver import receiving
from tests.fixtures.up import clean_environment, gnomon_up

ROOT = Path(__file__).parents[2]
KEY = "whsec_" + base64.b64encode(b"k" * 32).decode()


def test_the_story_of_the_readme(tmp_path: Path) -> None:
    """With nothing but curl: an action that calls this very machine, which `up` allows."""
    story = re.search(
        r"^\$ (curl -s -X POST .*?}}}')$",
        (ROOT / "README.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    assert story is not None
    with gnomon_up(tmp_path) as up:
        command = story[1].replace("http://127.0.0.1:8321", up.url)
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
        assert '"hello"' in done.stdout
        assert "done" == up.ended("hello")["state"]


def test_loopback_can_be_closed(tmp_path: Path) -> None:
    """What the operator sets counts, in `up` as anywhere."""
    with gnomon_up(tmp_path, "[http]\nallow_loopback = false\n") as up:
        up.create("inner", {"type": "http", "method": "GET", "url": f"{up.url}/health"})
        status = up.ended("inner")
        assert "dead" == status["state"]
        assert "the address is not allowed" == status["last_attempt"]["error"]
        assert "not_allowed" not in up.call("GET", "/v1/actions/inner")[1]


@pytest.mark.parametrize("how", ["tokens", "required"])
def test_loopback_is_closed_where_tokens_are_used(tmp_path: Path, how: str) -> None:
    """Who has a token need not be on this machine, so this machine is not theirs to call."""
    environ = clean_environment()
    call = [sys.executable, "-m", "gnomon"]
    create = ["token", "create", "ann", "--scope", "write", "--scope", "read", "--json"]
    subprocess.run([*call, "migrate"], cwd=tmp_path, env=environ, check=True, capture_output=True)
    made = subprocess.run(
        [*call, *create], cwd=tmp_path, env=environ, check=True, capture_output=True
    )
    toml = '[server]\nauth = "token"\n' if how == "required" else ""
    with gnomon_up(tmp_path, toml) as up:
        up.token = json.loads(made.stdout)["token"]
        up.create("inner", {"type": "http", "method": "GET", "url": f"{up.url}/health"})
        assert "the address is not allowed" == up.ended("inner")["last_attempt"]["error"]


async def test_a_signed_callback_from_configuration_to_receiver(tmp_path: Path) -> None:
    """The key from the environment, the target from the file, the receiver verifies."""
    async with receiving() as receiver:
        toml = (
            f'[targets.hooks]\nkind = "http"\nurl_prefix = "{receiver.url}/ok"\n'
            'signing_keys = ["secret://hooks"]\n[secrets.hooks]\nenv = "HOOKS_KEY"\n'
        )

        def work() -> None:
            with gnomon_up(tmp_path, toml, {"HOOKS_KEY": KEY}) as up:
                effect = {"type": "http", "method": "POST", "url": f"{receiver.url}/ok", "json": 1}
                up.create("signed", effect)
                assert "done" == up.ended("signed")["state"]

        await asyncio.to_thread(work)
        (request,) = receiver.requests
        delivery = verify(request.headers, b"1", [KEY], now=datetime.now(UTC))
        assert 1 == delivery.attempt_no
