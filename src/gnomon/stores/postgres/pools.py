"""Pools of connections, by what they are for, and what their sessions are set to."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import asyncpg

from gnomon.stores.postgres.known_types import KnowingConnection
from gnomon.stores.postgres.nodes import Node, NodePools

STATEMENT_TIMEOUT_MS = 5_000  # less than half a lease: who is stuck must notice before it is lost
WIDE_TIMEOUT_MS = 60_000
SILENCE_S = 5.0  # the client's own patience, beyond the server's: it may have vanished silently
CONNECT_TIMEOUT_S = 5.0
HELD_MS = 50  # how long a verb of a caller's waits for a row that somebody holds: see `insist`
STATEMENTS_CACHED = 512  # more than there are texts: each is prepared once per connection
LEASE_POOL_SIZE = 2
WIDE_POOL_SIZE = 3
CLOSE_TIMEOUT_S = 2.0

COMMON_SETTINGS = {
    "application_name": "gnomon",
    "timezone": "UTC",
    "default_transaction_isolation": "read committed",
    "idle_in_transaction_session_timeout": str(STATEMENT_TIMEOUT_MS),
    "statement_timeout": str(STATEMENT_TIMEOUT_MS),
    "jit": "off",
}
NARROW_SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        **COMMON_SETTINGS,
        "enable_seqscan": "off",
        "enable_hashjoin": "off",
        "enable_mergejoin": "off",
        "enable_bitmapscan": "off",
        "enable_material": "off",
        "enable_memoize": "off",  # every key is looked up once
        "plan_cache_mode": "force_generic_plan",
    }
)
WIDE_SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        **COMMON_SETTINGS,
        "statement_timeout": str(WIDE_TIMEOUT_MS),
        "max_parallel_workers_per_gather": "0",  # they may take long, but not all processors
    }
)
# A plan for any parameter cannot be sent to the node of one shard; and whoever looks for tables in
# the catalogue is to find those of the shards too.
ON_CITUS: Mapping[str, str] = MappingProxyType(
    {"plan_cache_mode": "auto", "citus.override_table_visibility": "off"}
)

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"


class Pools(NamedTuple):
    """The connections of a process, by what they are for."""

    leases: Pool
    work: Pool
    verbs: Pool
    wide: Pool


class SessionSettings(NamedTuple):
    """What the sessions of a pool are set to."""

    narrow: Mapping[str, str]
    verbs: Mapping[str, str]
    wide: Mapping[str, str]


def settings_for(*, is_citus: bool) -> SessionSettings:
    """As the database is one machine or several."""
    more = ON_CITUS if is_citus else {}
    narrow = {**NARROW_SETTINGS, **more}
    verbs = {**narrow, "lock_timeout": str(HELD_MS)}
    return SessionSettings(narrow, verbs, {**WIDE_SETTINGS, **more})


def said_locally(settings: Mapping[str, str]) -> str:
    """Settings for one transaction, in one message."""
    return "".join(f"SET LOCAL {name} = '{value}';" for name, value in settings.items())


async def open_pools(dsn: str, settings: SessionSettings, *, size: int, prepared: bool) -> Pools:
    """None of them connects before it is used."""
    narrow, verbs, wide = settings
    return Pools(
        leases=await open_pool(dsn, narrow, size=LEASE_POOL_SIZE, prepared=prepared),
        work=await open_pool(dsn, narrow, size=size, prepared=prepared),
        verbs=await open_pool(dsn, verbs, size=size, prepared=prepared),
        wide=await open_pool(dsn, wide, size=WIDE_POOL_SIZE, prepared=prepared),
    )


async def open_pool(
    dsn: str, settings: Mapping[str, str], *, size: int, prepared: bool, **there: Any
) -> Pool:
    """A pool that connects when needed and again after the server was away; `there`: to another
    host and port than the DSN says.

    Behind a pooler in transaction mode neither prepared statements nor settings of a session can
    be used: without `prepared` there are none, and each transaction says its settings itself.
    """
    pool: Pool = await asyncpg.create_pool(
        dsn,
        min_size=0,
        max_size=size,
        max_queries=10_000_000,  # a connection need not be renewed for its age in queries
        max_inactive_connection_lifetime=300.0,
        reset=_no_reset,
        timeout=CONNECT_TIMEOUT_S,
        command_timeout=int(settings["statement_timeout"]) / 1000 + SILENCE_S,
        statement_cache_size=STATEMENTS_CACHED if prepared else 0,
        max_cached_statement_lifetime=0,
        server_settings=dict(settings) if prepared else {"application_name": "gnomon"},
        connection_class=KnowingConnection,
        **there,
    )
    return pool


async def _no_reset(_connection: object) -> None:
    """Nothing of ours outlives its transaction, so nothing needs undoing between two uses."""


async def open_node(dsn: str, node: Node, *, size: int) -> NodePools:
    """To the same database and as the same user, where Citus says that the node is."""
    settings = settings_for(is_citus=False)
    there = {"host": node.host, "port": node.port}
    return NodePools(
        work=await open_pool(dsn, settings.narrow, size=size, prepared=True, **there),
        verbs=await open_pool(dsn, settings.verbs, size=size, prepared=True, **there),
    )


async def close_pool(pool: Pool) -> None:
    try:
        await asyncio.wait_for(pool.close(), CLOSE_TIMEOUT_S)
    except (TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
        pool.terminate()
