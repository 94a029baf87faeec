"""Failed actions by what failed: one group for all errors of one fingerprint."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from gnomon.contracts.store import FailedAction
from gnomon.model.fingerprint import fingerprint_of

NAMES_MAX = 20  # of queues, functions and ids that a group shows
CHARS_SHOWN = 1_000


class FailureGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Actions that failed alike."""

    fingerprint: str
    error: str  # the newest of them as an example
    count: int
    dead: int  # of these; the others will be tried again
    queues: Sequence[str]
    functions: Sequence[str]  # what they do: `function welcome`, `kind http`
    first_at: datetime  # of those that were looked at
    last_at: datetime
    ids: Sequence[str]  # the newest first


class FailureReport(msgspec.Struct, frozen=True, kw_only=True):
    """Groups of failed actions, the largest first."""

    at: datetime
    groups: Sequence[FailureGroup]
    looked_at: int  # actions
    partial: bool  # there are more than were looked at: counts are too low


def group_failures(failed: Iterable[FailedAction], *, limit: int) -> list[FailureGroup]:
    """The largest groups, `limit` of them."""
    fingerprints: dict[str, str] = {}  # many fail with the very same text
    groups: dict[str, list[FailedAction]] = {}
    for action in failed:
        fingerprint = fingerprints.get(action.error)
        if fingerprint is None:
            fingerprint = fingerprints[action.error] = fingerprint_of(action.error)
        groups.setdefault(fingerprint, []).append(action)
    made = [_group(fingerprint, members) for fingerprint, members in groups.items()]
    made.sort(key=lambda group: (-group.count, group.fingerprint))
    return made[:limit]


def _group(fingerprint: str, members: list[FailedAction]) -> FailureGroup:
    members.sort(key=lambda action: action.at, reverse=True)
    return FailureGroup(
        fingerprint=fingerprint,
        error=members[0].error[:CHARS_SHOWN],
        count=len(members),
        dead=sum(action.is_dead for action in members),
        queues=_some(action.queue for action in members),
        functions=_some(action.need for action in members),
        first_at=members[-1].at,
        last_at=members[0].at,
        ids=[action.id for action in members[:NAMES_MAX]],
    )


def _some(names: Iterable[str]) -> list[str]:
    return sorted(set(names))[:NAMES_MAX]
