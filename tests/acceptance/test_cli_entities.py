"""`gnomon entity` and `gnomon stage` as a user has them: on a database, and over a server that
serves the stages of a program of the user's own."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.test_cli import Shell, wait_until

pytestmark = pytest.mark.acceptance

PROGRAM = """
from datetime import timedelta

from gnomon import App
from gnomon.stages import Update, Quarantine, Stage, Stages

class Rank(Stage):
    name, watch, writes = "rank", ("price", "rank"), ("rank",)
    debounce = timedelta(milliseconds=20)

    async def process(self, it):
        if it.entity["price"] < 0:
            raise Quarantine("a price below zero")
        return Update({"rank": it.entity["price"] // 100})

app = App()
ads = Stages(app, "ad")
ads.add(Rank())
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    found = Shell(tmp_path)
    found.install()
    return found


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[Shell, str]]:
    """`gnomon up --import shop:app`."""
    shell = Shell(tmp_path)
    (tmp_path / "shop.py").write_text(PROGRAM)
    child = shell.start("up", "--port", "0", "--import", "shop:app", *shell.target)
    assert child.stderr is not None
    url = ""
    while not url:
        line = child.stderr.readline()
        assert line, "it did not start"
        found = re.search(r"Gnomon is up: (\S+)", line)
        url = found[1] if found else ""
    try:
        yield shell, url
    finally:
        child.terminate()
        try:
            child.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()


def test_life_of_an_entity_on_a_database(shell: Shell) -> None:
    """Put, patch, get, list, explain, delete; a version that is not there is a conflict."""
    (shell.folder / "ad.json").write_text('{"price": 100, "make": "Läda"}')
    target = shell.target
    made = shell.json("entity", "put", "ad", "ad-1", "@ad.json", "--if-version", "0", *target)
    assert (1, {"price": 100, "make": "Läda"}) == (made["version"], made["document"])
    patched = shell.json("entity", "patch", "ad", "ad-1", '{"price": 90, "make": null}', *target)
    assert {"price": 90} == patched["document"]
    steps = '[{"op": "add", "path": "/video", "value": null}]'
    shell.run("entity", "patch", "ad", "ad-1", "-", *target, stdin=steps)
    assert {"price": 90, "video": None} == json.loads(
        shell.run("entity", "get", "ad", "ad-1", *target).stdout
    )
    listed = shell.json("entity", "list", "ad", "--id-prefix", "ad-", *target)
    assert ["ad-1"] == [each["id"] for each in listed["entities"]]
    told = shell.run("entity", "explain", "ad", "ad-1", *target).stdout
    assert "ad/ad-1 v3" in told
    assert "in no queue" in told
    assert "by user: make, price" in told
    shell.run("entity", "put", "ad", "ad-1", "{}", "--if-version", "1", *target, code=5)
    shell.run("entity", "put", "ad", "ad-2", "{", *target, code=2)
    shell.run("entity", "patch", "ad", "ad-1", "1", *target, code=2)
    shell.run("entity", "put", "ad", "ad-2", "@nowhere.json", *target, code=2)
    refused = shell.run("entity", "put", "Ad", "ad-2", "{}", *target, code=2)
    assert "kind: must be 1 to 64 characters out of a-z" in refused.stderr
    assert {"entities": [], "next": None} == shell.json("entity", "list", "ads", *target)
    shell.run("entity", "delete", "ad", "ad-1", *target)
    shell.run("entity", "get", "ad", "ad-1", *target, code=3)
    assert {"stages": []} == shell.json("stage", "list", *target)
    shell.run("stage", "backfill", "rank", *target, code=3)
    audited = shell.json("audit", "list", "--id", "ad/ad-1", *target)["entries"]
    assert ["delete_entity", *["put_entity"] * 3] == [entry["verb"] for entry in audited]
    assert {"cli"} == {entry["face"] for entry in audited}


def test_stages_of_a_program_over_a_server(server: tuple[Shell, str]) -> None:
    """Its stages work in the server's process; what it gives up is listed and released."""
    shell, url = server
    remote = ("--server", url)

    def ranks(id: str) -> bool:
        return bool(shell.json("entity", "get", "ad", id, *remote)["document"].get("rank") == 4)

    shell.run("entity", "put", "ad", "good", '{"price": 410}', *remote)
    shell.run("entity", "put", "ad", "bad", '{"price": -1}', *remote)
    wait_until(lambda: ranks("good"), "the stage ranks it")
    wait_until(lambda: bool(parked(shell, remote)), "the other one is given up")
    [row] = parked(shell, remote)
    assert ("ad", "bad", "rank") == (row["kind"], row["entity_id"], row["stage"])
    assert "quarantined" == row["status"]
    told = shell.run("entity", "explain", "ad", "bad", *remote).stdout
    assert "quarantined" in told
    assert "a price below zero" in told
    [stage] = shell.json("stage", "list", *remote)["stages"]
    assert ("rank", "ad", 1, 1) == (
        stage["name"], stage["kind"], stage["revision"], stage["parked"],
    )  # fmt: skip
    assert ("PT0.02S", True) == (stage["debounce"], stage["own_echo"])
    table = shell.run("stage", "list", *remote).stdout
    assert re.search(r"debounce +own echo", table)
    assert re.search(r"rank .* 20ms +yes", table)
    assert {"released": 1} == shell.json("entity", "release", "ad", "bad", *remote)
    shell.run("stage", "backfill", "rank", *remote)
    refused = shell.run("stage", "forget", "rank", *remote, code=2)
    assert "--yes" in refused.stderr
    assert "removed" in shell.json("stage", "forget", "rank", "--yes", *remote)


def parked(shell: Shell, remote: tuple[str, str]) -> list[Any]:
    found: list[Any] = shell.json("entity", "parked", "--kind", "ad", "--stage", "rank", *remote)[
        "parked"
    ]
    return found


def test_doctor_finds_saves_that_nobody_takes(shell: Shell) -> None:
    """By sink, how many and since when; nothing while they are younger than the alarm."""
    shell.run(
        "entity",
        "put",
        "ad",
        "ad-1",
        "{}",
        *shell.target,
        environ={"GNOMON_STAGES_RELAY": "events"},
    )
    assert {"findings": []} == shell.json("doctor", *shell.target)
    alarm = {"GNOMON_STAGES_OUTBOX_ALARM": "0.001"}
    [finding] = shell.json("doctor", *shell.target, code=14, environ=alarm)["findings"]
    assert ("outbox_age", "relay") == (finding["rule"], finding["subject"])
    assert "saves that wait: 1," in finding["detail"]


def test_many_entities_are_put_from_a_file(shell: Shell, tmp_path: Path) -> None:
    """A mistake names its line and stores nothing; what is as it was is told."""
    lines = [json.dumps({"id": f"ad-{n}", "document": {"n": n}}) for n in range(1200)]
    file = tmp_path / "ads.jsonl"
    file.write_text("\n".join([*lines, '{"id": "x"}']))
    refused = shell.run("entity", "put-many", "ad", str(file), *shell.target, code=2)
    assert "line 1201: must be" in refused.stderr
    file.write_text("\n".join(lines))
    done = shell.run("entity", "put-many", "ad", str(file), *shell.target)
    assert "1200 changed, 0 as they were" in done.stdout + done.stderr
    again = shell.run("entity", "put-many", "ad", str(file), "--json", *shell.target)
    assert {"changed": 0, "unchanged": 1200} == json.loads(again.stdout)
