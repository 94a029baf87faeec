"""What is in deploy/ fits the product: commands, flags, ports, settings, statements."""

from __future__ import annotations

import asyncio
import configparser
import re
import shlex
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import yaml

from gnomon.app import App
from gnomon.cli.root import command_named
from gnomon.config import DatabaseConfig, Settings, load_settings
from gnomon.model.spec import Mock
from tests.fixtures.pgbouncer import Pooler
from tests.fixtures.postgres import PostgresSchema
from tests.fixtures.processes import ChildProcess, Processes

pytestmark = pytest.mark.acceptance

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))


def documents() -> list[dict[str, Any]]:
    return [each for path in MANIFESTS for each in yaml.safe_load_all(path.read_text())]


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [each for each in documents() if each["kind"] == kind]


def containers() -> Iterator[dict[str, Any]]:
    for document in of_kind("Deployment") + of_kind("Job"):
        yield from document["spec"]["template"]["spec"]["containers"]


def check_command(words: list[str]) -> None:
    """It is a command of ours, with options that it has."""
    name, *rest = words
    known = {flag for option in command_named(name).params for flag in option.opts}
    assert set() == {word for word in rest if word.startswith("--")} - known, words


# -- systemd --------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_units_start_our_commands(unit: Path) -> None:
    (line,) = re.findall(r"(?m)^ExecStart=(.*)$", unit.read_text())
    program, *words = shlex.split(line)
    assert "/opt/gnomon/bin/gnomon" == program
    check_command(words)


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_units_are_understood_by_systemd(unit: Path, tmp_path: Path) -> None:
    """`systemd-analyze verify`, with a program and folders that are there."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd here")
    for each in UNITS:
        text = each.read_text().replace("/opt/gnomon/bin/gnomon", "/bin/true")
        (tmp_path / each.name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / unit.name)],
        capture_output=True, text=True, check=False, env={"SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
    )  # fmt: skip
    told = [line for line in done.stderr.splitlines() if unit.name in line]
    assert [] == told, done.stderr


def test_a_unit_waits_longer_than_the_worker_drains() -> None:
    text = (DEPLOY / "systemd" / "gnomon-worker.service").read_text()
    (stop_s,) = re.findall(r"(?m)^TimeoutStopSec=(\d+)$", text)
    assert int(stop_s) > load_settings(environ={}).worker.drain.total_seconds() + 5


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[socket.socket]:
    """systemd's end of the protocol."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(60)
        yield listening


def heard(supervisor: socket.socket, wanted: str) -> list[str]:
    """Everything until what is wanted."""
    told: list[str] = []
    while wanted not in told:
        told.append(supervisor.recv(4096).decode())
    return told


@pytest.mark.parametrize("command", ["worker", "server", "up"])
def test_systemd_is_told(
    command: str, supervisor: socket.socket, tmp_path: Path, processes: Processes
) -> None:
    """Ready when it is, alive while its loop turns, stopping when it is asked to."""
    environ = {
        "NOTIFY_SOCKET": str(tmp_path / "notify"),
        "WATCHDOG_USEC": "200000",
        "GNOMON_SERVER__PORT": "0",
    }
    url = f"sqlite:///{tmp_path}/gnomon.db"
    assert 0 == processes.start_gnomon("migrate", "--database", url).wait()
    child = processes.start_gnomon(command, "--database", url, env=environ)
    assert ["READY=1"] == heard(supervisor, "READY=1")
    heard(supervisor, "WATCHDOG=1")
    assert frozen_is_silent(child, supervisor)
    assert 0 == child.stop()
    assert "STOPPING=1" in heard(supervisor, "STOPPING=1")


def frozen_is_silent(child: ChildProcess, supervisor: socket.socket) -> bool:
    """A process that stands still says nothing, so systemd would end it."""
    child.freeze()
    supervisor.settimeout(0.6)  # three times its patience
    try:
        while supervisor.recv(4096):  # what was under way
            pass
    except TimeoutError:
        return True
    finally:
        supervisor.settimeout(60)
        child.thaw()
    return False


def test_a_supervisor_that_is_gone_is_no_trouble(tmp_path: Path, processes: Processes) -> None:
    url = f"sqlite:///{tmp_path}/gnomon.db"
    environ = {"NOTIFY_SOCKET": str(tmp_path / "nobody"), "WATCHDOG_USEC": "200000"}
    child = processes.start_gnomon("worker", "--database", url, env=environ)
    child.wait_for_line("working on")
    assert 0 == child.stop()


# -- containers -----------------------------------------------------------------------------------


def test_the_container_file_takes_what_is_there() -> None:
    """Files of the repository, the lock file with hashes, ports of ours."""
    text = (DEPLOY / "Containerfile").read_text()
    for line in re.findall(r"(?m)^COPY (?!--from)(.*)$", text):
        *sources, _ = line.split()
        assert [] == [name for name in sources if not (ROOT / name).exists()]
    assert "--require-hashes --no-deps -r deploy/requirements.lock" in text
    settings = load_settings(file=DEPLOY / "gnomon.toml", environ={})
    ports = {str(settings.server.port), str(settings.server.grpc_port)}
    assert ports == set(re.findall(r"(?m)^EXPOSE (.*)$", text)[0].split())
    variables = dict(re.findall(r"(GNOMON_\w+)=(\S+)", text))
    load_settings(environ=variables)  # an unknown one would be refused


def test_the_lock_of_the_container_has_what_servers_and_workers_need() -> None:
    extras = re.findall(r"(?m)^CONTAINER_EXTRAS := (.*)$", (ROOT / "Makefile").read_text())[0]
    assert {"postgres", "server"} <= set(extras.split())
    locked = (DEPLOY / "requirements.lock").read_text()
    for package in ("asyncpg", "psycopg", "starlette", "uvicorn", "grpcio", "tzdata"):
        assert re.search(rf"(?m)^{package}==", locked), package


