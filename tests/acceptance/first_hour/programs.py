"""What a new user writes in the first hour: a small shop. Each text is a file of theirs."""

from __future__ import annotations

MODELS = """
import os
import uuid

from sqlalchemy import text
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

engine = create_async_engine(os.environ["SHOP_DATABASE_URL"])
sessions = async_sessionmaker(engine)


async def make_tables() -> None:
    async with engine.begin() as connection:
        for name in ("purchase", "letter"):
            await connection.execute(
                text(f"CREATE TABLE IF NOT EXISTS {name} (id text, kind text, key text)")
            )


async def write(table: str, id: object, kind: str, key: str = "") -> None:
    async with engine.begin() as connection:
        await insert(connection, table, id, kind, key)


async def insert(connection, table: str, id: object, kind: str, key: str = "") -> None:
    await connection.execute(
        text(f"INSERT INTO {table} VALUES (:id, :kind, :key)"),
        {"id": str(id), "kind": kind, "key": key},
    )
"""

JOBS = """
import asyncio
from uuid import UUID

import gnomon
from shop.models import write

app = gnomon.App()


@app.action(queue="mail", retry=3)
async def send_receipt(ctx: gnomon.Attempt, purchase: UUID) -> str:
    assert isinstance(purchase, UUID)
    await write("letter", purchase, "receipt", ctx.key)
    return f"sent for {purchase}"


@app.action(queue="mail", retry=1)
async def charge(ctx: gnomon.Attempt, card: str) -> None:
    raise RuntimeError(f"the bank refused {card}")


@app.action(timeout="1m")
async def slow_export(ctx: gnomon.Attempt) -> None:
    await write("letter", ctx.id, f"export {ctx.attempt_no}", ctx.key)
    await asyncio.sleep(3 if ctx.attempt_no > 1 else 50)
"""

# The next release knows one function more, and a schedule.
NEXT_JOBS = f"""{JOBS}

@app.action
async def ask_for_review(ctx: gnomon.Attempt, purchase: UUID) -> None:
    await write("letter", purchase, "review", ctx.key)


@app.every("1s", id="tick")
@app.action
async def tick(ctx: gnomon.Attempt) -> None:
    await write("letter", ctx.occurrence_no, "tick", ctx.key)
"""

WEB = """
import uuid

from fastapi import FastAPI

from shop.jobs import app, send_receipt
from shop.models import insert, make_tables, sessions

web = FastAPI(lifespan=app.lifespan())


@web.post("/purchases")
async def buy(item: str) -> dict[str, str]:
    id = uuid.uuid4()
    async with sessions.begin() as session:
        await insert(session, "purchase", id, item)
        await app.schedule(send_receipt(id), id=f"receipt-{id}", connection=session)
        if item == "bomb":
            raise RuntimeError("out of stock, after all")
    return {"id": str(id)}
"""

# Every line is a mistake; what each is told is printed.
TYPOS = """
import asyncio
from datetime import datetime, timedelta

import gnomon
from shop.jobs import app, send_receipt
from uuid import uuid4

CALLS = {
    "option": lambda: app.schedule(send_receipt(uuid4()), delay="5m"),
    "nearest": lambda: app.schedule(send_receipt(uuid4()), retires=3),
    "at": lambda: app.schedule(send_receipt(uuid4()), at=timedelta(minutes=5)),
    "naive": lambda: app.schedule(send_receipt(uuid4()), at=datetime(2030, 1, 1)),
    "call": lambda: app.schedule(send_receipt),
    "type": lambda: app.schedule(send_receipt("not a uuid")),
    "missing": lambda: app.schedule(send_receipt()),
    "zone": lambda: app.schedule(send_receipt(uuid4()), cron="0 9 * * *", timezone="Europe/Berlim"),
    "cron": lambda: app.schedule(send_receipt(uuid4()), cron="61 9 * * *"),
    "retry": lambda: app.schedule(send_receipt(uuid4()), retry="often"),
    "url": lambda: app.schedule(gnomon.Http("GET", "ftp://example.org")),
}


async def main() -> None:
    async with app:
        for name, call in CALLS.items():
            try:
                await call()
            except Exception as error:
                print(f"{name}: {type(error).__name__}: {error}")
            else:
                print(f"{name}: taken")


asyncio.run(main())
"""
