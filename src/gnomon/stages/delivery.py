"""Saves are delivered entity by entity: in order within one, at once over many."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from gnomon.contracts.store.outbox import OutboxRow
from gnomon.model.attempt_boundary import AttemptBoundary
from gnomon.model.ids import EntityKey
from gnomon.stages.answers import stray
from gnomon.stages.stage import SavedVersion

AT_ONCE = 500

Deliver = Callable[[OutboxRow], Awaitable[None]]


def saved_version(row: OutboxRow, entity: Any, state: Any) -> SavedVersion[Any, Any]:
    """A save as `after_save` and functions are told of it, its document and state decoded."""
    kind, entity_id = EntityKey.parse(row.entity_key)
    return SavedVersion(
        kind=kind,
        id=entity_id,
        version=row.version,
        entity=entity,
        state=state,
        author=row.author,
        changed=row.paths,
        key=row.key,
        root=row.root,
    )


class HeldBackError(Exception):
    """Not sent: an earlier save of the same entity has not arrived."""


async def deliver_in_order(
    rows: Sequence[OutboxRow], deliver: Deliver, *, at_once: int = AT_ONCE
) -> list[Exception | None]:
    """Deliver entity by entity, each one's saves in their order; after a failure its later ones
    are not tried. One answer per row."""
    answers: list[Exception | None] = [None] * len(rows)
    places: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        places.setdefault(row.entity_key, []).append(place)
    slots = asyncio.Semaphore(at_once)

    async def one_entity(mine: list[int]) -> None:
        failed = False
        async with slots:
            for place in mine:
                if failed:
                    answers[place] = HeldBackError("an earlier save of it has not arrived")
                    continue
                with AttemptBoundary(Exception) as attempt:
                    try:
                        await deliver(rows[place])
                    except asyncio.CancelledError as exc:
                        attempt.error = stray(exc)
                answers[place], failed = attempt.error, attempt.error is not None

    if at_once == 1 or len(places) == 1:
        for mine in places.values():
            await one_entity(mine)
    else:
        await asyncio.gather(*map(one_entity, places.values()))
    return answers
