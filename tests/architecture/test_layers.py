"""Who may import whom, and which library lives where."""

from __future__ import annotations

import sys

import pytest

from tests.architecture.sources import PACKAGE, Module, dotted_uses, imports_of, source_modules

# From the top; a package imports what is below its own row, and itself.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("__init__", "__main__"),  # the public names, the command: on top of everything
    ("django",),  # its tasks; Django loads it by name
    ("cli",),
    ("testing",),  # shipped for users' tests; nothing of ours imports it
    ("app",),
    ("functions",),  # the app's decorators
    ("blocking_app", "lifespan"),  # the app without an event loop, and in a web app's
    ("config",),
    ("gateways", "console", "client"),
    ("scheduler", "worker", "tasks", "stages"),
    ("stores", "executors", "telemetry", "limiter"),
    # Of the machine: time and randomness, processes; a file for strangers' SQL; named SQL out of
    # files. Channels to services of others. The rule of leasing, which nobody has alone. Coroutines
    # without a loop.
    (
        "clock",
        "sqlite_box",
        "queries",
        "channels",
        "processes",
        "boundary",
        "lease",
        "at_once",
        "loop_thread",
        "extras",
    ),
    ("contracts",),
    ("model", "v1"),  # v1: the gRPC messages, generated
)
RANKS = {name: len(LAYERS) - row for row, names in enumerate(LAYERS) for name in names}

# Rows alone would allow it: the core knows engines and executors by contract only.
CORE = frozenset({"scheduler", "worker", "tasks", "stages"})
NOT_FOR_CORE = frozenset({"stores", "executors"})
TESTING_ONLY = "testing"

EVERYWHERE = ("",)
# One home for each library: whoever replaces one, replaces it there.
HOMES: dict[str, tuple[str, ...]] = {
    "msgspec": EVERYWHERE,  # the language of the model; its types cross all layers
    "cronsim": ("model",),
    "cryptography": ("model.signing_key",),
    "asyncpg": ("stores.postgres", "executors._sql_postgres", "executors._sql_attempt", "tasks"),
    "uvloop": ("app", "cli"),
    "aiohttp": ("executors.http", "executors.push", "client"),
    "psycopg": ("stores.postgres.joined", "tasks.postgres"),
    "multidict": ("executors.http",),
    "yarl": ("executors.http",),
    "aio_pika": ("executors.rabbitmq",),
    "aiormq": ("executors.rabbitmq",),  # the lower half of aio_pika: some errors are only there
    "aiokafka": ("executors._kafka_client",),
    "grpc": ("channels", "gateways.grpc", "executors.grpc", "client", "stages"),
    "google": ("gateways.grpc", "executors.grpc", "client", "stages"),
    "grpc_health": ("gateways.grpc",),
    "starlette": ("gateways.rest",),
    "uvicorn": ("gateways.rest",),
    "hypothesis": ("testing.stage_laws",),  # only for those who give it a strategy
    "django": ("django",),
    "django_tasks": ("django",),
    "pytest": ("testing.plugin",),
    "h11": ("gateways.rest",),  # uvicorn's own parser: what it waits for is only known there
    "typer": ("cli",),
    "click": ("cli",),
    "rich": ("cli",),
    "prometheus_client": ("telemetry",),
    "opentelemetry": ("telemetry",),
}

# An allow list, for the next version of Python may bring a new way to tell the time. zoneinfo reads
# the zone tables, which are the same for all of a process' life.
# fmt: off
PURE_LIBRARIES = frozenset(
    {
        "__future__", "abc", "base64", "binascii", "bisect", "calendar", "collections",
        "contextlib", "copy", "dataclasses", "datetime", "decimal", "difflib", "enum",
        "fractions", "functools", "hashlib", "heapq", "hmac", "ipaddress", "itertools",
        "json", "keyword", "math", "numbers", "operator", "re", "statistics", "string",
        "struct", "textwrap", "types", "typing", "unicodedata", "urllib.parse", "uuid",
        "zlib", "zoneinfo", "msgspec", "cronsim",
        "cryptography.exceptions", "cryptography.hazmat.primitives.asymmetric.ed25519",
    }
)
# fmt: on
IMPURE_USES = frozenset(
    {
        "datetime.date.today",
        "datetime.datetime.now",
        "datetime.datetime.today",
        "datetime.datetime.utcnow",
        "uuid.getnode",
        "uuid.uuid1",
        "uuid.uuid4",
    }
)


def package_of(dotted: str) -> str:
    """The row's name of a module of ours: `gnomon.stores.sqlite.leases` is in `stores`."""
    parts = dotted.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def layer_findings(module: Module) -> list[str]:
    own = package_of(module.name)
    if own not in RANKS:
        return [f"{module.path}: {own} has no row in LAYERS"]
    findings = []
    for imported in imports_of(module):
        if imported.target.partition(".")[0] != PACKAGE:
            continue
        if imported.source == PACKAGE:  # `from gnomon import stores`, or a public name
            other = package_of(imported.target)
            if other == "__version__":
                continue
            other = other if other in RANKS else "__init__"
        else:
            other = package_of(imported.target)
        if other != own and not is_allowed(own, other):
            findings.append(f"{module.where(imported.node)}: {own} imports {other}")
    return findings


