"""A technical push as a user has it: settings, REST, a notificator."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.fixtures.receiver import receiving
from tests.fixtures.up import gnomon_up

pytestmark = pytest.mark.acceptance


async def test_a_push_from_configuration_to_notificator(tmp_path: Path) -> None:
    """The address and the token from the operator, the rest from the user; nobody shows the
    token."""
    async with receiving() as notificator:
        toml = (
            f'[targets.notificator]\nkind = "push"\nurl = "{notificator.url}/ok"\n'
            'token = "secret://push"\n[secrets.push]\nenv = "PUSH_TOKEN"\n'
        )
        effect = {
            "type": "push", "target": "notificator", "user": "ann", "payload": {"ring": 1},
            "ttl": "5m",
        }  # fmt: skip

        def work() -> str:
            with gnomon_up(tmp_path, toml, {"PUSH_TOKEN": "t0ps3cret"}) as up:
                up.create("wake", effect)
                assert "done" == up.ended("wake")["state"]
                return up.call("GET", "/v1/actions/wake")[1] + up.written()

        shown = await asyncio.to_thread(work)
    (request,) = notificator.requests
    assert "Bearer t0ps3cret" == request.headers["Authorization"]
    body = json.loads(notificator.bodies[0])
    assert ("ann", {"ring": 1}) == (body["user"], body["payload"])
    assert "t0ps3cret" not in shown
