"""Pauses that end by themselves, in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from gnomon.contracts.store import HeldShard, PauseEnds, PausePlace
from gnomon.model.action import Action
from gnomon.stores._pauses import BY_WORKER, END_PAUSE, PauseEnding
from gnomon.stores.sqlite.queries import SQL, fetch, fetch_one
from gnomon.stores.sqlite.rows import live_action, micros, micros_or_none
from gnomon.stores.sqlite.verbs import write_entry

Connection = sqlite3.Connection


def shards_with_ends(
    connection: Connection, holdings: Sequence[HeldShard], ending: PauseEnding, now: datetime
) -> frozenset[int]:
    """Shards in which a pause has ended."""
    looks = ((held.shard, _look(held, ending, now)) for held in holdings)
    return frozenset(
        shard for shard, look in looks if fetch_one(connection, "end_pauses_find", look) is not None
    )


def end_pauses(
    connection: Connection, holdings: Sequence[HeldShard], ending: PauseEnding, now: datetime
) -> PauseEnds:
    """Let those go on, a part of each shard."""
    limit = max(1, ending.limit // len(holdings))
    actions: list[Action] = []
    reached: dict[int, PausePlace] = {}
    for held in holdings:
        wanted = {
            **_look(held, ending, now),
            "lease_guid": held.lease_guid.bytes,
            "silent_since": None if ending.silent is None else micros(now - ending.silent),
            "limit": limit,
        }
        paused = [live_action(row) for row in fetch(connection, "end_pauses_take", wanted)]
        for action in paused:
            actions.append(_resume(connection, action, ending, now, no=len(actions)))
        if len(paused) == limit:
            last = paused[-1]
            assert last.status.paused_until is not None
            reached[held.shard] = PausePlace(last.status.paused_until, last.meta.id)
    return PauseEnds(actions=actions, reached=reached)


def _look(held: HeldShard, ending: PauseEnding, now: datetime) -> dict[str, Any]:
    place = ending.place(held.shard)
    return {"shard": held.shard, "now": micros(now), "until": micros(place.until), "id": place.id}


def _resume(
    connection: Connection, paused: Action, ending: PauseEnding, now: datetime, *, no: int
) -> Action:
    """`no`: pages of the audit are cut between two moments, so each action has its own."""
    action, now_us = ending.resumed(paused, now), micros(now)
    meta, status = action.meta, action.status
    assert status.scheduled_at is not None
    assert status.occurrence_at is not None
    change = {
        "id": meta.id,
        "guid": meta.guid.bytes,
        "now": now_us,
        "scheduled_at": micros(status.scheduled_at),
        "occurrence_at": micros(status.occurrence_at),
        "expires_at": micros_or_none(status.expires_at),
    }
    connection.execute(SQL["resume"], change)
    connection.execute(SQL["append_incoming_of_action"], change)
    write_entry(connection, END_PAUSE, BY_WORKER, meta.id, at=now_us + no, guid=meta.guid)
    return action
