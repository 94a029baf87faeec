"""A limit is shared out: what both engines do between reading the grants and writing them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from gnomon.contracts.store import LimitRequest, LimitUse
from gnomon.model.limits import Claimant, Limit, LimitKey, LimitKind, Share, share_of

SHOWN_FOR = timedelta(seconds=15)  # a listing knows no lease: this outlasts the usual one


class Grant(NamedTuple):
    """A row: what a worker asked for of a limit, and what it was told."""

    key: LimitKey
    worker: UUID
    wanted: int
    share: Share
    asked_at: datetime


class LimitShares(NamedTuple):
    """The grants that `share` writes and those that it drops; `allowed` is its answer."""

    put: list[Grant]
    drop: list[Grant]

    @property
    def allowed(self) -> dict[LimitKey, int]:
        return {grant.key: grant.share.allowed for grant in self.put}


class SharingMoment(NamedTuple):
    """The moment of the transaction, and who lives in it with how many shards."""

    now: datetime
    alive_for: timedelta
    shards: Mapping[UUID, int]

    def is_over(self, grant: Grant) -> bool:
        """Whether its worker has been silent for so long that it has nothing any more."""
        return grant.asked_at <= self.now - self.alive_for


def share_out(
    worker: UUID,
    claims: Mapping[LimitKey, LimitRequest],
    parallel: Mapping[LimitKey, int],
    grants: Iterable[Grant],
    present: SharingMoment,
) -> LimitShares:
    """What the worker gets of the limits with a `parallel`; all of them are locked."""
    known: dict[LimitKey, dict[UUID, Grant]] = {key: {} for key in parallel}
    over: list[Grant] = []
    for grant in grants:
        if present.is_over(grant):
            over.append(grant)
        else:
            known[grant.key][grant.worker] = grant
    put, idle = [], []
    for key, most in parallel.items():
        grant = _granted(worker, key, claims[key], known[key], present, parallel=most)
        put.append(grant)
        if not grant.wanted and not grant.share.counted:
            idle.append(grant)
    return LimitShares(put, [*(grant for grant in over if grant.worker != worker), *idle])


def _granted(
    worker: UUID,
    key: LimitKey,
    claim: LimitRequest,
    known: Mapping[UUID, Grant],
    present: SharingMoment,
    *,
    parallel: int,
) -> Grant:
    mine = known.get(worker)
    asker = Claimant(
        wanted=claim.wanted,
        counted=claim.held,
        shards=present.shards.get(worker, 0),
        share=None if mine is None else mine.share,
        asked_at=present.now,
    )
    others = [
        Claimant(
            wanted=grant.wanted,
            counted=grant.share.counted,
            shards=present.shards.get(grant.worker, 0),
            share=grant.share,
            asked_at=grant.asked_at,
        )
        for grant in known.values()
        if grant.worker != worker
    ]
    shards_all = sum(present.shards.values())
    share = share_of(parallel, asker, others, shards_all=shards_all, now=present.now)
    return Grant(key, worker, claim.wanted, share, present.now)


def use_of(row: Any) -> LimitUse:
    """A row of `list_limits`, of either engine: read by the names of its columns."""
    limit = Limit(
        kind=LimitKind(row["kind"]),
        name=row["name"],
        parallel=row["parallel"],
        rate=row["rate"],
        burst=row["burst"],
    )
    return LimitUse(limit=limit, granted=row["granted"], wanted=row["wanted"])
