"""Write each engine's schema.sql anew from its migrations; a test compares them.

The files are for readers: what the migrations add up to. Nothing is ever installed from them.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
import subprocess
import tempfile
from pathlib import Path

from gnomon.clock import SystemClock, SystemEntropy
from gnomon.stores.postgres import open_postgres
from gnomon.stores.sqlite import open_sqlite
from tests.fixtures.postgres import PostgresServer, find_binaries

STORES = Path(__file__).parents[2] / "src" / "gnomon" / "stores"
HEAD = "-- What all migrations add up to, for readers. Made by `make schema`; do not edit.\n\n"


async def sqlite_schema() -> str:
    """The statements that SQLite itself keeps."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "schema.db"
        store = open_sqlite(str(path), clock=SystemClock(), entropy=SystemEntropy())
        await store.installation.migrate(shard_count=1)
        await store.close()
        with sqlite3.connect(path) as connection:
            rows = connection.execute(
                "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type DESC, name"
            ).fetchall()
        connection.close()
    return HEAD + "\n\n".join(f"{sql};" for (sql,) in rows) + "\n"


async def postgres_schema(dsn: str) -> str:
    """`pg_dump` of a new installation, without its daily partitions and its settings."""
    store = await open_postgres(dsn, schema="gnomon", clock=SystemClock(), entropy=SystemEntropy())
    await store.installation.migrate(shard_count=1)
    await store.close()
    dumped = subprocess.run(
        [
            find_binaries() / "pg_dump",
            "--schema-only",
            "--no-owner",
            "--no-privileges",
            "--schema=gnomon",
            "--exclude-table=gnomon.*_p20*",
            dsn,
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    kept = [
        line
        for line in dumped.splitlines()
        if line and not re.match(r"--|SET |SELECT pg_catalog|\\\\|\\(un)?restrict", line)
    ]
    return HEAD + "\n".join(kept) + "\n"


def main() -> None:
    (STORES / "sqlite" / "schema.sql").write_text(asyncio.run(sqlite_schema()))
    with PostgresServer() as server:
        (STORES / "postgres" / "schema.sql").write_text(asyncio.run(postgres_schema(server.dsn)))
    print("wrote src/gnomon/stores/{sqlite,postgres}/schema.sql")


if __name__ == "__main__":
    main()
