"""An installation to look at: a small shop with functions, stages and SQL tasks, and some hours of
history. For pictures and for tests of how the pages look."""

from __future__ import annotations

import random
import sqlite3
import textwrap
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

from gnomon.app import App
from gnomon.config import Settings
from gnomon.contracts.observer import SilentObserver
from gnomon.contracts.store import HistoryRow
from gnomon.model.history import BEGUN, BOUNDS_S, DURATION, FAILED, LATENESS, SUCCEEDED, new_counts
from tests.fixtures.up import PATIENCE_S, Up

TOML = '[tasks]\ndsn = "sqlite:///tasks.db"\n[console]\nname = "shop"\n'
TABLE = "tasks.public.task"
MINUTE = timedelta(minutes=1)
HOURS = 8
PROGRAM = '''
import asyncio
from datetime import datetime
from typing import Literal

from gnomon import App, Attempt
from gnomon.stages import Quarantine, Stage, Stages, Update

app = App("sqlite:///gnomon.db")


@app.action(timeout="1m")
async def welcome(ctx: Attempt, user: str, language: Literal["en", "de", "ru"] = "en") -> str:
    """Greet a new customer by mail."""
    return f"sent to {user}"


@app.action(retry=2)
async def charge(ctx: Attempt, order: int, amount: float = 10.0) -> None:
    """Take the money for an order."""
    raise ConnectionError(f"the payment gateway refused order {order}: 503 Service Unavailable")


@app.action(timeout="1h")
async def import_prices(ctx: Attempt, file: str) -> None:
    await ctx.report(0.43, "41,200 of 96,000 rows")
    await asyncio.sleep(1800)


@app.action
async def report(ctx: Attempt, month: str, at: datetime | None = None) -> str:
    return f"report of {month}"


class Price(Stage[dict, None]):
    name, watch, writes = "price", ("make", "model", "year"), ("price",)

    def should_process(self, it):
        return True

    async def process(self, it):
        if it.entity.get("year", 0) < 1900:
            raise Quarantine("the year cannot be: a person must look")
        return Update({"price": 100 * len(it.entity["model"]) + it.entity["year"]})


class Photos(Stage[dict, None]):
    name, watch, writes = "photos", ("photo_urls",), ("photos",)

    def should_process(self, it):
        return bool(it.entity.get("photo_urls"))

    async def process(self, it):
        return Update({"photos": len(it.entity["photo_urls"])})


class Search(Stage[dict, None]):
    name, watch, writes = "search", ("price", "photos"), ("indexed", "hot")

    def should_process(self, it):
        return True

    async def process(self, it):
        return Update({"indexed": True})


class Promote(Stage[dict, None]):
    name, watch, writes = "promote", ("hot",), ("price",)

    def should_process(self, it):
        return False

    async def process(self, it):
        return None


ads = Stages(app, "ad")
for stage in (Price(), Photos(), Search(), Promote()):
    ads.add(stage)
'''


def write_program(folder: Path) -> None:
    (folder / "shop.py").write_text(textwrap.dedent(PROGRAM))


async def write_history(folder: Path) -> None:
    """What workers would have counted in the last hours."""
    chance = random.Random(7)
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    url = f"sqlite:///{folder / 'gnomon.db'}"
    async with App(url, settings=Settings(), observer=SilentObserver()) as app:
        worker = uuid4()
        for minute in range(2, HOURS * 60):
            at = now - minute * MINUTE
            begun = 40 + int(30 * chance.random()) + (60 if at.minute < 3 else 0)
            counts = new_counts()
            counts[BEGUN] = begun
            counts[FAILED] = int(chance.random() * 4)
            counts[SUCCEEDED] = begun - counts[FAILED]
            for _ in range(begun):
                late = chance.lognormvariate(-5.5, 1.2) * (8 if at.minute < 3 else 1)
                counts[LATENESS + _place(late)] += 1
                counts[DURATION + _place(chance.lognormvariate(-2.5, 1.3))] += 1
            rows = [HistoryRow(at=at, queue=queue, counts=counts) for queue in ("", "mail")]
            await app.store.reports.record_minute(worker, rows)


def _place(value_s: float) -> int:
    return next((place for place, bound in enumerate(BOUNDS_S) if value_s <= bound), len(BOUNDS_S))


