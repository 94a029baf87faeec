"""The PostgreSQL engine: many processes, one database; on Citus the same, one part at a time."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from functools import partial

from gnomon.contracts.clock import Clock, Entropy
from gnomon.contracts.observer import Observer, SilentObserver
from gnomon.contracts.store import Capabilities, Store
from gnomon.model.errors import GnomonError
from gnomon.stores.config import ATTEMPTS_KEPT_FOR, AUDIT_KEPT_FOR
from gnomon.stores.postgres.actions import PostgresActions
from gnomon.stores.postgres.at_home import WorkAtHome
from gnomon.stores.postgres.connection import Database, open_database
from gnomon.stores.postgres.entities import PostgresEntities, PostgresQueues
from gnomon.stores.postgres.entities.outbox import PostgresOutbox
from gnomon.stores.postgres.entities.register import PostgresRegister
from gnomon.stores.postgres.installation import PostgresInstallation
from gnomon.stores.postgres.joined import JoinedActions, KnownConnections
from gnomon.stores.postgres.leases import PostgresLeases
from gnomon.stores.postgres.limits import PostgresLimits
from gnomon.stores.postgres.programs import PostgresPrograms
from gnomon.stores.postgres.progress import PostgresProgress
from gnomon.stores.postgres.reports import PostgresReports
from gnomon.stores.postgres.rows import Decoder
from gnomon.stores.postgres.tokens import PostgresTokens
from gnomon.stores.postgres.wakeups import PostgresWakeups
from gnomon.stores.postgres.work import PostgresWork

__all__ = ["open_postgres"]

SCHEMA_DEFAULT = "gnomon"
POOL_SIZE_DEFAULT = 8
PACE_S = 0.02  # on Citus: a statement costs about the same for one row and for twenty


async def open_postgres(  # noqa: PLR0913 - one for each setting
    dsn: str,
    *,
    clock: Clock,
    entropy: Entropy,
    schema: str = SCHEMA_DEFAULT,
    pool_size: int = POOL_SIZE_DEFAULT,
    prepared: bool = True,
    many_shards: bool | None = None,
    parts: int = 0,
    attempts_kept_for: timedelta = ATTEMPTS_KEPT_FOR,
    audit_kept_for: timedelta = AUDIT_KEPT_FOR,
    observer: Observer | None = None,
) -> Store:
    """Connect; the schema may be missing until `installation.migrate`.

    `prepared=False` is for poolers in transaction mode. `many_shards=False` keeps every transaction
    in one shard, or in one of so many `parts` of all shards, as Citus needs it; by default the
    database is asked. Errors: StoreUnavailable.
    """
    database = await open_database(
        dsn,
        schema=schema,
        pool_size=pool_size,
        prepared=prepared,
        many_shards=many_shards,
        parts=parts,
        observer=observer or SilentObserver(),
    )
    await _learn_homes(database)
    decoder = Decoder()
    for_work = database.for_work()
    work = (PostgresWork if database.many_shards else WorkAtHome)(for_work, decoder)
    wakeups = PostgresWakeups(database, dsn, clock=clock, entropy=entropy, can_listen=prepared)
    return Store(
        capabilities=Capabilities(
            engine="postgres",
            parallel_writers=True,
            wakeups=prepared,
            caller_transactions=True,
            many_shards=database.many_shards,
            pace_s=PACE_S if database.is_through_citus else 0.0,
        ),
        actions=PostgresActions(database, decoder),
        work=work,
        leases=PostgresLeases(database.for_leases()),
        installation=PostgresInstallation(
            database,
            decoder,
            work,
            entropy=entropy,
            attempts_kept_for=attempts_kept_for,
            audit_kept_for=audit_kept_for,
        ),
        tokens=PostgresTokens(database),
        limits=PostgresLimits(for_work),
        programs=PostgresPrograms(database, decoder),
        progress=PostgresProgress(for_work),
        entities=PostgresEntities(database, entropy=entropy),
        queues=PostgresQueues(database, for_work, entropy=entropy),
        register=PostgresRegister(for_work, entropy=entropy),
        outbox=PostgresOutbox(for_work),
        reports=PostgresReports(database, decoder),
        wakeups=wakeups,
        close=partial(_close, wakeups, database),
        joining=partial(JoinedActions, database, decoder, KnownConnections(database)),
    )


async def _learn_homes(database: Database) -> None:
    """Where the parts of a cluster live, if there is an installation; else `open` asks again."""
    with suppress(GnomonError):
        await database.learn_parts()
        await database.learn_homes()


async def _close(wakeups: PostgresWakeups, database: Database) -> None:
    await wakeups.close()
    await database.close()