# -- Kubernetes -----------------------------------------------------------------------------------


def test_manifests_start_our_commands() -> None:
    commands = [each["args"] for each in containers()]
    assert {"migrate", "server", "worker"} == {words[0] for words in commands}
    for words in commands:
        check_command(words)


def test_manifests_have_settings_that_are_accepted(tmp_path: Path) -> None:
    """The file of the config map, and every variable."""
    (config,) = of_kind("ConfigMap")
    file = tmp_path / "gnomon.toml"
    file.write_text(config["data"]["gnomon.toml"])
    names = {variable["name"] for each in containers() for variable in each["env"]}
    assert {"GNOMON_DATABASE_URL"} == names
    settings = load_settings(file=file, environ=dict.fromkeys(names, "postgresql://a@b/c"))
    (server,) = (each for each in containers() if each["name"] == "server")
    ports = {port["name"]: port["containerPort"] for port in server["ports"]}
    assert {"http": settings.server.port, "grpc": settings.server.grpc_port} == ports
    (service,) = of_kind("Service")
    assert ports == {each["name"]: each["port"] for each in service["spec"]["ports"]}


def test_manifests_belong_together() -> None:
    """Labels, volumes, and time enough to drain."""
    deployments = {each["metadata"]["name"]: each["spec"] for each in of_kind("Deployment")}
    for spec in deployments.values():
        assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    (service,) = of_kind("Service")
    (budget,) = of_kind("PodDisruptionBudget")
    labels = [spec["selector"]["matchLabels"] for spec in deployments.values()]
    assert service["spec"]["selector"] in labels
    assert budget["spec"]["selector"]["matchLabels"] in labels
    grace = deployments["gnomon-worker"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace > load_settings(environ={}).worker.drain.total_seconds() + 5
    (scaled,) = of_kind("ScaledObject")
    assert scaled["spec"]["scaleTargetRef"]["name"] in deployments


async def test_the_probe_is_answered_without_a_token(tmp_path: Path, processes: Processes) -> None:
    """As the manifest asks, with `auth = "token"`."""
    (server,) = (each for each in containers() if each["name"] == "server")
    path = server["readinessProbe"]["httpGet"]["path"]
    url = f"sqlite:///{tmp_path}/gnomon.db"
    environ = {"GNOMON_SERVER__AUTH": "token", "GNOMON_SERVER__PORT": "0"}
    assert 0 == processes.start_gnomon("migrate", "--database", url).wait()
    child = processes.start_gnomon("server", "--database", url, env=environ)
    served = child.wait_for_line(r"serving http://127\.0\.0\.1:\d+")
    port = int(re.findall(r"127\.0\.0\.1:(\d+)", str(served) + child.log)[0])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
    assert b" 200 " in await reader.readline()
    writer.close()


async def test_keda_asks_what_the_schema_answers(postgres_schema: PostgresSchema) -> None:
    """The statement runs on the installed schema, by an index."""
    dsn, schema = postgres_schema
    app = App(dsn, schema=schema)
    await app.open(migrate=True)
    await app.close()
    (scaled,) = of_kind("ScaledObject")
    (trigger,) = scaled["spec"]["triggers"]
    query = trigger["metadata"]["query"].replace("gnomon.", f"{schema}.")
    connection = await asyncpg.connect(dsn)
    try:
        assert 0 == await connection.fetchval(query)
    finally:
        await connection.close()


# -- PgBouncer ------------------------------------------------------------------------------------


def test_the_pooler_is_set_as_the_comment_says() -> None:
    text = (DEPLOY / "pgbouncer.ini").read_text()
    settings = configparser.ConfigParser(comment_prefixes=(";",), interpolation=None)
    settings.read_string(text)
    assert "transaction" == settings["pgbouncer"]["pool_mode"]
    told = "\n".join(re.findall(r"(?m)^;   (.*)$", text))
    port = settings["pgbouncer"]["listen_port"]
    assert f"127.0.0.1:{port}/" in told
    assert "prepared_statements = false" in told


async def test_the_pooler_serves_gnomon(postgres_schema: PostgresSchema) -> None:
    """The file itself, with the test's server, login and ports in place of its own."""
    dsn, schema = postgres_schema
    async with App(dsn, schema=schema, migrate=True):
        pass
    text = (DEPLOY / "pgbouncer.ini").read_text()
    for usual, here in (
        (r"gnomon = host=.*", "* = host={host} port={port}"),
        (r"listen_port = .*", "listen_port = {listen_port}\nunix_socket_dir ="),
        (r"auth_type = .*", "auth_type = trust"),
        (r"auth_file = .*", "auth_file = {folder}/users"),
        (r"default_pool_size = .*", "default_pool_size = {pool_size}"),
    ):
        text, count = re.subn(rf"(?m)^{usual}$", here, text)
        assert 1 == count, usual
    pooler = Pooler(dsn, template=text)
    try:
        await asyncio.to_thread(pooler.wait_ready)
        database = DatabaseConfig(url=pooler.dsn, schema=schema, prepared_statements=False)
        async with App(settings=Settings(database=database)) as app:
            await app.schedule(Mock(), id="through", in_="1h")
            assert "active" == (await app.scheduler.get("through")).status.state
    finally:
        pooler.close()


def test_the_settings_of_the_units_are_accepted() -> None:
    settings = load_settings(file=DEPLOY / "gnomon.toml", environ={})
    assert "postgres" == settings.database.engine
