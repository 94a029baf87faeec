"""Django's own connection, within `transaction.atomic`: a program with the real Django, for its
settings are one for a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
from urllib.parse import urlsplit

import django
from django.conf import settings

import gnomon
from gnomon.app import sqlite_path

url, schema = sys.argv[1:]
if url.startswith("sqlite"):
    database = {"ENGINE": "django.db.backends.sqlite3", "NAME": sqlite_path(url)}
else:
    parts = urlsplit(url)
    database = {
        "ENGINE": "django.db.backends.postgresql", "NAME": parts.path[1:], "HOST": parts.hostname,
        "PORT": parts.port, "USER": parts.username,
    }
other = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
settings.configure(DATABASES={"default": database, "other": other})
django.setup()

from django.db import connection, connections, transaction

app = gnomon.App(url, schema=schema or None, migrate=True)
app.blocking.open()


def schedule(id, using=connection, **options):
    return app.blocking.schedule(gnomon.Mock(), id=id, in_="1h", connection=using, **options)


def refused(using=connection):
    try:
        schedule("refused", using)
    except gnomon.GnomonError as exc:
        return str(exc)
    raise AssertionError("it was taken")


def ids():
    return [action.meta.id for action in app.blocking.list(gnomon.Selection()).actions]


with connection.cursor() as cursor:
    cursor.execute("CREATE TABLE orders (id integer)")


def order(number):
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO orders VALUES (%s)", [number])


assert "transaction.atomic()" in refused(), refused()

with transaction.atomic():
    order(1)
    schedule("kept")
    assert [] == ids()
assert ["kept"] == ids()

try:
    with transaction.atomic():
        order(2)
        schedule("rolled-back")
        raise ZeroDivisionError
except ZeroDivisionError:
    pass
assert ["kept"] == ids()

with transaction.atomic():  # an error spoils neither the block nor what is around it
    order(3)
    try:
        schedule("kept")
    except gnomon.AlreadyExists:
        pass
    try:
        with transaction.atomic():
            schedule("inner")
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    schedule("outer")
    app.blocking.cancel("kept", connection=connection)
assert ["kept", "outer"] == ids()
assert "cancelled" == app.blocking.get("kept").status.state

with transaction.atomic():
    transaction.set_rollback(True)
    assert "has failed" in refused(), refused()

with transaction.atomic(using="other"):
    assert "does not support joining" in refused(connections["other"])

with connection.cursor() as cursor:
    cursor.execute("SELECT id FROM orders ORDER BY id")
    assert [1, 3] == [row[0] for row in cursor.fetchall()]
    cursor.execute("DROP TABLE orders")
app.blocking.close()
print("done")
"""


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_within_atomic(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Committed with the block, gone with the block; wrong connections are told so."""
    url, schema = f"sqlite:///{tmp_path}/shop.db", ""
    if engine == "postgres":
        url, schema = request.getfixturevalue("postgres_schema")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, url, schema], capture_output=True, text=True, check=False
    )
    assert ("done\n", "") == (done.stdout, done.stderr)