def stock(up: Up) -> None:
    """About ten of everything, each in the state that it is to be seen in."""
    _create_actions(up)
    _put_ads(up)
    _insert_tasks(up)
    for number in (1, 2, 3):
        assert "dead" == up.ended(f"order-{1003 + number}-charge")["state"]


def _create_actions(up: Up) -> None:
    def create(id: str, effect: dict[str, object], **spec: object) -> None:
        body = {"id": id, "spec": {"action": effect, **spec}}
        status, text = up.call("POST", "/v1/actions", body)
        assert 201 == status, text

    def call(function: str, **kwargs: object) -> dict[str, object]:
        return {"type": "python", "function": function, "kwargs": kwargs}

    now = datetime.now(UTC)
    team = {"labels": {"team": "growth"}}
    for number in range(1, 7):
        at = (now + timedelta(minutes=7 * number)).isoformat()
        user = f"user-{number}@example.org"
        effect = call("welcome", user=user)
        create(f"order-{1000 + number}-reminder", effect, queue="mail", start_at=at, **team)
    for order in (1004, 1005, 1006):
        create(f"order-{order}-charge", call("charge", order=order), queue="payments")
    create(
        "import-prices",
        call("import_prices", file="prices-2026-11.csv"),
        queue="imports",
        timeout="1h",
    )
    create("unserved", call("nobody.has.this"))
    create("month-report", call("report", month="2026-10"), queue="reports")
    for id, policy in {
        "heartbeat": {"type": "periodic", "period": "10s"},
        "nightly-backup": {
            "type": "cron", "expression": "30 2 * * *", "timezone": "Europe/Berlin",
        },
        "weekday-digest": {
            "type": "cron", "expression": "0 9 * * 1-5", "timezone": "America/New_York",
        },
        "quarterly-statement-for-the-accountants": {
            "type": "cron", "expression": "15 4 1 1,4,7,10 *",
        },
    }.items():  # fmt: skip
        create(id, {"type": "mock", "answer": "sent"}, policy=policy, queue="reports", **team)
    health: dict[str, object] = {"type": "http", "method": "GET", "url": f"{up.url}/health"}
    create("callback", health, policy={"type": "periodic", "period": "1m"})
    assert 200 == up.call("POST", "/v1/actions/weekday-digest/pause?reason=holidays&until=9h")[0]
    for queue, limit in {"mail": {"parallel": 20}, "payments": {"parallel": 4, "rate": 2}}.items():
        status, text = up.call("PUT", f"/v1/limits/queue/{queue}", limit)
        assert 200 == status, text


def _put_ads(up: Up) -> None:
    cars = (("Toyota", "Corolla", 2019), ("Lada", "Niva", 1994), ("Saab", "900", 1988))
    ads = {
        f"ad-{number + 1}": {
            "make": make, "model": model, "year": year, "status": "active",
            "photo_urls": ["https://photos.example/front.jpg"],
        }
        for number, (make, model, year) in enumerate(3 * cars)
    }  # fmt: skip
    ads["ad-strange"] = {"make": "Ford", "model": "T", "year": 19, "status": "active"}
    status, text = up.call("POST", "/v1/entities/ad:bulk", {"entities": ads})
    assert 200 == status, text


def _insert_tasks(up: Up) -> None:
    """As those who use the table do: by SQL. What is done has been done by somebody else."""
    done = [
        ("reports", "DONE", "SELECT count(*) AS orders FROM shop_order", "orders\n1204", None),
        ("reports", "DONE", "SELECT 'two' AS two", "two\ntwo", None),
        ("imports", "FAIL", "SELECT * FROM no_such_table", None, "no such table: no_such_table"),
        ("cleaning", "STOP", "DELETE FROM visit WHERE day < date('now', '-90 days')", None, None),
    ]
    with closing(sqlite3.connect(up.folder / "tasks.db", timeout=PATIENCE_S)) as connection:
        connection.executemany(
            'INSERT INTO task ("group", state, input, output, error, start, stop) VALUES '
            "(?, ?, ?, ?, ?, datetime('now', '-40 seconds'), datetime('now', '-2 seconds'))",
            done,
        )
        connection.executemany(
            'INSERT INTO task ("group", input, plan, "max") VALUES (?, ?, ?, 2)',
            [
                ("nightly", f"SELECT refresh('page {number}')", "2100-01-01 02:30")
                for number in range(6)
            ],
        )
        connection.commit()
