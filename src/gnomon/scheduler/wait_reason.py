"""Why an action waits: one decision over what the store knows of it, for all who ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from gnomon.contracts.store import LimitUse, WaitFacts, WorkerRow
from gnomon.contracts.store.reports import BEHIND_MAX
from gnomon.model.action import Action, Attempt, State
from gnomon.model.duration import format_duration
from gnomon.model.limits import LimitKey, LimitKind
from gnomon.model.pause import pause_sentence
from gnomon.model.why import WaitReason, Why

ALIVE_FOR = timedelta(seconds=30)
CLOCKS_DIFFER = timedelta(seconds=1)  # less is no reason to speak of clocks
LAPSED_AFTER = timedelta(seconds=15)  # lease and grace: by then somebody has swept it

_Found = tuple[WaitReason, str, datetime | None]


def explain_wait(facts: WaitFacts, *, here: datetime) -> Why:
    """The first reason that holds. `here` is the time of the machine that asks: who wonders why
    something does not begin looks at that one."""
    code, sentence, until = _ended(facts) or _active(facts, here)
    return Why(
        id=facts.action.meta.id,
        code=code,
        sentence=sentence,
        at=facts.now,
        until=until,
        facts=_facts(facts),
    )


def _active(facts: WaitFacts, here: datetime) -> _Found:
    return (
        _attempted(facts)
        or _early(facts, here)
        or _expired(facts)
        or _unattended(facts)
        or _limited(facts)
        or _behind(facts)
    )


def _ended(facts: WaitFacts) -> _Found | None:
    status = facts.action.status
    if status.state is State.PAUSED:
        sentence = pause_sentence(status.reason, status.paused_until)
        return WaitReason.PAUSED, sentence, status.paused_until
    if not status.state.is_terminal:
        return None
    at = "" if status.finished_at is None else f" at {_moment(status.finished_at)}"
    reason = f": {status.reason}" if status.reason else ""
    return WaitReason.ENDED, f"It ended as {status.state}{at}{reason}.", None


def _attempted(facts: WaitFacts) -> _Found | None:
    attempt = facts.action.status.current_attempt
    if attempt is None:
        return None
    if attempt.deadline is not None and facts.now > attempt.deadline + LAPSED_AFTER:
        return (
            WaitReason.LAPSED,
            (
                f"The attempt that {_owner(attempt)} began at {_moment(attempt.began_at)} should "
                f"have ended by {_moment(attempt.deadline)}, and nothing was heard of it: it "
                "counts as interrupted as soon as the owner of its shard sees it."
            ),
            None,
        )
    return (
        WaitReason.RUNNING,
        f"It does not wait: {_owner(attempt)} has been at it since {_moment(attempt.began_at)}.",
        attempt.deadline,
    )


def _owner(attempt: Attempt) -> str:
    return attempt.owner or "a worker"


def _early(facts: WaitFacts, here: datetime) -> _Found | None:
    action = facts.action
    due = action.status.scheduled_at
    if due is None or due <= facts.now:
        return None
    if due <= here and here - facts.now > CLOCKS_DIFFER:
        behind = format_duration(_rounded(here - facts.now))
        return (
            WaitReason.CLOCK,
            (
                f"It is due at {_moment(due)}, and by the clock of the database, which counts, it "
                f"is {_moment(facts.now)}: {behind} behind this machine's."
            ),
            due,
        )
    left = format_duration(_rounded(due - facts.now))
    if action.status.occurrence_failures:
        last = action.status.last_attempt
        error = f" ({last.error})" if last is not None and last.error else ""
        return (
            WaitReason.RETRYING,
            (
                f"Attempt {action.status.attempts} did not succeed{error}; the next is due in "
                f"{left}, at {_moment(due)}."
            ),
            due,
        )
    return WaitReason.NOT_DUE, f"It is due in {left}, at {_moment(due)}.", due


def _expired(facts: WaitFacts) -> _Found | None:
    expires = facts.action.status.expires_at
    if expires is None or expires > facts.now:
        return None
    return (
        WaitReason.EXPIRED,
        f"It may not begin after {_moment(expires)}; it is about to be ended as expired.",
        None,
    )


def _unattended(facts: WaitFacts) -> _Found | None:
    """Nobody is there to begin it."""
    queue, need = facts.action.spec.queue, facts.action.status.need
    living = _living(facts.workers)
    if not living:
        return (
            WaitReason.NO_WORKER,
            "No worker is alive: start one with `gnomon worker` or `gnomon up`.",
            None,
        )
    serving = [worker for worker in living if worker.offer.has_queue(queue)]
    if not serving:
        return (
            WaitReason.UNSERVED,
            (
                f"No living worker serves the queue {queue}; {len(living)} serve others "
                "(`worker.only_queues`)."
            ),
            None,
        )
    if need and not any(need in worker.offer.needs for worker in serving):
        return (
            WaitReason.UNSERVED,
            f"It needs the {need}, and no living worker of the queue {queue} has it.",
            None,
        )
    return _unowned(facts)


def _unowned(facts: WaitFacts) -> _Found | None:
    lock = facts.lock
    if lock.lease_guid is not None and (lock.silent_for or timedelta(0)) < ALIVE_FOR:
        return None
    whose = "has no owner" if lock.lease_guid is None else f"belongs to {lock.owner}, who is silent"
    return (
        WaitReason.UNOWNED,
        f"Its shard {lock.shard} {whose}; a living worker takes it within seconds.",
        None,
    )


def _limited(facts: WaitFacts) -> _Found | None:
    for use in limits_of(facts.action, facts.limits):
        limit, named = use.limit, f"The limit of {use.limit.kind} {use.limit.name}"
        if limit.parallel == 0:
            return WaitReason.LIMIT, f"{named} lets nothing begin (parallel = 0).", None
        if limit.parallel is not None and use.granted >= limit.parallel < use.wanted:
            return (
                WaitReason.LIMIT,
                (
                    f"{named} lets {limit.parallel} run at once; all are in use, and {use.wanted} "
                    "are wanted."
                ),
                None,
            )
        if limit.rate is not None and facts.behind:
            return (
                WaitReason.LIMIT,
                (
                    f"{named} lets {limit.rate:g} a second begin, and {_count(facts.behind)} come "
                    "before it."
                ),
                None,
            )
    return None


def limits_of(action: Action, limits: Sequence[LimitUse]) -> list[LimitUse]:
    """Those that hold for an action: of its queue, and of its target if it has one."""
    keys = {LimitKey(LimitKind.QUEUE, action.spec.queue)}
    target = getattr(action.spec.action, "target", None)
    if isinstance(target, str):
        keys.add(LimitKey(LimitKind.TARGET, target))
    return [use for use in limits if use.limit.key in keys]


def _behind(facts: WaitFacts) -> _Found:
    if facts.behind:
        return (
            WaitReason.BEHIND,
            (
                f"{_count(facts.behind)} due actions come before it in the queue "
                f"{facts.action.spec.queue} of its shard."
            ),
            None,
        )
    return (
        WaitReason.SOON,
        (
            f"Nothing holds it up: it begins as soon as {facts.lock.owner or 'its worker'} has "
            "a slot free."
        ),
        None,
    )


def _facts(facts: WaitFacts) -> Mapping[str, Any]:
    action, lock = facts.action, facts.lock
    silent = lock.silent_for
    shown = {
        "state": str(action.status.state),
        "queue": action.spec.queue,
        "priority": action.spec.priority,
        "need": action.status.need,
        "scheduled_at": action.status.scheduled_at,
        "shard": lock.shard,
        "owner": lock.owner,
        "owner_silent_for": None if silent is None else _rounded(silent),
        "workers_alive": len(_living(facts.workers)),
        "behind": facts.behind,
        "limits": [str(use.limit.key) for use in limits_of(action, facts.limits)],
    }
    return {name: value for name, value in shown.items() if value not in (None, [])}


def _living(workers: Sequence[WorkerRow]) -> list[WorkerRow]:
    return [worker for worker in workers if worker.silent_for < ALIVE_FOR]


def _count(behind: int) -> str:
    return f"{behind} or more" if behind >= BEHIND_MAX else str(behind)


def _rounded(duration: timedelta) -> timedelta:
    """To a hundredth of a second: nobody reads more."""
    return timedelta(seconds=round(duration.total_seconds(), 2))


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
