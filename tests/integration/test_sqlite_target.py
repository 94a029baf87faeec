"""A worker with a SQLite file as a target of kind sql."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from gnomon.app import App
from gnomon.config import load_settings
from gnomon.model.action import State
from gnomon.model.errors import ConfigurationError
from gnomon.model.spec import Sql

CONFIG = """
[database]
url = "sqlite:///{folder}/gnomon.db"

[targets.shop]
kind = "sql"
dsn = "sqlite:///{folder}/{file}"
"""


def app_of(folder: Path, file: str) -> App:
    config = folder / "gnomon.toml"
    config.write_text(CONFIG.format(folder=folder, file=file))
    return App(settings=load_settings(file=config, environ={}))


async def test_a_worker_performs_statements_on_a_file(tmp_path: Path) -> None:
    """The row is there, the key beside it, and the scheduler's own tables are elsewhere."""
    shop = sqlite3.connect(tmp_path / "shop.db")
    shop.execute("CREATE TABLE bill (n INTEGER, note TEXT)")
    stop = asyncio.Event()
    async with app_of(tmp_path, "shop.db") as app, asyncio.timeout(20):
        working = asyncio.create_task(app.work(stop))
        statement = "INSERT INTO bill VALUES ($1, $2)"
        made = await app.schedule(Sql(target="shop", statement=statement, parameters=[7, "due"]))
        while (found := await app.scheduler.get(made.meta.id)).status.state is State.ACTIVE:
            await asyncio.sleep(0.02)
        stop.set()
        await working
    assert State.DONE is found.status.state
    assert [(7, "due")] == shop.execute("SELECT * FROM bill").fetchall()
    assert [(1,)] == shop.execute("SELECT count(*) FROM gnomon_inbox").fetchall()
    shop.close()


async def test_a_worker_does_not_start_on_its_own_file(tmp_path: Path) -> None:
    """A statement there could do whatever the scheduler can."""
    async with app_of(tmp_path, "gnomon.db") as app:
        with pytest.raises(ConfigurationError, match=r"targets\.shop\.dsn"):
            await app.work(asyncio.Event())
