"""Commits that nobody is in the way of, which is nearly all of them: in one statement.

It is for plain PostgreSQL, where a statement may write several tables and shards. What it leaves
out is decided under locks, see `committing`, in a transaction of its own: within one transaction
entities are locked in one order only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gnomon.contracts.store.entities import (
    Commit,
    CommitKind,
    Committed,
    Keep,
    Made,
    Offer,
    StateWrite,
)
from gnomon.model.ids import save_key
from gnomon.stores.postgres.connection import Database, Session
from gnomon.stores.postgres.entities.claimed import lock_claims, settle_commits
from gnomon.stores.postgres.entities.offering import Offered, make_offers
from gnomon.stores.postgres.entities.rows import text_of
from gnomon.stores.postgres.entities.saving import Key, columns, sparse


async def commit_plainly(database: Database, commits: Sequence[Commit]) -> dict[int, Committed]:
    """Save what can be saved so; the answers to those that were, by their places."""
    places = _candidates(commits)
    if not places:
        return {}
    async with database.transaction("commit") as session:
        rows = await session.fetch("commit_plain", *_arguments([commits[each] for each in places]))
        saved = sorted(places[row[0] - 1] for row in rows if row[0] is not None)
        made = {row[2]: Made(row[3], row[4], row[5]) for row in rows if row[0] is None}
        chosen = [commits[place] for place in saved]
        if rows and rows[0][1] < len(saved):
            await _settle_others(session, chosen)
        others = await make_offers(session, _offers_left(chosen, made), ())
        fed = [each for each in chosen if each.doc is not None and each.feed]
        if fed:
            keys = columns([Key(each.shard, each.entity_id) for each in fed])
            epochs = [each.epoch for each in fed]
            await session.fetch("feed_add", *keys, epochs, [each.version for each in fed])
    answers = {}
    for place in saved:
        name = commits[place].entity_id
        told = (made[name], *others.get(name, ())) if name in made else others.get(name, ())
        answers[place] = Committed(kind=CommitKind.SAVED, made=told)
    return answers


def _offers_left(commits: Sequence[Commit], made: Mapping[str, Made]) -> list[Offered]:
    """The offers that are not made yet: one more than the first, or not as plain, or others."""
    return [
        Offered(Key(commit.shard, commit.entity_id), offer)
        for commit in commits
        for offer in commit.offers
        if commit.entity_id not in made or made[commit.entity_id].stage != offer.stage
    ]


async def _settle_others(session: Session, commits: Sequence[Commit]) -> None:
    """Some of the claimed rows were just being written by somebody: now they can be settled."""
    facts = await lock_claims(session, commits, ())
    await settle_commits(session, list(zip(commits, facts, strict=True)), ())


def _candidates(commits: Sequence[Commit]) -> list[int]:
    """In the order of locking, the first of each entity."""
    first: dict[tuple[int, str], int] = {}
    for place, commit in enumerate(commits):
        first.setdefault((commit.shard, commit.entity_id), place)
    return [first[key] for key in sorted(first) if _is_plain(commits[first[key]])]


def _is_plain(commit: Commit) -> bool:
    """An offer needs the entity locked; whoever changes nothing does not lock it."""
    return commit.doc is not None or isinstance(commit.state, StateWrite) or not commit.offers


def _arguments(commits: Sequence[Commit]) -> tuple[Sequence[object], ...]:
    offers = [_plain_offer(each) for each in commits]
    states = [each.state if isinstance(each.state, StateWrite) else None for each in commits]
    return (
        [each.shard for each in commits],
        [each.lease_guid for each in commits],
        [each.entity_id for each in commits],
        [each.stage for each in commits],
        [each.seq for each in commits],
        [each.epoch for each in commits],
        [each.version for each in commits],
        sparse([each.state_version or None for each in commits]),
        sparse([each.doc for each in commits]),
        [text_of(each.paths) for each in commits],
        [each.root for each in commits],
        [each.depth for each in commits],
        sparse([None if isinstance(each.wake, Keep) else True for each in commits]),
        sparse([None if isinstance(each.wake, Keep) else each.wake for each in commits]),
        sparse([each.note or None for each in commits]),
        sparse([key_of(each) if each.publish or each.after_save else None for each in commits]),
        sparse([each.publish or None for each in commits]),
        sparse([each.after_save or None for each in commits]),
        sparse([None if state is None else state.revision for state in states]),
        sparse([None if state is None else state.type for state in states]),
        sparse([None if state is None else state.body for state in states]),
        sparse([None if offer is None else offer.stage for offer in offers]),
        sparse([None if offer is None else offer.reason for offer in offers]),
    )


def _plain_offer(commit: Commit) -> Offer | None:
    """The first one, if it says no more than that another stage is to see this very change."""
    if not commit.offers:
        return None
    offer = commit.offers[0]
    is_plain = (
        offer.is_at_once
        and (offer.root, offer.depth) == (commit.root, commit.depth)
        and offer.stage != commit.stage
        and all(offer.stage != other.stage for other in commit.offers[1:])
    )
    return offer if is_plain else None


def key_of(commit: Commit) -> str:
    """The key of what a commit saves, on its way out."""
    version = commit.version + (commit.doc is not None)
    has_state = isinstance(commit.state, StateWrite)
    state = (commit.stage, commit.state_version + 1) if has_state else None
    return save_key(commit.entity_id, commit.epoch, version, state=state)
