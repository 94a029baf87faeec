"""An action that exists if and when your own transaction commits, on SQLite."""

import asyncio
import sqlite3
import sys
from pathlib import Path

import gnomon

FILE = Path(sys.argv[1] if len(sys.argv) > 1 else "shop.db")
app = gnomon.App(f"sqlite:///{FILE}")


@app.action
async def remind(ctx: gnomon.Attempt, customer: str) -> None:
    print(f"dear {customer}, your order waits ({ctx.key})")


async def main() -> None:
    async with app:
        connection = sqlite3.connect(FILE, isolation_level=None)
        connection.execute("CREATE TABLE IF NOT EXISTS orders (customer TEXT)")

        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO orders VALUES ('ann')")
        await app.schedule(remind("ann"), id="remind-ann", every="1h", connection=connection)
        connection.execute("ROLLBACK")  # neither the order nor the reminder exists
        try:
            await app.scheduler.get("remind-ann")
        except gnomon.GnomonError as exc:
            print("after the rollback:", exc)

        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO orders VALUES ('ann')")
        await app.schedule(remind("ann"), id="remind-ann", every="1h", connection=connection)
        connection.execute("COMMIT")
        connection.close()
        action = await app.scheduler.get("remind-ann")
        print("after the commit:", action.status.state.value)


asyncio.run(main())
