"""An installation of an older release is brought up to date in place."""

from __future__ import annotations

import pytest

from gnomon.clock import SystemClock, SystemEntropy
from gnomon.contracts.store.entities import EntityWrite
from gnomon.stores.postgres import installation, open_postgres
from gnomon.stores.postgres.migrations import VERSION, migrations
from tests.fixtures.postgres import PostgresSchema

NAMES = [step.name for step in migrations()]


@pytest.mark.parametrize("version", range(1, VERSION))
async def test_postgres_gets_what_is_missing_and_nothing_twice(
    postgres_schema: PostgresSchema, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """The steps after its version, once; then everything works."""
    dsn, schema = postgres_schema
    store = await open_postgres(dsn, schema=schema, clock=SystemClock(), entropy=SystemEntropy())
    with monkeypatch.context() as older:
        older.setattr(installation, "VERSION", version)
        older.setattr(installation, "migrations", lambda: migrations()[:version])
        assert NAMES[:version] == list(await store.installation.migrate(shard_count=4))

    assert NAMES[version:] == list(await store.installation.migrate(shard_count=4))

    assert [] == list(await store.installation.migrate(shard_count=4))
    assert VERSION == (await store.installation.open()).schema_version
    first = EntityWrite(
        key="ad/1",
        shard=1,
        doc="{}",
        base=None,
        paths=(),
        author="user",
        root=SystemEntropy().token(),
    )
    assert [1] == [each and each.version for each in await store.entities.write([first])]
    assert [] == list(await store.installation.doctor())
    await store.close()
