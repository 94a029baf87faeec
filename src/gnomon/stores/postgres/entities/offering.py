"""Offers: entities into the queues of stages, at most once each. See `Offer` about the merging."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gnomon.contracts.store.entities import BACKOFF_FLOOR, Offer
from gnomon.stores.postgres.connection import Session
from gnomon.stores.postgres.entities.saving import Key, apart, columns, sparse


class Offered(NamedTuple):
    """An offer about an entity, which is locked and lives."""

    key: Key
    offer: Offer


async def make_offers(session: Session, offered: Sequence[Offered], only: tuple[int, ...]) -> None:
    """One statement for each kind of offer, unless one (entity, stage) has several."""
    for batch in apart(offered, lambda each: (each.key, each.offer.stage)):
        await _arm(session, [each for each in batch if each.offer.wake is not None], only)
        await _park(session, [each for each in batch if each.offer.looping is not None], only)
        ready = [each for each in batch if each.offer.ready and each.offer.looping is None]
        for frees in (False, True):
            chosen = [each for each in ready if each.offer.frees is frees]
            await _ready(session, chosen, only, frees=frees)


async def _ready(
    session: Session, offered: Sequence[Offered], only: tuple[int, ...], *, frees: bool
) -> None:
    if offered:
        await session.fetch(
            "offer_ready",
            *columns([each.key for each in offered]),
            [each.offer.stage for each in offered],
            sparse([each.offer.lane or None for each in offered]),
            sparse([each.offer.delay or None for each in offered]),
            [each.offer.reason for each in offered],
            [each.offer.root for each in offered],
            [each.offer.depth for each in offered],
            frees,
            BACKOFF_FLOOR,
            *only,
        )


async def _arm(session: Session, offered: Sequence[Offered], only: tuple[int, ...]) -> None:
    if offered:
        await session.fetch(
            "offer_timer",
            *columns([each.key for each in offered]),
            [each.offer.stage for each in offered],
            [each.offer.wake for each in offered],
            [each.offer.root for each in offered],
            [each.offer.depth for each in offered],
            *only,
        )


async def _park(session: Session, offered: Sequence[Offered], only: tuple[int, ...]) -> None:
    if offered:
        await session.fetch(
            "offer_looping",
            *columns([each.key for each in offered]),
            [each.offer.stage for each in offered],
            [each.offer.lane for each in offered],
            [each.offer.reason for each in offered],
            [each.offer.root for each in offered],
            [each.offer.depth for each in offered],
            [each.offer.looping for each in offered],
            *only,
        )
