"""The measures of a PostgreSQL database, by what the server has counted."""

from __future__ import annotations

from gnomon.contracts.store import HeldCleanup, StoreMeasures, TableMeasure
from gnomon.stores.postgres.connection import Database, Row, read_now

TABLES_MAX = 100
HOLDERS_MAX = 10


async def read_measures(database: Database) -> StoreMeasures:
    """Of this installation's schema, and of all that holds back vacuum in its database."""
    async with database.transaction("measure") as session:
        at = await read_now(session)
        (size,) = await session.fetch("measure_size")
        tables = await session.fetch("measure_tables", database.schema, TABLES_MAX)
        holders = await session.fetch("measure_holders", HOLDERS_MAX)
    return StoreMeasures(
        engine="postgres",
        at=at,
        bytes=size["bytes"],
        tables=[_table_of(row) for row in tables],
        holders=[_holder_of(row) for row in holders],
    )


def _table_of(row: Row) -> TableMeasure:
    return TableMeasure(
        table=row["table"],
        bytes=row["bytes"],
        rows=row["rows"],
        dead_rows=row["dead_rows"],
        cleaned_at=row["cleaned_at"],
    )


def _holder_of(row: Row) -> HeldCleanup:
    return HeldCleanup(
        kind=row["kind"],
        name=row["name"],
        state=row["state"],
        since=row["since"],
        transactions=row["transactions"],
    )
