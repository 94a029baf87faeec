"""The Django project of the examples, with the real Django: its commands, pages and tasks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psycopg
import pytest

from tests.fixtures.processes import Processes

ROOT = Path(__file__).parents[2]
WAIT_S = 60
MANAGE = "examples.django_shop.manage"

SETUP = f"""
import time
import django
django.setup()
from django.test import Client
import gnomon
from examples.django_shop.shop import tasks
from examples.django_shop.shop.models import Order
from gnomon.django.framework import task_backends, TaskResultDoesNotExist
backend = task_backends["default"]
blocking = backend.app.blocking

def wait(result):
    until = time.monotonic() + {WAIT_S}
    while not result.is_finished:
        assert time.monotonic() < until, result
        time.sleep(0.05)
        result.refresh()
    return result
"""

PAGES = """
client = Client()
bought = client.post("/orders/ann").json()
refused = client.post("/orders/nobody")
assert 400 == refused.status_code
assert ["ann"] == [order.user for order in Order.objects.all()]
stored = blocking.list(gnomon.Selection(queue="mail")).actions
assert [bought["result"]] == [action.meta.id for action in stored]
assert (5, 30) == (stored[0].spec.retry.max, stored[0].spec.timeout.total_seconds())
assert {"status": "READY", "value": None} == client.get("/results/" + bought["result"]).json()
print(bought["result"])
"""

TASKS = """
import asyncio, sys
from datetime import timedelta
from django.utils import timezone
reminder = wait(tasks.remind.get_result(sys.argv[1]))
assert {"reminded": "ann"} == reminder.return_value
assert Order.objects.get(user="ann").reminded
assert 1 == reminder.attempts and reminder.started_at <= reminder.finished_at

tried = wait(tasks.count_attempts.using(retry=gnomon.Retry(max=1)).enqueue(1))
assert (2, 2) == (tried.return_value, tried.attempts)
assert [LookupError] == [error.exception_class for error in tried.errors]

failed = wait(tasks.count_attempts.enqueue(fail=9))
assert "FAILED" == failed.status and 1 == failed.attempts
try:
    failed.return_value
except ValueError as exc:
    assert "failed" in str(exc)

async def asynchronously():
    result = await tasks.count_attempts.aenqueue(0)
    again = await tasks.count_attempts.aget_result(result.id)
    assert result.id == again.id
    return result
assert 1 == wait(asyncio.run(asynchronously())).return_value

later = timezone.now() + timedelta(hours=3)
deferred = tasks.remind.using(run_after=later, priority=40).enqueue(1)
action = blocking.get(deferred.id)
assert (later, 3) == (action.spec.start_at, action.spec.priority)
assert 40 == tasks.remind.get_result(deferred.id).task.priority
blocking.delete(deferred.id)
assert "FAILED" == tasks.remind.get_result(deferred.id).status

sweep = blocking.get("examples.django_shop.shop.tasks.sweep")
assert "0 3 * * *" == sweep.spec.policy.expression, sweep
assert "Europe/Berlin" == sweep.spec.policy.timezone
assert 1 == wait(tasks.sweep.enqueue()).return_value

for wrong in ("nobody", "no such/id"):
    try:
        tasks.remind.get_result(wrong)
    except (TaskResultDoesNotExist, gnomon.InvalidRequest):
        continue
    raise AssertionError(wrong)
try:
    tasks.remind.get_result(tried.id)
except Exception as exc:
    assert "does not match" in str(exc)
print("done")
"""

WRONG = """
from gnomon.django.framework import InvalidTask
try:
    from django.tasks import task
except ModuleNotFoundError:
    from django_tasks import task

def said(call):
    try:
        call()
    except (InvalidTask, TypeError) as exc:
        return str(exc)
    raise AssertionError("it was taken")