def is_allowed(own: str, other: str) -> bool:
    if other not in RANKS or other == TESTING_ONLY:
        return False
    if own in CORE and other in NOT_FOR_CORE:
        return False
    return RANKS[own] > RANKS[other]


def home_findings(module: Module) -> list[str]:
    findings = []
    for imported in imports_of(module):
        library = imported.target.partition(".")[0]
        if library == PACKAGE or library in sys.stdlib_module_names:
            continue
        homes = HOMES.get(library, ())
        if homes != EVERYWHERE and not module.is_in(*homes):
            where = " or ".join(homes) or "the table of homes first"
            findings.append(f"{module.where(imported.node)}: {library} belongs into {where}")
    return findings


def purity_findings(module: Module) -> list[str]:
    if not module.is_in("model"):
        return []
    findings = [
        f"{module.where(imported.node)}: the model imports {imported.target}"
        for imported in imports_of(module)
        if imported.target.partition(".")[0] != PACKAGE
        and not {imported.target.partition(".")[0], imported.source, imported.target}
        & PURE_LIBRARIES
    ]
    findings += [
        f"{module.where(node)}: the model uses {used}"
        for used, node in dotted_uses(module)
        if used in IMPURE_USES
    ]
    return findings


def test_imports_go_down() -> None:
    """A package imports only from rows below it; the core never imports an engine or executor."""
    assert [] == [finding for module in source_modules() for finding in layer_findings(module)]


def test_each_library_has_one_home() -> None:
    """A third-party library is imported in its home only."""
    assert [] == [finding for module in source_modules() for finding in home_findings(module)]


def test_model_is_pure() -> None:
    """The model has no clock, no I/O and no randomness."""
    assert [] == [finding for module in source_modules() for finding in purity_findings(module)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("gnomon.model.action", "from gnomon.contracts import store"),
        ("gnomon.model.action", "from gnomon import contracts"),
        ("gnomon.model.action", "from .. import contracts"),
        ("gnomon.worker.leases", "import gnomon.scheduler"),
        ("gnomon.worker.leases", "from gnomon.stores.sqlite import leases"),
        ("gnomon.stages.lanes", "from gnomon.executors import http"),
        ("gnomon.stores.sqlite.leases", "from gnomon.executors import http"),
        ("gnomon.gateways.rest.actions", "def f():\n    import gnomon.config"),
        ("gnomon.gateways.rest.actions", "from gnomon import create"),
        ("gnomon.app", "from gnomon.cli import main"),
        ("gnomon.app", "from gnomon.testing import clock"),
        ("gnomon.testing.bench", "from gnomon.cli import main"),
        ("gnomon.mystery", "import re"),
    ],
)
def test_layer_rule_can_fail(name: str, text: str) -> None:
    assert 1 == len(layer_findings(Module.of_text(name, text)))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("gnomon.app", "from gnomon import stores, worker\nfrom gnomon.config import Settings"),
        ("gnomon.stores.sqlite.leases", "from gnomon.queries import load"),
        ("gnomon.worker.leases", "from gnomon.contracts.store import LeaseStore"),
        ("gnomon.testing.bench", "from gnomon.stores import sqlite\nfrom gnomon import app"),
        ("gnomon.gateways.rest.actions", "from gnomon import __version__"),
        ("gnomon", "from gnomon.app import build"),
    ],
)
def test_layer_rule_can_pass(name: str, text: str) -> None:
    assert [] == layer_findings(Module.of_text(name, text))


@pytest.mark.parametrize(
    ("name", "text", "count"),
    [
        ("gnomon.worker.leases", "import asyncpg", 1),
        ("gnomon.stores.sqlite.leases", "from asyncpg import Pool", 1),
        ("gnomon.stores.postgres.leases", "from asyncpg import Pool", 0),
        ("gnomon.scheduler.create", "import msgspec, re", 0),
        ("gnomon.scheduler.create", "import requests", 1),
    ],
)
def test_home_rule_can_fail(name: str, text: str, count: int) -> None:
    assert count == len(home_findings(Module.of_text(name, text)))


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("import time", 1),
        ("import os.path", 1),
        ("from random import Random", 1),
        ("from urllib import request", 1),
        ("from urllib.parse import urlsplit", 0),
        ("from collections.abc import Sequence", 0),
        ("from datetime import datetime\nx = datetime.now()", 1),
        ("import datetime as d\nx = d.datetime.utcnow", 1),
        ("from uuid import UUID, uuid4\nx = uuid4()", 1),
        ("from uuid import UUID, uuid5\nx = uuid5(UUID(int=0), 'a')", 0),
        ("from gnomon.model.errors import NotFound", 0),
    ],
)
def test_purity_rule_can_fail(text: str, count: int) -> None:
    assert count == len(purity_findings(Module.of_text("gnomon.model.action", text)))
