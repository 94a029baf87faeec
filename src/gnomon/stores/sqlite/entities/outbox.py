"""Saves on their way out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from gnomon.contracts.store import Holding
from gnomon.contracts.store.entities import Outgoing, StageState
from gnomon.stores.sqlite.entities.rows import (
    Connection,
    Parameters,
    decode_texts,
    encode_texts,
    first_of,
    held_shards,
    state_of,
)
from gnomon.stores.sqlite.entities.verbs import EntityVerbs
from gnomon.stores.sqlite.queries import SQL
from gnomon.stores.sqlite.rows import duration_us, moment


class Save(NamedTuple):
    """What goes out with a save, whoever it goes to."""

    shard: int
    entity_id: str
    n: int
    epoch: int
    version: int
    author: str
    paths: tuple[str, ...]
    doc: str | None
    state: StageState | None
    key: str
    now_us: int


class SqliteOutbox(EntityVerbs):
    """The part of the `EntityStore` that relays use."""

    async def outgoing(self, holdings: Sequence[Holding], *, limit: int) -> Sequence[Outgoing]:
        def call(connection: Connection) -> list[Outgoing]:
            shards = held_shards(connection, holdings)
            rows = first_of(connection, "outgoing", shards, limit=limit, now=self._now_us())
            return [_outgoing_of(row) for row in rows]

        return await self._runner.read(call)

    async def sent(self, rows: Sequence[Outgoing]) -> None:
        gone = [_key(row) for row in rows]

        def call(connection: Connection) -> None:  # a cursor must not leave the writer's thread
            connection.executemany(SQL["sent"], gone)

        await self._runner.write(call)

    async def unsent(
        self, rows: Sequence[Outgoing], *, delay: timedelta, error: str, counts: bool
    ) -> None:
        def call(connection: Connection) -> None:
            ready_at = self._now_us() + duration_us(delay)
            for row in rows:
                values = _key(row) | {"ready_at": ready_at, "error": error, "counts": int(counts)}
                if connection.execute(SQL["unsent"], values).rowcount:
                    connection.execute(SQL["hold_back"], values)

        await self._runner.write(call)


def outgoing_rows(save: Save, sinks: Sequence[str]) -> list[Parameters]:
    """The outbox rows of a save, one for each sink."""
    state = save.state
    row: Parameters = {
        "shard": save.shard,
        "id": save.entity_id,
        "n": save.n,
        "now": save.now_us,
        "epoch": save.epoch,
        "version": save.version,
        "author": save.author,
        "paths": encode_texts(save.paths),
        "key": save.key,
        "state_version": None if state is None else state.version,
        "state_revision": None if state is None else state.revision,
        "state_type": None if state is None else state.type,
        "state_body": None if state is None else state.body,
        "doc": save.doc,
    }
    return [row | {"sink": sink} for sink in sinks]


def _key(row: Outgoing) -> Parameters:
    return {"id": row.entity_id, "sink": row.sink, "n": row.n}


def _outgoing_of(row: tuple[Any, ...]) -> Outgoing:
    (
        _, n, entity_id, sink, shard, epoch, version, author, paths, key, attempts, at,
        state_version, *state, doc,
    ) = row  # fmt: skip
    return Outgoing(
        shard=shard,
        n=n,
        sink=sink,
        entity_id=entity_id,
        epoch=epoch,
        version=version,
        author=author,
        paths=decode_texts(paths),
        doc=doc,
        state=None if state_version is None else state_of(state_version, *state),
        key=key,
        attempts=attempts,
        at=moment(at),
    )