def plain(name): ...
plain.__module__, plain.__qualname__ = "shop", "plain"
import sys, types
sys.modules["shop"] = types.SimpleNamespace(plain=plain)
assert "retry" in said(lambda: task(retry="often")(plain))
assert "policy.expression" in said(lambda: task(cron="every morning")(plain))
assert "without arguments" in said(lambda: task(cron="0 9 * * *")(plain))
assert "timeout" in said(lambda: task(timeout="soon")(plain))
assert "retires" in said(lambda: task(retires=5)(plain))
assert "no option 'retires'" in said(lambda: tasks.remind.using(retires=5))
assert "Queue" in said(lambda: tasks.remind.using(queue_name="nowhere"))
assert "set" in said(lambda: tasks.remind.enqueue({1, 2}))
print("done")
"""

ON_A_BENCH = """
import asyncio
from gnomon.testing import ActionBench
from django.db import connection, transaction

Order.objects.create(user="bob")
with ActionBench(backend.app) as bench:
    with transaction.atomic():
        tasks.remind.enqueue(Order.objects.get().id)
    assert ["examples.django_shop.shop.tasks.remind"] == [
        action.function for action in bench.scheduled if action.queue == "mail"
    ]
    asyncio.run(bench.run_due())
    assert Order.objects.get().reminded
    asyncio.run(bench.advance(days=1))
    assert 0 == Order.objects.count()
print("done")
"""


@pytest.fixture(params=["sqlite", "postgres"])
def environment(request: pytest.FixtureRequest, tmp_path: Path) -> Mapping[str, str]:
    own = {"DJANGO_SETTINGS_MODULE": "examples.django_shop.settings"}
    if request.param == "sqlite":
        return {**os.environ, **own, "SHOP_FILE": str(tmp_path / "shop.sqlite3")}
    dsn, schema = request.getfixturevalue("postgres_schema")
    with psycopg.connect(dsn) as connection:  # for Django's tables, too: the database is shared
        connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
    database = {
        "SHOP_DATABASE": dsn,
        "SHOP_SCHEMA": schema,
        "PGOPTIONS": f"-c search_path={schema}",
    }
    return {**os.environ, **own, **database}


@pytest.fixture
def migrated(environment: Mapping[str, str]) -> Mapping[str, str]:
    """The project's tables and ours: its own command makes both."""
    run(environment, "-m", MANAGE, "migrate", "-v", "0")
    return environment


def run(environment: Mapping[str, str], *command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert 0 == done.returncode, done.stderr
    return done.stdout


def test_orders_and_their_tasks(migrated: Mapping[str, str], processes: Processes) -> None:
    """Stored together with the order, performed by the worker of the project, and shown."""
    result = run(migrated, "-c", SETUP + PAGES).strip()
    worker = processes.start_python("-m", MANAGE, "gnomon_worker", env=migrated)
    assert "done\n" == run(migrated, "-c", SETUP + TASKS, result)
    assert 0 == worker.stop()


def test_wrong_options_are_told_at_the_declaration(migrated: Mapping[str, str]) -> None:
    assert "done\n" == run(migrated, "-c", SETUP + WRONG)


def test_tasks_on_a_bench(migrated: Mapping[str, str]) -> None:
    """Tests of a project need no worker."""
    assert "done\n" == run(migrated, "-c", SETUP + ON_A_BENCH)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--backend", "other"], "TASKS has no 'other'; it has default"),
        (["--queues", "no such queue"], "worker.only_queues"),
    ],
)
def test_the_worker_says_what_is_wrong(
    environment: Mapping[str, str], arguments: list[str], told: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", MANAGE, "gnomon_worker", *arguments],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert 1 == done.returncode
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_the_app_must_be_installed(environment: Mapping[str, str]) -> None:
    program = """
from django.conf import settings
settings.configure(TASKS={"default": {"BACKEND": "gnomon.django.backend.GnomonBackend"}})
import django
django.setup()
from gnomon.django.framework import task_backends
task_backends["default"]
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "add 'gnomon.django' to INSTALLED_APPS" in done.stderr


def test_the_page_shows_the_project() -> None:
    """Every block of Python on the page is in a file of the project, as it runs."""
    page = (ROOT / "docs/howto/django.md").read_text()
    files = [path.read_text() for path in (ROOT / "examples/django_shop").rglob("*.py")]
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert 4 == len(blocks)
    assert [] == [block for block in blocks if not any(block in text for text in files)]
